"""Traces made to be awkward, and the eight guarantees once more in a few lines each, from their definitions alone."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from itertools import combinations
from typing import Any

from antiphon.trace.event import Event

INT32 = (-(2**31), 2**31 - 1)
Message = tuple[int, int]


def a_group(seed: int, run: str) -> list[Event]:
    """A small group at work, with faults: crashes, leaves, partitions with views of one number, losses, reorderings.

    Unlike chaos it is mostly right, so that guarantees hold often enough to be broken one at a time.
    """
    rng = random.Random(seed)
    ids = rng.sample([*range(1, 9), 0, -1, *INT32, 10**9], rng.randint(1, 5))
    gap = rng.choice([1, 1, 1, 10**12])
    logs: dict[int, list[dict[str, Any]]] = {one: [] for one in ids}
    number = dict.fromkeys(ids, 0)
    views = rng.random() < 0.5
    view: dict[int, tuple[int, tuple[int, ...]] | None] = dict.fromkeys(ids)
    gone: set[int] = set()

    def row(member: int, event: str, sender: int | None = None, seq: int | None = None, **more: Any) -> None:
        logs[member].append({"event": event, "sender": sender, "seq": seq, **more})

    def install(side: list[int], count: int) -> None:
        for one in side:
            view[one] = (count, tuple(sorted(side)))
            row(one, "view", view=count, members=rng.sample(side, len(side)))

    if views:
        install(ids, 1)
    for count in range(2, rng.randint(2, 6)):
        pending: dict[Any, list[Message]] = defaultdict(list)
        for _ in range(rng.randint(0, 8)):
            sender = rng.choice(ids)
            if sender in gone:
                continue
            number[sender] += rng.choice([1, 1, gap])
            row(sender, "send", sender, number[sender])
            side = view[sender]
            pending[side].append((sender, number[sender]))
            if rng.random() < 0.6:
                deliver(rng, ids, gone, view, pending, side, row)
        for side in list(pending):
            deliver(rng, ids, gone, view, pending, side, row)
        for one in [one for one in ids if one not in gone]:
            if rng.random() < 0.2:
                for s in ids:
                    if number[s]:
                        row(one, "stable", s, max(1, number[s] - rng.choice([0, 0, 1, gap])))
            if rng.random() < 0.08:
                row(one, rng.choice(["crash", "leave"]))
                gone.add(one)
        staying = [one for one in ids if one not in gone]
        if views and staying:
            cut = rng.randint(0, len(staying)) if rng.random() < 0.3 else 0
            rng.shuffle(staying)
            for side in (staying[:cut], staying[cut:]):
                if side:
                    install(side, count)  # two sides of a partition use one number
    if rng.random() < 0.4:
        for one in ids:
            if one not in gone and rng.random() < 0.9:
                row(one, "end")
    break_something(rng, logs)
    return as_events(rng, run, logs)


def deliver(rng: random.Random, ids: list[int], gone: set[int], view: Any, pending: Any, side: Any, row: Any) -> None:
    """Everyone in the view delivers what is pending there, in one order."""
    for one in ids:
        if one in gone or view[one] != side:
            continue
        for message in pending[side]:
            if rng.random() < 0.3:
                row(one, "receive", *message)
            row(one, "discard" if rng.random() < 0.02 else "deliver", *message)
    pending[side] = []


def break_something(rng: random.Random, logs: dict[int, list[dict[str, Any]]]) -> None:
    """Up to three small damages."""
    for _ in range(rng.choice([0, 0, 1, 1, 2, 3])):
        log = logs[rng.choice(list(logs))]
        if not log:
            continue
        at = rng.randrange(len(log))
        match rng.randrange(6):
            case 0:
                del log[at]
            case 1:
                log.insert(rng.randint(0, len(log)), dict(log[at]))
            case 2:
                other = rng.randrange(len(log))
                log[at], log[other] = log[other], log[at]
            case 3:
                if log[at]["seq"]:
                    log[at] = {**log[at], "seq": log[at]["seq"] + rng.choice([1, 5, 2**40])}
            case 4:
                del log[at:]
            case _:
                if log[at]["event"] == "deliver":
                    log[at] = {**log[at], "event": rng.choice(["receive", "discard", "control"])}


def as_events(rng: random.Random, run: str, logs: dict[int, list[dict[str, Any]]]) -> list[Event]:
    """The logs as rows in no order at all, with clocks that run backwards."""
    events = []
    for member, log in logs.items():
        step = rng.choice([0, 1, -(2**62), 2**40])
        for fields in log:
            step += rng.choice([1, 1, 3, 2**33])
            if fields["event"] == "send" and fields["sender"] != member:
                continue
            time_ns = rng.choice([None, rng.randint(0, 50), rng.randint(-(2**60), 2**60)])
            events.append(Event(run, member, step, time_ns=time_ns, **fields))
    rng.shuffle(events)
    return events


class Brute:
    """Counts of violations by definition, for one run in which no log was cut short."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.logs: dict[int, list[Event]] = defaultdict(list)
        for event in sorted(events, key=lambda event: event.step):
            self.logs[event.member].append(event)
        initial = (0, frozenset(self.logs))
        self.sent: dict[Message, tuple[int, Any]] = {}  # -> place of the first send in its sender's log, and its view
        self.did: dict[int, dict[str, dict[Message, int]]] = {}  # member -> event -> message -> place of the first
        self.view_at: dict[int, list[Any]] = {}
        self.after: dict[int, dict[Any, Any]] = {}
        for member, log in self.logs.items():
            did: dict[str, dict[Message, int]] = defaultdict(dict)
            current: Any = initial
            after: dict[Any, Any] = {current: "nothing"}
            views = []
            for place, row in enumerate(log):
                if row.event == "view":
                    members = initial[1] if row.members is None else frozenset(row.members)
                    fresh = (row.view, members)
                    if fresh != current:
                        after[current] = fresh if after[current] == "nothing" else after[current]
                        after[fresh] = "nothing"
                        current = fresh
                elif row.event in ("crash", "leave") and after[current] == "nothing":
                    after[current] = "gone"
                views.append(current)
                if row.seq is not None and row.sender is not None:
                    did[row.event].setdefault((row.sender, row.seq), place)
            self.did[member], self.view_at[member], self.after[member] = did, views, after
            for message, place in did["send"].items():
                self.sent[message] = (place, views[place])

    def cut_short(self) -> bool:
        """Whether some log lacks its tail, so that this class cannot judge."""
        names = {member: {row.event for row in log} for member, log in self.logs.items()}
        named = {one for after in self.after.values() for _, members in after for one in members}
        if not any("end" in events for events in names.values()):
            return False
        return any(not names.get(one, set()) & {"end", "leave", "crash"} for one in named)

    def handled(self, member: int) -> dict[Message, int]:
        first = dict(self.did[member]["deliver"])
        for message, place in self.did[member]["discard"].items():
            first[message] = min(place, first.get(message, place))
        return first

    def integrity(self) -> int:
        rows = [(row.event, (row.sender, row.seq), q) for q, log in self.logs.items() for row in log]
        deliveries = [(message, q) for event, message, q in rows if event == "deliver"]
        sends = [message for event, message, _ in rows if event == "send"]
        unsent = sum(message not in self.sent for message, _ in set(deliveries))
        return unsent + len(deliveries) - len(set(deliveries)) + len(sends) - len(set(sends))

    def validity(self) -> int:
        return sum(
            message not in self.handled(q)
            for q, log in self.logs.items()
            if not {row.event for row in log} & {"crash", "leave"}
            for message in self.did[q]["send"]
        )

    def together(self, p: int, q: int, view: Any) -> bool:
        mine, its = self.after[p].get(view), self.after[q].get(view)
        return mine is not None and mine == its != "gone"

    def agreement(self) -> int:
        return len(
            {
                (q, message)
                for p in self.logs
                for message, place in self.did[p]["deliver"].items()
                for q in self.logs
                if q != p and self.together(p, q, self.view_at[p][place]) and message not in self.handled(q)
            }
        )

    def fifo(self) -> int:
        late = 0
        for log in self.logs.values():
            delivered = [(row.sender, row.seq) for row in log if row.event == "deliver"]
            late += sum(
                any(s == sender and k > seq for s, k in delivered[:i]) for i, (sender, seq) in enumerate(delivered)
            )
        return late

    def causal_is_violated(self) -> bool:
        """By the transitive relation itself, where nobody records a view."""
        past: dict[Message, set[Message]] = {}
        for message, (place, _) in self.sent.items():
            did = self.did[message[0]]
            earlier = [m for event in ("send", "deliver") for m, at in did[event].items() if at < place]
            past[message] = {m for m in earlier if m in self.sent}
        grew = True
        while grew:
            grew = False
            for message, known in past.items():
                more = set().union(*(past[one] for one in known)) - known
                grew |= bool(more)
                past[message] = known | more
        for q in self.logs:
            handled = self.handled(q)
            for message, place in handled.items():
                for cause in past.get(message, set()) - {message}:
                    if handled.get(cause, place) >= place:
                        return True
        return False

    def total(self) -> int:
        return sum(self.orders_differ(p, q) for p, q in combinations(sorted(self.logs), 2))

    def orders_differ(self, p: int, q: int) -> bool:
        mine, its = self.did[p]["deliver"], self.did[q]["deliver"]
        common = [
            message
            for message in mine.keys() & its.keys()
            if (view := self.view_at[p][mine[message]]) and self.together(p, q, view)
            if self.together(p, q, self.view_at[q][its[message]])
        ]
        return any((mine[a] < mine[b]) != (its[a] < its[b]) for a, b in combinations(common, 2))

    def view_synchrony(self) -> int:
        wrong = 0
        for p, q in combinations(sorted(self.logs), 2):
            for view in self.after[p].keys() & self.after[q].keys():
                installed = all(self.is_installed(one, view) for one in (p, q))
                if installed and self.together(p, q, view) and self.after[p][view] != "nothing":
                    wrong += self.differ_in(p, q, view)
        return wrong

    def is_installed(self, member: int, view: Any) -> bool:
        return any(
            row.event == "view" and self.view_at[member][place] == view for place, row in enumerate(self.logs[member])
        )

    def differ_in(self, p: int, q: int, view: Any) -> bool:
        def in_view(member: int, event: str) -> set[Message]:
            return {m for m, place in self.did[member][event].items() if self.view_at[member][place] == view}

        mine, its = in_view(p, "deliver"), in_view(q, "deliver")
        return bool((mine - its - in_view(q, "discard")) | (its - mine - in_view(p, "discard")))

    def stability(self) -> int:
        """Without a common clock."""
        return sum(
            self.mark_is_wrong(row, self.view_at[q][place])
            for q, log in self.logs.items()
            for place, row in enumerate(log)
            if row.event == "stable"
        )

    def mark_is_wrong(self, row: Event, view: Any) -> bool:
        if (row.sender, row.seq) not in self.sent:
            return True
        for q in view[1]:
            did = self.did.get(q, {})
            held = {message for event in ("send", "receive", "deliver") for message in did.get(event, {})}
            for message, (_, sent_in) in self.sent.items():
                due = message[0] == row.sender and message[1] <= (row.seq or 0) and q in sent_in[1]
                if due and message not in held:
                    return True
        return False

    def counts(self) -> dict[str, int]:
        """The violations of all guarantees but causal."""
        return {
            "integrity": self.integrity(),
            "validity": self.validity(),
            "agreement": self.agreement(),
            "fifo": self.fifo(),
            "total": self.total(),
            "stability": self.stability(),
            "view-synchrony": self.view_synchrony(),
        }
