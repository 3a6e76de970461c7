"""The naive checker: eight guarantees and four of brokers, one function each, in plain loops over plain dicts.

It is meant to be obviously right rather than fast, and is the oracle for everything faster: property tests, planted
violations, the Spark pipeline. `docs/trace-guarantees.md` is its specification; the words *view*, *follows*, *gone*,
*go on together*, *cut short* and *first* are used here as defined there. Where the trace contract is silent, the
readings are these:

- Every event before a member's first `view` row is in the initial view: number 0, all that have a log.
- A crash or a leave ends the member's stay in its view: what follows that view is then `GONE`, not a later view.
- Agreement asks that the other delivers or discards the message anywhere in its log; where is view-synchrony's matter.
- Causal order is checked on direct predecessors; a predecessor counts at a member only if the member belongs to the
  view in which it was sent; the sender's discards create no dependency.
- Total order compares the deliveries made in views from which the two members go on together, across these views.
- Stability: a sender holds what it sent; the marked number must have been sent; other numbers that nobody sent are no
  messages; a message is due from a member only if it belongs to the view in which the message was sent.
- View-synchrony honours discards as agreement does.
- What a cut-short log lacks is never a violation but leaves a guarantee undecided: sends (integrity, causal,
  stability), own deliveries (validity), deliveries and next views (agreement), receipts (stability). Where sends
  are not recorded at all, every message without one is such a case.
- `examined` counts: deliveries (integrity, fifo), pairs of a member and an own message (validity), first deliveries
  that oblige another member (agreement), first deliveries or discards with a predecessor that counts (causal), pairs
  of members with two common messages (total), marks (stability), pairs of members and views with a delivery
  (view-synchrony).
- A send with a topic is nothing for validity, a delivery with a topic obliges nobody in agreement: at-least-once stands
  in their place.
- Violations are listed in the order of (run, member, step), or of what stands in their place in the specification;
  the witnesses are the first of that list.

The rows must be readable ones, in the sense of the specification: `antiphon.trace.reader` puts the others aside.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import combinations, pairwise
from typing import Final, Literal, NamedTuple

import msgspec

from antiphon.errors import UsageError
from antiphon.trace.event import Event
from antiphon.trace.schema import ALL_GUARANTEES, EVENTS, GUARANTEES
from antiphon.trace.verdict import Message, Verdict, VerdictName, Witness, WitnessEvent

HappenedBefore = Literal["deliver", "receive"]


class InstalledView(NamedTuple):
    """A view is its number and its members."""

    number: int
    members: frozenset[int]


GONE: Final = "gone"
Following = InstalledView | Literal["gone"] | None  # the next view; crashed or left; nothing


class NaiveOptions(msgspec.Struct, frozen=True):
    """How to check, beyond the trace itself."""

    uniform: bool = False
    happened_before: HappenedBefore = "deliver"
    global_clock: bool = False
    unrecorded_sends: bool = False


class NaiveFindings(msgspec.Struct):
    """What one guarantee's check found in one run, violations in canonical order."""

    examined: int = 0
    undecided: bool = False
    violations: list[Witness] = msgspec.field(default_factory=list)
    lasting: int = 0  # how many of the violations no row that could not be read could undo


