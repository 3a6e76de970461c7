"""Random small traces that are right by construction, and one violation planted into them at a time.

`sample(seed)` plays a perfect group: a message is handled only when its order allows, a mark is made only on what
everybody holds, a view is installed only after a flush. `PLANTS` breaks one thing, and says what a checker must find.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from antiphon.trace.event import Event

Message = tuple[int, int]
Order = Literal["fifo", "causal", "total"]
Logs = dict[int, list[Event]]
RUN = "planted"


@dataclass(frozen=True)
class Shape:
    """What a sample has in it."""

    members: int = 4
    messages: int = 24
    order: Order = "total"
    views: bool = False
    joiner: bool = False  # only with views
    gone: Literal["", "crash", "leave"] = ""
    receives: bool = True
    discards: bool = False
    marks: bool = True
    ends: bool = True


@dataclass(frozen=True)
class Sample:
    """A trace without any violation of what its order promises."""

    shape: Shape
    logs: Logs
    gone: int | None  # the member that crashes or leaves

    @property
    def events(self) -> list[Event]:
        return [event for log in self.logs.values() for event in log]


@dataclass(frozen=True)
class Planted:
    """A trace with one violation of `guarantee`; `also` are those that it cannot but break as well."""

    events: list[Event]
    guarantee: str
    violations: int | None = 1  # None: at least one
    also: frozenset[str] = frozenset()
    uniform: bool = False
    happened_before: Literal["deliver", "receive"] = "deliver"


def random_shape(rng: random.Random, order: Order | None = None) -> Shape:
    views = rng.random() < 0.5
    orders: tuple[Order, ...] = ("fifo", "causal", "total")
    return Shape(
        members=rng.randint(2, 5),
        messages=rng.randint(8, 36),
        order=rng.choice(orders) if order is None else order,
        views=views,
        joiner=views and rng.random() < 0.5,
        gone=rng.choice(("", "crash", "leave")),
        receives=rng.random() < 0.7,
        discards=rng.random() < 0.3,
        marks=rng.random() < 0.8,
        ends=rng.random() < 0.5,
    )


def sample(seed: int, order: Order | None = None, shape: Shape | None = None) -> Sample:
    """Play the group of a seed."""
    rng = random.Random(seed)
    return _Group(rng, shape or random_shape(rng, order)).play()


@dataclass
class _Member:
    number: int
    step: int = 0
    log: list[Event] = field(default_factory=list)
    received: set[Message] = field(default_factory=set)
    handled: set[Message] = field(default_factory=set)
    since_previous_send: set[Message] = field(default_factory=set)


class _Group:
    """A group with a global clock that does everything right."""

    def __init__(self, rng: random.Random, shape: Shape) -> None:
        self.rng, self.shape = rng, shape
        self.now = 0
        founders = [_Member(number) for number in range(1, shape.members + 1)]
        self.everyone = list(founders)
        self.active = list(founders)
        self.view_number = 0
        self.view = {member.number for member in founders}  # by number: the gone ones stay in it until the next view
        self.sent: list[Message] = []  # in the order of the sends, which is a total order and respects causality
        self.sent_in: dict[Message, set[int]] = {}
        self.causes: dict[Message, set[Message]] = {}
        self.gone: int | None = None

    def play(self) -> Sample:
        shape, rng = self.shape, self.rng
        if shape.views:
            self.install({member.number for member in self.active})
        half = shape.messages // 2
        leaves_at = rng.randint(half // 2, half - 1) if shape.gone and len(self.active) > 2 else None
        self.traffic(half, leaves_at)
        if shape.views:
            self.drain()
            if shape.joiner:
                joiner = _Member(shape.members + 1)
                self.everyone.append(joiner)
                self.active.append(joiner)
            self.install({member.number for member in self.active})
        self.traffic(shape.messages - half, None)
        self.drain()
        for member in self.active:
            self.mark(member)
            if shape.ends:
                self.record(member, "end")
        return Sample(shape, {member.number: member.log for member in self.everyone}, self.gone)

    def traffic(self, messages: int, leaves_at: int | None) -> None:
        for count in range(messages):
            self.send(self.rng.choice(self.active))
            for _ in range(self.rng.randint(0, 3 * len(self.active))):
                self.act(self.rng.choice(self.active))
            if count == leaves_at:
                member = self.active.pop(self.rng.randrange(len(self.active)))
                self.gone = member.number
                self.record(member, self.shape.gone)

    def act(self, member: _Member) -> None:
        action = self.rng.random()
        if action < 0.4:
            self.receive(member)
        elif action < 0.9:
            self.handle(member)
        else:
            self.mark(member)

    def drain(self) -> None:
        """Let everybody handle everything that was sent to it."""
        while True:
            waiting = [member for member in self.active if len(member.handled) < len(self.due(member))]
            if not waiting:
                return
            member = self.rng.choice(waiting)
            self.receive(member)
            self.handle(member)

    def due(self, member: _Member) -> list[Message]:
        return [message for message in self.sent if member.number in self.sent_in[message]]

    def send(self, member: _Member) -> None:
        message = (member.number, 1 + sum(sender == member.number for sender, _ in self.sent))
        self.record(member, "send", message)
        self.sent.append(message)
        self.sent_in[message] = self.view
        self.causes[message] = member.since_previous_send
        member.since_previous_send = {message}
        member.received.add(message)

    def receive(self, member: _Member) -> None:
        missing = [message for message in self.due(member) if message not in member.received]
        if missing:
            message = self.rng.choice(missing)
            member.received.add(message)
            if self.shape.receives:
                self.record(member, "receive", message)

    def handle(self, member: _Member) -> None:
        ready = [message for message in self.due(member) if message not in member.handled]
        if self.shape.order == "total":
            ready = ready[:1]
        else:
            oldest: dict[int, Message] = {}
            for message in ready:
                oldest.setdefault(message[0], message)
            ready = list(oldest.values())
            if self.shape.order == "causal":
                mine = set(self.due(member))
                ready = [message for message in ready if self.causes[message] & mine <= member.handled]
        ready = [message for message in ready if message in member.received]
        if not ready:
            return
        message = self.rng.choice(ready)
        member.handled.add(message)
        if self.shape.discards and self.rng.random() < 0.1:
            self.record(member, "discard", message)
        else:
            self.record(member, "deliver", message)
            member.since_previous_send.add(message)

    def mark(self, member: _Member) -> None:
        """Mark the longest prefix of somebody's messages that the whole view holds, by what the logs show."""
        if not self.shape.marks:
            return
        sender = self.rng.choice(self.everyone).number
        best = 0
        for message in (m for m in self.sent if m[0] == sender):
            holders = {
                other.number
                for other in self.everyone
                if other.number == sender
                or any(row.event in ("receive", "deliver") and (row.sender, row.seq) == message for row in other.log)
            }
            if not self.view & self.sent_in[message] <= holders:
                break
            best = message[1]
        if best:
            self.record(member, "stable", (sender, best))

    def install(self, members: set[int]) -> None:
        self.view_number += 1
        self.view = members
        for member in self.rng.sample(self.active, len(self.active)):
            self.record(member, "view", members=tuple(sorted(members)))

    def record(
        self, member: _Member, event: str, message: Message | None = None, members: tuple[int, ...] | None = None
    ) -> None:
        self.now += self.rng.randint(1, 1000)
        member.step += self.rng.choice((1, 1, 1, 5))
        sender, seq = message or (None, None)
        row = Event(RUN, member.number, member.step, event, sender, seq, self.now, self.view_number, members=members)
        member.log.append(row)


