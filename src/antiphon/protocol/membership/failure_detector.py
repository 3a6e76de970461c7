"""Who is alive and what everyone wants to be, as far as one process can tell: the failure detector."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from antiphon.protocol.machine import Duration, Instant
from antiphon.protocol.membership.connectivity import broken_links, connected
from antiphon.protocol.membership.messages import Alive, Standing
from antiphon.protocol.membership.outbox import OwnProcess
from antiphon.protocol.membership.views import NO_VIEW, GroupView, ViewId, name_of


class Peer(msgspec.Struct):
    """What was heard of a name."""

    heard_at: Instant
    process: int | None = None  # its latest incarnation, if it was ever heard
    view: ViewId = NO_VIEW  # the newest view that it knows
    standing: Standing = "joiner"
    reported: frozenset[int] = frozenset()  # the names that it did not hear when it spoke last
    unheard: frozenset[int] = frozenset()  # those that it did not hear twice in succession
    awaited: bool = False  # it was given time to speak once, and has not spoken since

    def says(self, alive: Alive) -> None:
        """Take what a sign of life says; one report of silence may be of a moment's loss, two count."""
        self.view, self.standing = alive.view, alive.standing
        reported = frozenset(alive.unheard)
        self.reported, self.unheard = reported, reported & self.reported