class History:
    """One member's log, read once from its first row to its last."""

    def __init__(self, member: int, rows: list[Event], initial: InstalledView) -> None:
        self.member = member
        self.rows = rows
        self.view_at: list[InstalledView] = []  # by position in rows
        self.follows: dict[InstalledView, Following] = {initial: None}
        self.installed_at: dict[InstalledView, int] = {}  # step; the initial view is not installed
        # message -> position of its first row of that kind
        self.sends: dict[Message, int] = {}
        self.receipts: dict[Message, int] = {}
        self.deliveries: dict[Message, int] = {}
        self.discards: dict[Message, int] = {}
        self.has_end = False
        self.has_gone = False
        firsts = {
            "send": self.sends,
            "receive": self.receipts,
            "deliver": self.deliveries,
            "discard": self.discards,
        }

        current = initial
        for position, row in enumerate(rows):
            if row.event == "view":
                members = initial.members if row.members is None else frozenset(row.members)
                installed = InstalledView(row.view, members)
                if installed != current:
                    if self.follows[current] is None:
                        self.follows[current] = installed
                    current = installed
                    self.follows[current] = None
                    self.installed_at[current] = row.step
            elif row.event in ("crash", "leave"):
                self.has_gone = True
                if self.follows[current] is None:
                    self.follows[current] = GONE
            elif row.event == "end":
                self.has_end = True
            elif row.event in firsts:
                firsts[row.event].setdefault(message_of(row), position)
            self.view_at.append(current)

    def handles(self, message: Message) -> bool:
        """Whether it delivers or discards the message anywhere."""
        return message in self.deliveries or message in self.discards

    def first_handling(self, message: Message) -> int | None:
        """Where it first delivers or discards the message."""
        positions = [first[message] for first in (self.deliveries, self.discards) if message in first]
        return min(positions, default=None)

    def holds_from(self, message: Message) -> list[int]:
        """Where it first receives and where it first delivers the message, as far as it does."""
        return [first[message] for first in (self.receipts, self.deliveries) if message in first]

    def goes_on(self, view: InstalledView) -> bool:
        """Whether it was in the view and neither crashed nor left in it."""
        return view in self.follows and self.follows[view] != GONE

    def show(self, position: int, elsewhere: bool = False) -> WitnessEvent:
        """Turn a row into an event of a witness, with its member where the witness is another's."""
        row = self.rows[position]
        return WitnessEvent(row.step, row.event, row.sender, row.seq, self.member if elsewhere else None)


class RunLogs:
    """All logs of one run."""

    def __init__(self, name: str, rows: list[Event], implied_own_deliveries: bool, ends: bool = False) -> None:
        self.name = name
        by_member: dict[int, list[Event]] = defaultdict(list)
        for row in rows:
            by_member[row.member].append(row)
        initial = InstalledView(0, frozenset(by_member))
        self.histories: dict[int, History] = {}
        for member in sorted(by_member):
            log = sorted(by_member[member], key=lambda row: row.step)
            if implied_own_deliveries:
                log = with_own_deliveries(log)
            self.histories[member] = History(member, log, initial)

        self.members = set(initial.members)
        for history in self.histories.values():
            for view in history.follows:
                self.members |= view.members
        self.has_end = ends or any(history.has_end for history in self.histories.values())

    def cut_short(self, member: int) -> bool:
        """Whether the tail of this member's log is lacking."""
        if not self.has_end or member not in self.members:
            return False
        history = self.histories.get(member)
        return history is None or not (history.has_end or history.has_gone)

    def was_sent(self, message: Message) -> bool:
        """Whether there is a send of the message."""
        sender = self.histories.get(message[0])
        return sender is not None and message in sender.sends

    def view_sent_in(self, message: Message) -> InstalledView:
        """The view in which its sender sent the message."""
        sender = self.histories[message[0]]
        return sender.view_at[sender.sends[message]]

    def witness(self, member: int, events: list[WitnessEvent], why: str) -> Witness:
        """A witness of this run."""
        return Witness(self.name, member, events, why)


def message_of(row: Event) -> Message:
    """The message that a row is about."""
    if row.sender is None or row.seq is None:
        raise ValueError(f"a {row.event} row needs sender and seq: {row}")
    return row.sender, row.seq


def named(message: Message) -> str:
    """Name a message in a sentence."""
    return f"message {message[1]} of {message[0]}"


def with_own_deliveries(log: list[Event]) -> list[Event]:
    """Suppose a delivery right after each first send whose message its sender does not deliver or discard itself."""
    handled = {message_of(row) for row in log if row.event in ("deliver", "discard")}
    completed: list[Event] = []
    for row in log:
        completed.append(row)
        if row.event == "send" and message_of(row) not in handled:
            handled.add(message_of(row))
            completed.append(msgspec.structs.replace(row, event="deliver", bytes=None))
    return completed


def go_on_together(one: History, other: History, view: InstalledView) -> bool:
    """Whether both were in the view and the same view follows at both, or nothing at both."""
    if view not in one.follows or view not in other.follows:
        return False
    return one.follows[view] == other.follows[view] and one.follows[view] != GONE