# ---- planting


def plant_unsent_delivery(base: Sample, rng: random.Random) -> Planted | None:
    """A member delivers, as its last, a message that was never sent."""
    member = rng.choice(_stayers(base))
    logs = _copy(base)
    sender = rng.choice(sorted(logs))
    number = 1 + sum(row.event == "send" for row in logs[sender])
    _insert(logs, member, _end_of(logs[member]), "deliver", (sender, number))
    return Planted(_renumbered(logs), "integrity", also=frozenset({"agreement"}))


def plant_repeated_delivery(base: Sample, rng: random.Random) -> Planted | None:
    """A member delivers a message a second time at once."""
    member, position = _choose(base, rng, "deliver")
    if position is None:
        return None
    logs = _copy(base)
    _insert(logs, member, position + 1, "deliver", _message(logs[member][position]))
    return Planted(_renumbered(logs), "integrity")


def plant_late_repeat(base: Sample, rng: random.Random) -> Planted | None:
    """A member delivers a message a second time, after a higher number of its sender."""
    member, position = _choose(base, rng, "deliver")
    if position is None:
        return None
    logs = _copy(base)
    sender, number = _message(logs[member][position])
    if not any(row.event == "deliver" and row.sender == sender and (row.seq or 0) > number for row in logs[member]):
        return None
    _insert(logs, member, _end_of(logs[member]), "deliver", (sender, number))
    return Planted(_renumbered(logs), rng.choice(("integrity", "fifo")), also=frozenset({"integrity", "fifo"}))