class FailureDetector:
    """Every other name that this process knows of, and itself; one that is silent for too long is suspected."""

    def __init__(
        self, own: OwnProcess, names: Iterable[int], suspect_ns: Duration, now: Instant, *, sides: bool = False
    ) -> None:
        """Suspect names that are silent for longer than `suspect_ns`; with `sides`, who joins has chosen a view."""
        self._own, self._suspect_ns, self._sides = own, suspect_ns, sides
        self.beat_at: Instant = now  # when this process gives its next sign of life
        self.by_name: dict[int, Peer] = {}
        self.meet(names, now)

    def meet(self, names: Iterable[int], now: Instant) -> None:
        """Get to know names; new ones have time to speak before they are suspected."""
        for name in names:
            if name != self._own.name:
                self.by_name.setdefault(name, Peer(now))

    def heard(self, process: int, now: Instant) -> bool:
        """Note a sign of life; say whether it comes from its name's latest incarnation and not from an earlier one."""
        peer = self.by_name.setdefault(name_of(process), Peer(now))
        if peer.process is None or process > peer.process:
            # whom it does not hear is a matter of the links, which are the same for every incarnation
            peer.process, peer.view, peer.standing = process, NO_VIEW, "joiner"
        if process == peer.process:
            peer.heard_at, peer.awaited = max(peer.heard_at, now), False
        return process == peer.process

    def latest(self, process: int) -> int:
        """Return the latest incarnation of a process' name that was heard."""
        known = self.by_name[name_of(process)].process
        return process if known is None else known

    def was_away(self, now: Instant) -> bool:
        """Return whether this process itself was silent for too long: its own sign of life is overdue."""
        return self.beat_at + self._suspect_ns // 2 < now

    def refresh(self, now: Instant) -> None:
        """Give everyone time: this process itself was away."""
        for peer in self.by_name.values():
            peer.heard_at = now

    def await_word(self, names: Iterable[int], now: Instant) -> None:
        """Give time to names that should be about to speak: once, since a broken link would earn it for ever."""
        for name in names:
            peer = self.by_name.get(name)
            if peer is not None and not peer.awaited:
                peer.heard_at, peer.awaited = now, True

    # Who is alive

    def suspected(self, name: int, now: Instant) -> bool:
        """Say whether a name has been silent for too long."""
        return now - self.by_name[name].heard_at > self._suspect_ns

    def living(self, now: Instant) -> set[int]:
        """Name all that are not suspected, this process among them."""
        return {name for name in self.by_name if not self.suspected(name, now)} | {self._own.name}

    def unheard(self, now: Instant) -> tuple[int, ...]:
        """Name all that are suspected here: what this process reports to the others."""
        return tuple(name for name in self.by_name if self.suspected(name, now))

    def connected(self, names: Iterable[int], now: Instant) -> tuple[int, ...]:
        """Choose those of some names that all hear one another, as many as possible; the suspected are left out."""
        living = self.living(now)
        return connected([name for name in names if name in living], self._reports())

    def broken_links(self, names: Collection[int], now: Instant) -> tuple[tuple[int, int], ...]:
        """Name the links among some names that are reported as broken, as (from, to), and this process' own.

        What one reported who is not heard any more may have changed since.
        """
        reports = {name: links for name, links in self._reports().items() if not self.suspected(name, now)}
        reports[self._own.name] = frozenset(self.unheard(now))
        return tuple(sorted(broken_links(names, reports)))

    def _reports(self) -> dict[int, frozenset[int]]:
        return {name: peer.unheard for name, peer in self.by_name.items() if peer.unheard}

    def lives(self, process: int, now: Instant) -> bool:
        """Say whether a process may be alive: its name is not silent and has had no later incarnation."""
        if name_of(process) == self._own.name:
            return process == self._own.id
        peer = self.by_name[name_of(process)]
        return peer.process in (None, process) and not self.suspected(name_of(process), now)

    def knows(self, process: int, view: ViewId) -> bool:
        """Say whether another process said that it knows a view, or a newer one."""
        peer = self.by_name.get(name_of(process))
        return peer is not None and peer.process == process and peer.view >= view

    def behind(self, view: ViewId, now: Instant) -> bool:
        """Say whether anyone that is alive, and does not join, has not said yet that it knows a view."""
        return any(
            peer.process is not None
            and peer.standing != "joiner"
            and peer.view < view
            and not self.suspected(name, now)
            for name, peer in self.by_name.items()
        )

    # Who wants what

    def joiners(self, view: GroupView, now: Instant) -> list[int]:
        """List who is alive and wants to join a view, by name; this process too if it does.

        With sides, only who has not chosen another view.
        """
        joiners = [
            peer.process
            for name, peer in self.by_name.items()
            if peer.process is not None
            and peer.standing == "joiner"
            and not self.suspected(name, now)
            and not view.lists(peer.process)
            and (not self._sides or peer.view == view.id)
        ]
        if self._own.standing == "joiner":
            joiners.append(self._own.id)
        return sorted(joiners, key=name_of)

    def leavers(self) -> set[int]:
        """Give those who leave, this process too if it does."""
        leavers = {peer.process for peer in self.by_name.values() if peer.standing == "leaver"}
        return {other for other in leavers if other is not None} | (
            {self._own.id} if self._own.standing == "leaver" else set()
        )

    def coming(self, view: GroupView, now: Instant) -> set[int]:
        """Name those of a view that were never heard and may be about to speak."""
        unheard = (name for name, peer in self.by_name.items() if peer.process is None)
        return {name for name in unheard if name in view.names and not self.suspected(name, now)}

    def without_state(self, view: GroupView) -> set[int]:
        """Give the other members of a view that have not said yet that they have the application's state."""
        return {
            peer.process
            for peer in self.by_name.values()
            if peer.process is not None and view.lists(peer.process) and peer.standing in ("joiner", "awaiting")
        }

    def has_members(self, view: GroupView, now: Instant) -> bool:
        """Say whether anyone is alive who says that it is a member of this very view."""
        return any(
            peer.process is not None
            and view.lists(peer.process)
            and peer.view == view.id
            and peer.standing in ("member", "awaiting")
            and not self.suspected(name, now)
            for name, peer in self.by_name.items()
        )

    def candidates(self, view: GroupView, unwanted: Collection[int], joiners: Iterable[int], now: Instant) -> list[int]:
        """List the names that may propose what follows a view, in order: living members, or those who join if none.

        Before the first view, a founder that was not heard yet may be about to. Where all leave and nobody joins, they
        do it themselves.
        """
        living = [member for member in view.members if view.number > 0 and self.lives(member, now)]
        away = self.leavers().union(unwanted)
        members = [name_of(member) for member in living if member not in away]
        coming = sorted(self.coming(view, now).union(map(name_of, joiners)))
        return members or coming or [name_of(member) for member in living if member not in unwanted]

    def change_due(self, view: GroupView, unwanted: Collection[int], joiners: Collection[int], now: Instant) -> bool:
        """Say whether a view is no longer what it should be."""
        if joiners:
            return True
        away = self.leavers().union(unwanted)
        return any(member in away or not self.lives(member, now) for member in view.members)