def check_integrity(run: RunLogs, options: NaiveOptions) -> NaiveFindings:
    """Every delivery has exactly one matching send; no message is delivered twice, no number used twice."""
    found = NaiveFindings()
    for member, history in run.histories.items():
        for position, row in enumerate(history.rows):
            if row.event == "deliver":
                found.examined += 1
                message = message_of(row)
                first = history.deliveries[message]
                if position != first:
                    events = [history.show(first), history.show(position)]
                    why = f"member {member} delivers {named(message)} again"
                    found.violations.append(run.witness(member, events, why))
                    found.lasting += 1
                elif not run.was_sent(message):
                    if options.unrecorded_sends or run.cut_short(message[0]):
                        found.undecided = True
                    else:
                        why = f"member {member} delivers {named(message)}, which was never sent"
                        found.violations.append(run.witness(member, [history.show(position)], why))
            elif row.event == "send":
                message = message_of(row)
                first = history.sends[message]
                if position != first:
                    events = [history.show(first), history.show(position)]
                    why = f"member {member} uses its number {message[1]} again"
                    found.violations.append(run.witness(member, events, why))
                    found.lasting += 1
    return found


def check_validity(run: RunLogs, options: NaiveOptions) -> NaiveFindings:
    """A member that neither crashed nor left delivers (or discards) what it sent."""
    found = NaiveFindings()
    for member, history in run.histories.items():
        if history.has_gone:
            continue
        for message, position in history.sends.items():  # in the order of the sends
            if history.rows[position].topic is not None:
                continue
            found.examined += 1
            if history.handles(message):
                continue
            if run.cut_short(member):
                found.undecided = True
            else:
                why = f"member {member} neither delivers nor discards its own message {message[1]}"
                found.violations.append(run.witness(member, [history.show(position)], why))
    return found


def check_agreement(run: RunLogs, options: NaiveOptions) -> NaiveFindings:
    """If a member delivers a message in a view, so does (or discards it) every member that goes on together with it."""
    found = NaiveFindings()
    missing: dict[tuple[int, Message], Witness] = {}
    for deliverer in run.histories.values():
        for message, position in deliverer.deliveries.items():
            if deliverer.rows[position].topic is not None:
                continue
            view = deliverer.view_at[position]
            obliges_another = False
            for member in run.members - {deliverer.member}:
                owed = owes(run, member, deliverer, view, options)
                obliges_another |= owed
                history = run.histories.get(member)
                if history is not None and history.handles(message):
                    continue
                if owed and not run.cut_short(member):
                    why = f"member {member} neither delivers nor discards {named(message)}, "
                    why += f"which member {deliverer.member} delivers in view {view.number}"
                    witness = run.witness(member, [deliverer.show(position, elsewhere=True)], why)
                    missing.setdefault((member, message), witness)  # the smallest deliverer comes first, and stays
                elif owed or might_owe(run, member, deliverer, view, options):
                    found.undecided = True
            found.examined += obliges_another
    found.violations = [missing[key] for key in sorted(missing)]
    return found


def owes(run: RunLogs, member: int, deliverer: History, view: InstalledView, options: NaiveOptions) -> bool:
    """Whether what the deliverer delivers in the view obliges the member."""
    history = run.histories.get(member)
    if history is None:
        return False
    if options.uniform and deliverer.follows[view] == GONE:
        return history.goes_on(view)
    return go_on_together(deliverer, history, view)


def might_owe(run: RunLogs, member: int, deliverer: History, view: InstalledView, options: NaiveOptions) -> bool:
    """Whether a lost tail hides if the member goes on together with the deliverer, from the view of its delivery."""
    history = run.histories.get(member)
    following = deliverer.follows[view]
    if run.cut_short(member):
        if history is not None and view in history.follows:
            still_there = history.follows[view] is None
        else:
            still_there = member in view.members  # its log may end before it installs the view
        if isinstance(following, InstalledView):
            return still_there and member in following.members
        return still_there and (following is None or options.uniform)
    if run.cut_short(deliverer.member) and following is None and history is not None:
        next_view = history.follows.get(view)
        return isinstance(next_view, InstalledView) and deliverer.member in next_view.members
    return False