def plant_repeated_send(base: Sample, rng: random.Random) -> Planted | None:
    """A member uses a number twice."""
    member, position = _choose(base, rng, "send")
    if position is None:
        return None
    logs = _copy(base)
    _insert(logs, member, position + 1, "send", _message(logs[member][position]))
    return Planted(_renumbered(logs), "integrity")


def plant_lost_own_message(base: Sample, rng: random.Random) -> Planted | None:
    """Nobody handles the very last message, not even its sender, who stays."""
    last = max((row for row in base.events if row.event == "send"), key=lambda row: row.time_ns or 0)
    if last.member == base.gone:
        return None
    message = _message(last)
    logs = {
        member: [row for row in log if row.event not in ("deliver", "discard") or _message(row) != message]
        for member, log in base.logs.items()
    }
    also = frozenset() if base.shape.receives else frozenset({"stability"})
    return Planted(_renumbered(logs), "validity", also=also)


def plant_missing_delivery(base: Sample, rng: random.Random) -> Planted | None:
    """A member that stays lacks the last message that it should have delivered, another's."""
    member = rng.choice(_stayers(base))
    handled = [at for at, row in enumerate(base.logs[member]) if row.event in ("deliver", "discard")]
    if not handled or base.logs[member][handled[-1]].event != "deliver":
        return None
    position = handled[-1]
    message, last_view = _message(base.logs[member][position]), _last_view(base.logs[member])
    others = [m for m in _stayers(base) if m != member and _delivers(base.logs[m], message)]
    if message[0] == member or not others or position < last_view:
        return None
    logs = _copy(base)
    del logs[member][position]
    also = frozenset() if base.shape.receives else frozenset({"stability"})
    return Planted(_renumbered(logs), "agreement", also=also)


def plant_fifo_swap(base: Sample, rng: random.Random) -> Planted | None:
    """A member delivers two neighbours of one sender the other way round."""
    swap = _swap(base, rng, lambda first, second: first[0] == second[0])
    return swap and Planted(swap[0], "fifo", also=_swapped(base) | {"causal", "total"})


def plant_causal_swap(base: Sample, rng: random.Random) -> Planted | None:
    """A member delivers an answer right before what it answers."""
    swap = _swap(base, rng, lambda a, b: a[0] != b[0] and a in _causes(base, b, ("deliver",)))
    return swap and Planted(swap[0], "causal", also=_swapped(base) | {"total"})


def plant_receipt_swap(base: Sample, rng: random.Random) -> Planted | None:
    """A member delivers a message right before one that its sender had received, but not delivered, when it sent it."""

    def only_received(a: Message, b: Message) -> bool:
        return a[0] != b[0] and a in _causes(base, b, ("receive",)) - _causes(base, b, ("deliver",))

    swap = _swap(base, rng, only_received)
    also = _swapped(base) | {"total"}
    return swap and Planted(swap[0], "causal", also=also, happened_before="receive")


def plant_total_swap(base: Sample, rng: random.Random) -> Planted | None:
    """A member that stays delivers two concurrent neighbours the other way round."""
    swap = _swap(base, rng, lambda a, b: _concurrent(base, a, b), _stayers(base))
    if swap is None or not _another_delivers_both(base, swap):
        return None
    return Planted(swap[0], "total", violations=None, also=_swapped(base))


def plant_uniform_total_swap(base: Sample, rng: random.Random) -> Planted | None:
    """A member that is gone in the end had delivered two concurrent neighbours the other way round."""
    if base.gone is None:
        return None
    swap = _swap(base, rng, lambda a, b: _concurrent(base, a, b), [base.gone])
    if swap is None or not _another_delivers_both(base, swap):
        return None
    return Planted(swap[0], "total", violations=None, also=_swapped(base), uniform=True)


