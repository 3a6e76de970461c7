"""What everyone wants to be, as far as one process was told: who stays in a view, joins or leaves; who may propose."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from antiphon.protocol.machine import Instant
from antiphon.protocol.membership.failure_detector import FailureDetector
from antiphon.protocol.membership.outbox import OwnProcess
from antiphon.protocol.membership.views import NO_VIEW, GroupView, ViewId, name_of


class Incarnations:
    """The latest incarnation of each name that is known to have been in a view: who comes back is another process."""

    def __init__(self) -> None:
        self._listed: dict[int, int] = {}

    def note(self, view: GroupView) -> None:
        """Note who is in a view, and was in those before."""
        for process in (*view.departed, *view.members) if view.number > 0 else ():
            self._listed[name_of(process)] = max(process, self.latest(process))

    def latest(self, process: int) -> int:
        """Return the latest one of a process' name; -1 if none is known."""
        return self._listed.get(name_of(process), -1)


class Roster:
    """The living by what they say of themselves, and this process among them."""

    def __init__(self, own: OwnProcess, detector: FailureDetector, *, sides: bool) -> None:
        """Where each side goes on (`sides`), who joins has chosen a view."""
        self._own, self._detector, self.sides = own, detector, sides
        self.incarnations = Incarnations()
        self._apart: tuple[ViewId, Instant] | None = None  # whom one who joins could not be together with, since when

    def stays(self, process: int, view: GroupView, now: Instant, into: ViewId = NO_VIEW) -> bool:
        """Say whether a member of a view may be alive in it: where each side goes on, it may have gone to another.

        `into` is no other one: the view that this process would go to as well.
        """
        peer = self._detector.by_name.get(name_of(process))
        gone_on = self.sides and peer is not None and peer.view > view.id and peer.view != into
        return self._detector.lives(process, now) and not gone_on

    def staying(self, view: GroupView, now: Instant) -> list[int]:
        """List the members of a view that may be alive in it, in order; before the first view nobody is in it.

        One who could not be together with them does not count on them.
        """
        if view.number == 0 or self.out_of_reach(view, now):
            return []
        own, living, by_name = self._own.id, self._detector.living(now), self._detector.by_name
        gone_on = self.gone_on(view) if self.sides else ()
        return [
            member
            for member, name in zip(view.members, view.names, strict=True)
            if member == own
            or (name in living and name in by_name and by_name[name].process in (None, member) and name not in gone_on)
        ]

    def out_of_reach(self, view: GroupView, now: Instant) -> bool:
        """Say whether this process wants to join a side and has not heard all of it, or been heard, for a while.

        It begins another, together with others that are in the same case.
        """
        joins = self.sides and self._own.standing == "joiner" and view.number > 0
        if not joins or self._detector.hears_and_is_heard_by(view.names, now):
            self._apart = None
            return False
        if self._apart is None or self._apart[0] != view.id:
            self._apart = view.id, now
        near = self._detector.living(now).intersection(view.names)  # what was measured of the others may be long ago
        return now >= self._apart[1] + 4 * self._detector.times.settling_ns(near)

    def follows_another(self, view: GroupView, now: Instant) -> bool:
        """Say whether another is the first member of a view, and stays in it."""
        first = view.members[0]
        if view.number == 0 or first == self._own.id:
            return False
        return self.stays(first, view, now) and self._detector.by_name[name_of(first)].standing != "leaver"

    def is_settled(self, view: GroupView, now: Instant) -> bool:
        """Say whether all of a view stay in it, and nobody is heard of that wants to come."""
        if view.number == 0 or self._own.standing in ("joiner", "leaver"):
            return False
        for peer in self._detector.by_name.values():
            if peer.standing == "leaver" or (peer.standing == "joiner" and peer.process is not None):
                return False
        return len(self.staying(view, now)) == len(view.members)

    def full(self, view: GroupView) -> list[int]:
        """Name the other members of a view whose applications take in no more, as they say."""
        full = (peer.process for peer in self._detector.by_name.values() if peer.standing == "full")
        return [process for process in full if process is not None and view.lists(process)]

    def gone_on(self, view: GroupView) -> set[int]:
        """Name those who know a newer view."""
        newest = view.id
        return {name for name, peer in self._detector.by_name.items() if peer.view > newest}

    def others_may_know_more(self, view: GroupView, now: Instant) -> bool:
        """Say whether the newest view that one who begins anew knows may be over: what it knows may be old.

        It is where anyone alive says so; and who could decide alone waits until all have spoken, or are suspected.
        """
        if view.number == 0:
            return False
        alone, by_name = view.is_quorum({self._own.name}), self._detector.by_name
        return any(
            by_name[name].view > view.id or (alone and by_name[name].process is None)
            for name in self._detector.living(now)
            if name in by_name
        )

    def knows(self, process: int, view: ViewId) -> bool:
        """Say whether another process said that it knows a view, or a newer one."""
        peer = self._detector.by_name.get(name_of(process))
        return peer is not None and peer.process == process and peer.view >= view

    def behind(self, view: ViewId, now: Instant) -> bool:
        """Say whether anyone that is alive, and does not join, has not said yet that it knows a view."""
        living = self._detector.living(now)
        return any(
            peer.process is not None
            and peer.standing not in ("joiner", "behind")
            and peer.view < view
            and name in living
            for name, peer in self._detector.by_name.items()
        )

    def joiners(self, view: GroupView, now: Instant) -> list[int]:
        """List who is alive and wants to join a view, by name; this process too if it does.

        With sides, only who has not chosen another view.
        """
        living = self._detector.living(now)
        joiners = [
            peer.process
            for name, peer in self._detector.by_name.items()
            if peer.process is not None
            and peer.standing == "joiner"
            and name in living
            and not view.lists(peer.process)
            and (not self.sides or peer.view == view.id)
        ]
        if self._own.standing == "joiner" and not self._own.full:
            joiners.append(self._own.id)
        return sorted(joiners, key=name_of)

    def leavers(self) -> set[int]:
        """Give those who leave, this process too if it does."""
        leavers = {peer.process for peer in self._detector.by_name.values() if peer.standing == "leaver"}
        return {other for other in leavers if other is not None} | (
            {self._own.id} if self._own.standing == "leaver" else set()
        )

    def coming(self, view: GroupView, now: Instant) -> frozenset[int]:
        """Name those of a view that were never heard and may be about to speak."""
        unheard = (name for name, peer in self._detector.by_name.items() if peer.process is None)
        return self._detector.living(now).intersection(unheard, view.names)

    def without_state(self, view: GroupView) -> set[int]:
        """Give the other members of a view that have not said yet that they have the application's state."""
        return {
            peer.process
            for peer in self._detector.by_name.values()
            if peer.process is not None and peer.standing in ("joiner", "awaiting") and view.lists(peer.process)
        }

    def has_members(self, view: GroupView, now: Instant) -> bool:
        """Say whether anyone is alive who says that it is a member of this very view."""
        living = self._detector.living(now)
        return any(
            peer.process is not None
            and peer.view == view.id
            and peer.standing in ("member", "full", "awaiting")
            and name in living
            and view.lists(peer.process)
            for name, peer in self._detector.by_name.items()
        )

    def candidates(self, view: GroupView, unwanted: Collection[int], joiners: Iterable[int], now: Instant) -> list[int]:
        """List the names that may propose what follows a view, in order: living members, or those who join if none.

        Before the first view, a founder that was not heard yet may be about to. Where all leave and nobody joins, they
        do it themselves.
        """
        staying, away = self.staying(view, now), self.leavers().union(unwanted)
        members = [name_of(member) for member in staying if member not in away]
        coming = sorted(self.coming(view, now).union(map(name_of, joiners)))
        return members or coming or [name_of(member) for member in staying if member not in unwanted]

    def change_due(self, view: GroupView, unwanted: Collection[int], joiners: Collection[int], now: Instant) -> bool:
        """Say whether a view is no longer what it should be.

        Where each side goes on, nothing but the reports of broken links says who is on which, so they must be in.
        """
        if joiners and self._detector.arrivals.until is None:
            return True
        if view.number == 0 or view.members == (self._own.id,):
            return (
                False  # who is alone changes nothing by leaving: it waits for those who want to join, if there are any
            )
        if self.sides and not self._detector.reports_are_in(view.names, now, lambda agree: True):
            return False
        away, staying = self.leavers().union(unwanted), self.staying(view, now)
        return len(staying) < len(view.members) or not away.isdisjoint(staying)

    def targets(self, view: GroupView, joiners: Iterable[int], now: Instant) -> tuple[int, ...]:
        """Name whom to ask for the next view: where each side goes on, those of other sides are not stopped."""
        names = self._detector.connected(view.names, now) if self.sides else view.names
        if self.out_of_reach(view, now):
            names = ()
        return tuple(dict.fromkeys((*names, *map(name_of, joiners))))