def check_fifo(run: RunLogs, options: NaiveOptions) -> NaiveFindings:
    """Each member delivers each sender's messages in the order of their numbers."""
    found = NaiveFindings()
    for member, history in run.histories.items():
        highest: dict[int, tuple[int, int]] = {}  # sender -> (highest number so far, where it first came)
        for position, row in enumerate(history.rows):
            if row.event != "deliver":
                continue
            found.examined += 1
            sender, number = message_of(row)
            if sender not in highest or number > highest[sender][0]:
                highest[sender] = (number, position)
            elif number < highest[sender][0]:
                events = [history.show(highest[sender][1]), history.show(position)]
                why = f"member {member} delivers {named((sender, number))} after number {highest[sender][0]}"
                found.violations.append(run.witness(member, events, why))
    found.lasting = len(found.violations)
    return found


def direct_predecessors(run: RunLogs, history: History, options: NaiveOptions) -> dict[Message, dict[Message, int]]:
    """For each message of this sender, its direct predecessors, and where in the sender's log each became one.

    They are the sender's previous message and what the sender delivered since that send (with receipts: or received).
    """
    predecessors: dict[Message, dict[Message, int]] = {}
    since_previous: dict[Message, int] = {}
    for position, row in enumerate(history.rows):
        if row.event == "send" and history.sends[message_of(row)] == position:
            message = message_of(row)
            predecessors[message] = {m: at for m, at in since_previous.items() if m != message and run.was_sent(m)}
            since_previous = {message: position}
        elif (row.event == "deliver" and history.deliveries[message_of(row)] == position) or (
            options.happened_before == "receive"
            and row.event == "receive"
            and history.receipts[message_of(row)] == position
        ):
            since_previous.setdefault(message_of(row), position)
    return predecessors


def check_causal(run: RunLogs, options: NaiveOptions) -> NaiveFindings:
    """If sending m1 happened before sending m2, no member delivers or discards m2 before it has done so with m1."""
    found = NaiveFindings()
    predecessors: dict[Message, dict[Message, int]] = {}
    for history in run.histories.values():
        predecessors.update(direct_predecessors(run, history, options))

    for member, history in run.histories.items():
        handled: set[Message] = set()
        for position, row in enumerate(history.rows):
            if row.event not in ("deliver", "discard") or message_of(row) in handled:
                continue
            message = message_of(row)
            if message in predecessors:
                due = [m for m in predecessors[message] if member in run.view_sent_in(m).members]
                found.examined += bool(due)
                lacking = [m for m in due if m not in handled]
                if lacking:
                    cause = min(lacking)
                    sender = run.histories[message[0]]
                    elsewhere = sender is not history
                    events = [
                        sender.show(predecessors[message][cause], elsewhere),
                        sender.show(sender.sends[message], elsewhere),
                        history.show(position),
                    ]
                    later = history.first_handling(cause)
                    if later is not None:
                        events.append(history.show(later))
                    why = f"member {member} {row.event}s {named(message)} before it delivers or discards "
                    why += f"{named(cause)}, which happened before it"
                    found.violations.append(run.witness(member, events, why))
            elif options.unrecorded_sends or run.cut_short(message[0]):
                found.undecided = True
            handled.add(message)
    return found


def check_total(run: RunLogs, options: NaiveOptions) -> NaiveFindings:
    """No two members that go on together from the view of their deliveries deliver two messages in different orders."""
    found = NaiveFindings()
    for one, other in combinations(run.histories.values(), 2):

        def counted(history: History, one: History = one, other: History = other) -> list[Message]:
            """The messages it delivers in views from which the two go on together, in its order."""
            return [
                message
                for message, position in history.deliveries.items()
                if options.uniform or go_on_together(one, other, history.view_at[position])
            ]

        position = {message: index for index, message in enumerate(counted(other))}
        common = [message for message in counted(one) if message in position]
        if len(common) < 2:
            continue
        found.examined += 1
        for first, second in pairwise(common):
            if position[first] > position[second]:
                events = [
                    one.show(one.deliveries[first]),
                    one.show(one.deliveries[second]),
                    other.show(other.deliveries[second], elsewhere=True),
                    other.show(other.deliveries[first], elsewhere=True),
                ]
                why = f"member {one.member} delivers {named(first)} before {named(second)}, "
                why += f"member {other.member} delivers them the other way round"
                found.violations.append(run.witness(one.member, events, why))
                break
    return found