def plant_uniform_loss(base: Sample, rng: random.Random) -> Planted | None:
    """A member sends and delivers a message, and is gone before anybody else has it."""
    if base.gone is None:
        return None
    logs = _copy(base)
    number = 1 + sum(row.event == "send" for row in logs[base.gone])
    if number > 1 and not _delivers(logs[base.gone], (base.gone, number - 1)):
        return None  # it would break causal order as well
    _insert(logs, base.gone, len(logs[base.gone]) - 1, "send", (base.gone, number))
    _insert(logs, base.gone, len(logs[base.gone]) - 1, "deliver", (base.gone, number))
    survivors = base.shape.members - 1
    return Planted(_renumbered(logs), "agreement", violations=survivors, uniform=True)


def plant_mark_of_unsent(base: Sample, rng: random.Random) -> Planted | None:
    """A member marks a message stable that was never sent."""
    member = rng.choice(_stayers(base))
    logs = _copy(base)
    sender = rng.choice(sorted(logs))
    number = 1 + sum(row.event == "send" for row in logs[sender])
    _insert(logs, member, _end_of(logs[member]), "stable", (sender, number))
    return Planted(_renumbered(logs), "stability")


def plant_mark_of_unreceived(base: Sample, rng: random.Random) -> Planted | None:
    """A member marks a message stable that one who is gone, but still in the view, never received."""
    if base.gone is None:
        return None
    held = {_message(row) for row in base.logs[base.gone] if row.event in ("send", "receive", "deliver")}
    choices = []
    for member in _stayers(base):
        log = base.logs[member]
        views = [position for position, row in enumerate(log) if row.event == "view"]
        first_view = range(views[0] + 1, views[1]) if len(views) > 1 else range(views[0] if views else 0, len(log))
        if base.shape.views and len(views) < 2:
            continue  # the joiner, who never was in a view with the one that is gone
        choices += [(member, at) for at in first_view if log[at].event == "send" and _message(log[at]) not in held]
    if not choices:
        return None
    member, position = rng.choice(choices)
    logs = _copy(base)
    _insert(logs, member, position + 1, "stable", _message(logs[member][position]))
    return Planted(_renumbered(logs), "stability")


def plant_mark_too_early(base: Sample, rng: random.Random) -> Planted | None:
    """A member marks its own message stable as soon as it is sent, when no other has it; a global clock shows it."""
    member, position = _choose(base, rng, "send")
    if position is None:
        return None
    logs = _copy(base)
    _insert(logs, member, position + 1, "stable", _message(logs[member][position]))
    return Planted(_renumbered(logs), "stability")


def plant_delivery_in_next_view(base: Sample, rng: random.Random) -> Planted | None:
    """A member delivers the last message of a view only in the next one."""
    choices = []
    for member in _stayers(base):
        log = base.logs[member]
        views = [position for position, row in enumerate(log) if row.event == "view"]
        if len(views) < 2:
            continue
        handled = [at for at in range(views[0], views[1]) if log[at].event in ("deliver", "discard")]
        if handled and log[handled[-1]].event == "deliver":
            message = _message(log[handled[-1]])
            others = [m for m in _stayers(base) if m != member and _delivers(base.logs[m], message)]
            if others:
                choices.append((member, handled[-1], views[1], len(others)))
    if not choices:
        return None
    member, position, installed, pairs = rng.choice(choices)
    logs = _copy(base)
    logs[member].insert(installed, logs[member].pop(position))  # the view moves up by one, so this is right after it
    also = _swapped(base) | ({"agreement"} if base.shape.joiner else set())  # the joiner now owes it too, and lacks it
    return Planted(_renumbered(logs), "view-synchrony", violations=pairs, also=also)


