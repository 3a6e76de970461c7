"""Which sending brought each message to each member: what a trace says of its network, as far as it can.

A trace records what members did, not what happened to datagrams. A receipt is linked to the repair that most
likely brought it, or else to the sending; what was sent before and did not bring it counts as lost.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from antiphon.trace.event import Event

Message: TypeAlias = tuple[int, int]  # sender and number
Fate: TypeAlias = Literal["arrived", "repaired", "again", "lost", "later", "earlier", "unseen"]
Elsewhere: TypeAlias = Mapping[tuple[int, Message], str]  # (member, message) without a receipt here -> "later", "lost"

_REPAIR: Final = re.compile(r"repair to (all|[0-9, ]+)")


class MessageLink(msgspec.Struct, frozen=True):
    """One message on its way to one member; the ends are places in the list of events, None outside of it.

    `arrived` and `repaired` have both ends, as has `again` (a copy of what was there already); `lost`, `later` (it
    comes after the window) and `unseen` (nobody knows) have a source only, `earlier` (sent before the window) a target.
    """

    message: Message
    member: int  # to whom
    fate: Fate
    source: int | None
    target: int | None


def message_of(event: Event) -> Message | None:
    """The message that an event is about."""
    return None if event.sender is None or event.seq is None else (event.sender, event.seq)


def repair_targets(event: Event) -> frozenset[int] | Literal["all"] | None:
    """To whom an event sends a message again; None if it does not."""
    found = _REPAIR.fullmatch(event.detail or "") if event.event == "control" else None
    if found is None or event.seq is None:
        return None
    return "all" if found[1] == "all" else frozenset(int(word) for word in re.findall(r"[0-9]+", found[1]))


def find_links(
    events: Sequence[Event],
    *,
    clocks_agree: bool,
    elsewhere: Elsewhere | None = None,
    context: Sequence[Event] = (),
) -> list[MessageLink]:
    """MessageLink what each member received to what was sent.

    `elsewhere` tells of receipts outside of these events, `context` has the run's views.
    """
    return _Linking(events, clocks_agree, elsewhere, context).links()


class _Linking:
    def __init__(
        self, events: Sequence[Event], clocks_agree: bool, elsewhere: Elsewhere | None, context: Sequence[Event]
    ) -> None:
        self.events, self.clocks_agree, self.elsewhere = events, clocks_agree, elsewhere
        self.members = sorted({event.member for event in events})
        self.sends: dict[Message, int] = {}
        self.repairs: dict[Message, list[int]] = defaultdict(list)
        self.duplicates: dict[tuple[int, Message], list[int]] = defaultdict(list)
        self.arrivals: dict[tuple[int, Message], int] = {}
        self.known: set[tuple[int, Message]] = set()  # delivered or held here although no receipt is among the events
        self.views: dict[tuple[int | None, int], Sequence[int]] = {}  # (who installed it or None, number) -> members
        for event in (*context, *events):
            if event.event == "view" and event.members:
                self.views[event.member, event.view] = self.views[None, event.view] = event.members
        self._collect()
        self.flight_ns_min = self._fastest() // 2  # others may have been faster than those that are seen

    def _collect(self) -> None:
        # a log without receipts (another system's) is read as if a message came when it was delivered
        receipts = any(event.event == "receive" and event.member != event.sender for event in self.events)
        arriving = "receive" if receipts else "deliver"
        for place, event in enumerate(self.events):
            message = message_of(event)
            if message is None:
                continue
            here = (event.member, message)
            if event.event == "send":
                self.sends.setdefault(message, place)
            elif event.event == arriving and event.member != event.sender:
                self.arrivals.setdefault(here, place)
            elif event.event in ("deliver", "discard"):
                self.known.add(here)
            elif event.detail == "duplicate":
                self.duplicates[here].append(place)
            elif repair_targets(event) is not None:
                self.repairs[message].append(place)

    def _fastest(self) -> int:
        """The shortest time from a sending to a receipt, where nothing else could have brought it."""
        times = [
            self._time(arrival) - self._time(self.sends[message])
            for (_, message), arrival in self.arrivals.items()
            if self.clocks_agree and message in self.sends and message not in self.repairs
        ]
        return min((time for time in times if time >= 0), default=0)

    def _time(self, place: int) -> int:
        return self.events[place].time_ns or 0

    def links(self) -> list[MessageLink]:
        found: list[MessageLink] = []
        for (member, message), arrival in self.arrivals.items():
            found += self._arrived(member, message, arrival)
        for message, send in self.sends.items():
            for member in self._audience(send):
                if (member, message) not in self.arrivals and (member, message) not in self.known:
                    fate = "unseen" if self.elsewhere is None else self.elsewhere.get((member, message), "lost")
                    assert fate in ("unseen", "later", "lost")
                    found.append(MessageLink(message, member, fate, send, None))  # type: ignore[arg-type]
        for (member, message), again in self.duplicates.items():
            found += self._doubled(member, message, again)
        return found

    def _audience(self, send: int) -> list[int]:
        """Who should get what is sent: the members of the view, as far as it is known, without the sender."""
        event = self.events[send]
        view = self.views.get((event.member, event.view)) or self.views.get((None, event.view))
        return [one for one in self.members if one != event.member and (view is None or one in view)]

    def _arrived(self, member: int, message: Message, arrival: int) -> list[MessageLink]:
        repairs = [place for place in self.repairs[message] if self._may_have_brought(place, member, arrival)]
        send = self.sends.get(message)
        if not repairs:
            fate: Fate = "earlier" if send is None else "arrived"
            return [MessageLink(message, member, fate, send, arrival)]
        last = max(repairs, key=self._time) if self.clocks_agree else repairs[0]
        lost = [place for place in repairs if place != last and self.clocks_agree]
        lost += [send] if send is not None else []
        return [
            MessageLink(message, member, "repaired", last, arrival),
            *(MessageLink(message, member, "lost", place, None) for place in lost),
        ]

    def _may_have_brought(self, repair: int, member: int, arrival: int) -> bool:
        event = self.events[repair]
        targets = repair_targets(event)
        if event.member == member or targets is None or not (targets == "all" or member in targets):
            return False
        if self.clocks_agree:
            return self._time(repair) + self.flight_ns_min <= self._time(arrival)
        # without a common clock: one that was meant for this member, or that did not come as a second copy
        message = message_of(event)
        assert message is not None
        return targets != "all" or not self.duplicates[member, message]

    def _doubled(self, member: int, message: Message, again: list[int]) -> list[MessageLink]:
        """Copies that came too late: each from the last repair that can have brought it."""
        found = []
        for place in again:
            repairs = [one for one in self.repairs[message] if self._may_have_brought(one, member, place)]
            if repairs and self.clocks_agree:
                found.append(MessageLink(message, member, "again", max(repairs, key=self._time), place))
        return found