def check_stability(run: RunLogs, options: NaiveOptions) -> NaiveFindings:
    """When a member marks (sender, seq) stable, every member of the view has received each message up to it."""
    found = NaiveFindings()
    for member, history in run.histories.items():
        for position, row in enumerate(history.rows):
            if row.event != "stable":
                continue
            found.examined += 1
            wrong, undecided = judge_mark(run, history, position, options)
            if wrong is not None:
                found.violations.append(run.witness(member, *wrong))
            elif undecided:
                found.undecided = True
    return found


def judge_mark(
    run: RunLogs, history: History, position: int, options: NaiveOptions
) -> tuple[tuple[list[WitnessEvent], str] | None, bool]:
    """Say what is wrong with one mark (its witness) or else whether that is undecided."""
    marker, row = history.member, history.rows[position]
    mark = message_of(row)
    undecided = False
    if not run.was_sent(mark):
        if not options.unrecorded_sends and not run.cut_short(mark[0]):
            why = f"member {marker} marks {named(mark)} stable, which was never sent"
            return ([history.show(position)], why), False
        undecided = True

    sender = run.histories.get(mark[0])
    covered = sorted(m for m in sender.sends if m <= mark) if sender is not None else []
    for message in covered:
        due = history.view_at[position].members & run.view_sent_in(message).members
        for member in sorted(due - {mark[0]}):  # a sender holds what it sent
            holder = run.histories.get(member)
            held = [] if holder is None else holder.holds_from(message)
            if holder is None or not held:
                if not run.cut_short(member):
                    why = f"member {marker} marks {named(mark)} stable, "
                    why += f"but member {member} never receives {named(message)}"
                    return ([history.show(position)], why), False
                undecided = True
            elif options.global_clock and all(later(holder.rows[at], row) for at in held):
                why = f"member {marker} marks {named(mark)} stable before member {member} receives {named(message)}"
                return ([history.show(position), holder.show(min(held), holder is not history)], why), False
    return None, undecided


def later(one: Event, other: Event) -> bool:
    """Whether one happened later by the clock that both members share, as far as it was recorded."""
    return one.time_ns is not None and other.time_ns is not None and one.time_ns > other.time_ns


def check_view_synchrony(run: RunLogs, options: NaiveOptions) -> NaiveFindings:
    """Two members that install the same two consecutive views deliver the same messages in the first."""
    found = NaiveFindings()
    for one, other in combinations(run.histories.values(), 2):
        for view in sorted(one.installed_at, key=one.installed_at.__getitem__):
            following = one.follows[view]
            if (
                view not in other.installed_at
                or not isinstance(following, InstalledView)
                or following != other.follows[view]
            ):
                continue
            delivered = {h.member: delivered_in(h, view) for h in (one, other)}
            if not delivered[one.member] and not delivered[other.member]:
                continue
            found.examined += 1
            differing = {
                message: (deliverer, lacking)
                for deliverer, lacking in ((one, other), (other, one))
                for message in delivered[deliverer.member] - delivered[lacking.member] - discarded_in(lacking, view)
            }
            if differing:
                message = min(differing)
                deliverer, lacking = differing[message]
                events = [deliverer.show(deliverer.deliveries[message], deliverer is not one)]
                why = f"member {deliverer.member} delivers {named(message)} in view {view.number}, "
                why += f"member {lacking.member} does not, and both install view {following.number} next"
                found.violations.append(run.witness(one.member, events, why))
    return found


def delivered_in(history: History, view: InstalledView) -> set[Message]:
    """The messages whose first delivery at the member is in the view."""
    return {message for message, position in history.deliveries.items() if history.view_at[position] == view}


def discarded_in(history: History, view: InstalledView) -> set[Message]:
    """The messages that the member discards in the view."""
    return {
        message_of(row)
        for row, at in zip(history.rows, history.view_at, strict=True)
        if row.event == "discard" and at == view
    }


Consumer = tuple[int, int, str]  # a member by itself (0, member, ""), or a group (1, 0, name)


def consumer_of(row: Event) -> Consumer:
    """For whom a client of a broker does something."""
    return (0, row.member, "") if row.group is None else (1, 0, row.group)