PLANTS: dict[str, Callable[[Sample, random.Random], Planted | None]] = {
    "unsent delivery": plant_unsent_delivery,
    "repeated delivery": plant_repeated_delivery,
    "late repeat": plant_late_repeat,
    "repeated send": plant_repeated_send,
    "lost own message": plant_lost_own_message,
    "missing delivery": plant_missing_delivery,
    "fifo swap": plant_fifo_swap,
    "causal swap": plant_causal_swap,
    "receipt swap": plant_receipt_swap,
    "total swap": plant_total_swap,
    "uniform total swap": plant_uniform_total_swap,
    "uniform loss": plant_uniform_loss,
    "mark of unsent": plant_mark_of_unsent,
    "mark of unreceived": plant_mark_of_unreceived,
    "mark too early": plant_mark_too_early,
    "delivery in next view": plant_delivery_in_next_view,
}


def _message(row: Event) -> Message:
    assert row.sender is not None
    assert row.seq is not None
    return row.sender, row.seq


def _copy(base: Sample) -> Logs:
    return {member: list(log) for member, log in base.logs.items()}


def _stayers(base: Sample) -> list[int]:
    return [member for member in sorted(base.logs) if member != base.gone]


def _end_of(log: list[Event]) -> int:
    """Where a row can be appended: before the row that ends the log."""
    return len(log) - (log[-1].event in ("end", "crash", "leave"))


def _last_view(log: list[Event]) -> int:
    return max((at for at, row in enumerate(log) if row.event == "view"), default=-1)


def _delivers(log: list[Event], message: Message) -> bool:
    return any(row.event == "deliver" and _message(row) == message for row in log)


def _choose(base: Sample, rng: random.Random, event: str) -> tuple[int, int | None]:
    choices = [(m, at) for m, log in base.logs.items() for at, row in enumerate(log) if row.event == event]
    return rng.choice(choices) if choices else (0, None)


def _insert(logs: Logs, member: int, position: int, event: str, message: Message) -> None:
    """Insert a row that happens at the time of the one before it."""
    time_ns = logs[member][position - 1].time_ns if position else 0
    logs[member].insert(position, Event(RUN, member, 0, event, message[0], message[1], time_ns))


def _renumbered(logs: Logs) -> list[Event]:
    return [msgspec.structs.replace(row, step=step) for log in logs.values() for step, row in enumerate(log, start=1)]


def _causes(base: Sample, message: Message, events: tuple[str, ...]) -> set[Message]:
    """What the sender delivered or received between its previous send and this one."""
    causes: set[Message] = set()
    for row in base.logs[message[0]]:
        if row.event == "send":
            if _message(row) == message:
                return causes
            causes = set()
        elif row.event in events:
            causes.add(_message(row))
    raise AssertionError("it was sent")


def _concurrent(base: Sample, first: Message, second: Message) -> bool:
    """Whether two neighbours in one delivery order are of two senders and neither causes the other."""
    return first[0] != second[0] and first not in _causes(base, second, ("deliver", "receive"))


def _swapped(base: Sample) -> frozenset[str]:
    """What a delivery at another time may break too: without receipts, the marks rest on the deliveries."""
    return frozenset() if base.shape.receives else frozenset({"stability"})


def _swap(
    base: Sample, rng: random.Random, fits: Callable[[Message, Message], bool], members: list[int] | None = None
) -> tuple[list[Event], int, Message, Message] | None:
    """Exchange two deliveries that fit, with no delivery, discard, send or view between them at that member."""
    choices = []
    for member in members or sorted(base.logs):
        previous: int | None = None
        for position, row in enumerate(base.logs[member]):
            if row.event == "deliver":
                if previous is not None and fits(_message(base.logs[member][previous]), _message(row)):
                    choices.append((member, previous, position))
                previous = position
            elif row.event in ("discard", "send", "view"):
                previous = None
    if not choices:
        return None
    member, one, other = rng.choice(choices)
    logs = _copy(base)
    log = logs[member]
    first, second = _message(log[one]), _message(log[other])
    log[one] = msgspec.structs.replace(log[one], sender=second[0], seq=second[1])
    log[other] = msgspec.structs.replace(log[other], sender=first[0], seq=first[1])
    return _renumbered(logs), member, first, second


def _another_delivers_both(base: Sample, swap: tuple[list[Event], int, Message, Message]) -> bool:
    _, member, first, second = swap
    return any(
        _delivers(base.logs[other], first) and _delivers(base.logs[other], second)
        for other in _stayers(base)
        if other != member
    )