def named_consumer(consumer: Consumer) -> str:
    """Name a consumer in a sentence."""
    return f"group {consumer[2]}" if consumer[0] else f"member {consumer[1]}"


def is_taken(row: Event) -> bool:
    """Whether a consumer takes a message by this row."""
    return row.event in ("deliver", "discard") and row.topic is not None


def is_delivered(row: Event) -> bool:
    """Whether a consumer is given a message by this row."""
    return row.event == "deliver" and row.topic is not None


def said(row: Event, *kinds: str) -> bool:
    """Whether a broker and its client say one of these to each other."""
    return row.event == "control" and row.detail in kinds


class Consumption:
    """All consumers of a run: what they take, what they subscribed to, and who they are."""

    def __init__(self, run: RunLogs) -> None:
        self.run = run
        self.taken: dict[Consumer, set[Message]] = defaultdict(set)
        self.delivered: dict[Consumer, set[Message]] = defaultdict(set)
        self.patterns: dict[Consumer, set[str]] = defaultdict(set)
        self.members: dict[Consumer, set[int]] = defaultdict(set)
        self.done: dict[Consumer, dict[int, bool]] = defaultdict(dict)
        self.acknowledged: dict[Message, tuple[History, int]] = {}
        self.topics: dict[Message, str] = {}
        for history in run.histories.values():
            for position, row in enumerate(history.rows):
                self._add(history, position, row)
        for history in run.histories.values():
            for message, position in history.sends.items():
                topic = history.rows[position].topic
                if topic is not None:
                    self.topics[message] = topic

    def _add(self, history: History, position: int, row: Event) -> None:
        consumer = consumer_of(row)
        if is_taken(row) or said(row, "subscribed", "subscribed-late"):
            self.members[consumer].add(row.member)
            self.done[consumer][row.member] = False
        if is_taken(row):
            self.taken[consumer].add(message_of(row))
        if is_delivered(row):
            self.delivered[consumer].add(message_of(row))
            assert row.topic is not None
            self.topics.setdefault(message_of(row), row.topic)
        if said(row, "subscribed") and row.topic is not None:
            self.patterns[consumer].add(row.topic)
        if said(row, "acknowledged") and row.sender is not None and row.seq is not None:
            self.acknowledged.setdefault(message_of(row), (history, position))
        if said(row, "unsubscribed") and row.member in self.members.get(consumer, ()):
            self.done[consumer][row.member] = True
        if row.event in ("leave", "crash"):
            for of_consumer in self.done.values():
                if row.member in of_consumer:
                    of_consumer[row.member] = True

    def owes(self, consumer: Consumer, message: Message) -> bool:
        """Whether the consumer is to be given the message."""
        sender, number = message
        topic = self.topics.get(message)
        if topic is None:
            return False
        numbers = [other[1] for other in self.taken[consumer] if other[0] == sender and self.topics.get(other) == topic]
        begun = any(covers(pattern, topic) for pattern in self.patterns[consumer])
        if not begun and not any(other <= number for other in numbers):
            return False
        over = all(self.done[consumer].values())
        return not over or any(other >= number for other in numbers)

    def cut_short(self, consumer: Consumer) -> bool:
        """Whether the tail of the log of one of its members is lacking."""
        return any(self.run.cut_short(member) for member in self.members[consumer])

    def first_delivery(self, message: Message, by_others_than: Consumer) -> tuple[History, int, Consumer]:
        """Find where another consumer is given the message, and which."""
        for history in self.run.histories.values():
            for position, row in enumerate(history.rows):
                if is_delivered(row) and message_of(row) == message and consumer_of(row) != by_others_than:
                    return history, position, consumer_of(row)
        raise AssertionError("another consumer is given it")


def covers(pattern: str, topic: str) -> bool:
    """Whether what is subscribed to covers a topic."""
    if pattern == topic:
        return True
    wanted, levels = pattern.replace("/", ".").split("."), topic.replace("/", ".").split(".")
    for position, level in enumerate(wanted):
        if level in ("#", ">") and position == len(wanted) - 1:
            return True
        if position == len(levels) or level not in ("*", "+", levels[position]):
            return False
    return len(wanted) == len(levels)


def check_at_least_once(run: RunLogs, options: NaiveOptions) -> NaiveFindings:
    """What the broker acknowledged, or delivered to one consumer, every consumer that owes it takes."""
    found = NaiveFindings()
    consumption = Consumption(run)
    for message in sorted(consumption.topics):
        for consumer in sorted(consumption.members):
            acknowledged = message in consumption.acknowledged
            by_another = any(
                message in messages for other, messages in consumption.delivered.items() if other != consumer
            )
            if not (acknowledged or by_another) or not consumption.owes(consumer, message):
                continue
            found.examined += 1
            if message in consumption.taken[consumer]:
                continue
            if consumption.cut_short(consumer):
                found.undecided = True
                continue
            why = f"{named_consumer(consumer)} never takes {named(message)}, which "
            if acknowledged:
                history, position = consumption.acknowledged[message]
                why += "the broker acknowledged"
            else:
                history, position, other = consumption.first_delivery(message, consumer)
                why += f"{named_consumer(other)} is given"
            member = min(consumption.members[consumer])
            events = [history.show(position, elsewhere=history.member != member)]
            found.violations.append(run.witness(member, events, why))
    return found


def check_at_most_once(run: RunLogs, options: NaiveOptions) -> NaiveFindings:
    """No consumer is given a message twice."""
    return repeated_deliveries(run, lambda row: True, "again")


def check_redelivery(run: RunLogs, options: NaiveOptions) -> NaiveFindings:
    """Who is given a message again is told so."""
    return repeated_deliveries(run, lambda row: not row.redelivered, "again and is not told so")


def repeated_deliveries(run: RunLogs, counts: Callable[[Event], bool], words: str) -> NaiveFindings:
    """Of the deliveries that count, each consumer has at most one of each message."""
    found = NaiveFindings()
    first: dict[tuple[Consumer, Message], tuple[History, int]] = {}
    for member, history in run.histories.items():
        for position, row in enumerate(history.rows):
            if not is_delivered(row):
                continue
            found.examined += 1
            if not counts(row):
                continue
            consumer, message = consumer_of(row), message_of(row)
            before, at = first.setdefault((consumer, message), (history, position))
            if (before, at) != (history, position):
                events = [before.show(at, elsewhere=before.member != member), history.show(position)]
                why = f"{named_consumer(consumer)} is given {named(message)} {words}"
                found.violations.append(run.witness(member, events, why))
                found.lasting += 1
    return found


def place_of(row: Event) -> int:
    """What a partition's messages are in the order of: the broker's offsets or, where a row has none, numbers."""
    return message_of(row)[1] if row.partition_offset is None else row.partition_offset


def check_partition_order(run: RunLogs, options: NaiveOptions) -> NaiveFindings:
    """Each member is given the messages of a partition in its order, what comes again aside."""
    found = NaiveFindings()
    for member, history in run.histories.items():
        had: set[tuple[Consumer, Message]] = set()
        highest: dict[tuple[Consumer, int | None, str | None, str | None], int] = {}  # position
        for position, row in enumerate(history.rows):
            if not is_delivered(row):
                continue
            consumer, message = consumer_of(row), message_of(row)
            is_first = (consumer, message) not in had
            had.add((consumer, message))
            if not is_first or row.redelivered:
                continue
            found.examined += 1
            placed = row.partition_offset is not None
            stream = (consumer, None if placed else message[0], row.topic, row.partition)
            before = highest.setdefault(stream, position)
            here, reached = (place_of(history.rows[at]) for at in (position, before))
            if here < reached:
                where = f"{row.topic}" if row.partition is None else f"{row.topic} partition {row.partition}"
                after = f", offset {here}, after offset {reached}" if placed else f" after number {reached}"
                why = f"member {member} is given {named(message)}{after}, both in {where}"
                found.violations.append(run.witness(member, [history.show(before), history.show(position)], why))
            elif here > reached:
                highest[stream] = position
    return found


CHECKS: Final[dict[str, Callable[[RunLogs, NaiveOptions], NaiveFindings]]] = {
    "integrity": check_integrity,
    "validity": check_validity,
    "agreement": check_agreement,
    "fifo": check_fifo,
    "causal": check_causal,
    "total": check_total,
    "stability": check_stability,
    "view-synchrony": check_view_synchrony,
    "at-least-once": check_at_least_once,
    "at-most-once": check_at_most_once,
    "partition-order": check_partition_order,
    "redelivery": check_redelivery,
}

# What a row that could not be read might have changed, by its event.
_BY_END: Final = frozenset({"integrity", "validity", "agreement", "causal", "stability", "at-least-once"})
_BY_GONE: Final = _BY_END | {"total", "view-synchrony"}
AFFECTED_BY: Final[dict[str, frozenset[str]]] = {
    "send": frozenset({"integrity", "validity", "causal", "stability", "at-least-once"}),
    "receive": frozenset({"causal", "stability"}),
    "deliver": frozenset(ALL_GUARANTEES),
    "discard": frozenset({"validity", "agreement", "causal", "view-synchrony", "at-least-once"}),
    "stable": frozenset({"stability"}),
    "control": frozenset({"at-least-once"}),
    "view": frozenset({"agreement", "causal", "total", "stability", "view-synchrony"}),
    "leave": _BY_GONE,
    "crash": _BY_GONE,
    "end": _BY_END,
}
assert set(AFFECTED_BY) == set(EVENTS)
assert tuple(CHECKS) == ALL_GUARANTEES


def affected_by(event: str | None, happened_before: HappenedBefore) -> frozenset[str]:
    """Name the guarantees that a row with this event could affect; all if its event cannot be read."""
    if event not in AFFECTED_BY:
        return frozenset(ALL_GUARANTEES)
    if event == "receive" and happened_before == "deliver":
        return frozenset({"stability"})
    return AFFECTED_BY[event]


def check(
    events: Iterable[Event],
    *,
    guarantees: Collection[str] | None = None,
    uniform: bool = False,
    happened_before: HappenedBefore = "deliver",
    implied_own_deliveries: bool = False,
    unrecorded_sends: bool = False,
    witnesses: int = 10,
    global_clock: bool | Collection[str] = False,
    ends: bool = False,
    unreadable: Iterable[str | None] = (),
) -> dict[str, Verdict]:
    """Check the guarantees on a whole trace and give a verdict on each.

    `global_clock` may name the runs that have one; `ends`: every log that is whole has an `end`; `unreadable` has the
    event (or None) of each row put aside.
    """
    events = list(events)
    if guarantees is None:
        guarantees = ALL_GUARANTEES if any(event.topic is not None for event in events) else GUARANTEES
    names = [name for name in ALL_GUARANTEES if name in guarantees]
    if len(names) < len(set(guarantees)):
        wrong = min(set(guarantees) - set(ALL_GUARANTEES))
        raise UsageError(f"no guarantee is called {wrong!r}; the guarantees are {', '.join(ALL_GUARANTEES)}")
    affected = {name for event in unreadable for name in affected_by(event, happened_before)}

    total = {name: NaiveFindings() for name in names}
    for run in runs_of(events, implied_own_deliveries, ends):
        has_global_clock = global_clock if isinstance(global_clock, bool) else run.name in global_clock
        options = NaiveOptions(uniform, happened_before, has_global_clock, unrecorded_sends)
        for name in names:
            found = CHECKS[name](run, options)
            total[name].examined += found.examined
            total[name].undecided |= found.undecided
            total[name].violations += found.violations
            total[name].lasting += found.lasting

    verdicts: dict[str, Verdict] = {}
    for name, found in total.items():
        decision = "unknown" if name in affected and not found.lasting else decide(found)
        verdicts[name] = Verdict(decision, found.examined, len(found.violations), found.violations[:witnesses])
    return verdicts


def decide(found: NaiveFindings) -> VerdictName:
    """Give the verdict; never a `holds` for which nothing was examined."""
    if found.violations:
        return "violated"
    if found.undecided or not found.examined:
        return "unknown"
    return "holds"


def runs_of(events: Iterable[Event], implied_own_deliveries: bool, ends: bool = False) -> Iterator[RunLogs]:
    """Part the events by run, in the order of the runs' names."""
    by_run: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_run[event.run].append(event)
    for name in sorted(by_run):
        yield RunLogs(name, by_run[name], implied_own_deliveries, ends)
