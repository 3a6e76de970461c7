"""The guarantees of brokers: who takes what for which consumer, in what order, and how often.

Each member's rows with topics are reduced to small arrays in the first stage (`leave_consumption`), where the order of
partitions is settled too; the second stage puts a run's consumers together (`RunConsumers`).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from antiphon.pipeline import kernels as k
from antiphon.pipeline.checking.findings import Finding, Stub
from antiphon.pipeline.checking.run import CheckedRun
from antiphon.pipeline.columns import (
    CONTROL,
    CRASH,
    DELIVER,
    DISCARD,
    LEAVE,
    NO_OFFSET,
    NO_TEXT,
    TEXTS,
    Array,
    TextCodes,
    Unit,
)
from antiphon.pipeline.store.arena import ArenaWriter
from antiphon.pipeline.store.layout import TraceLayout
from antiphon.trace.schema import ACKNOWLEDGED, SUBSCRIBED, SUBSCRIBED_LATE, UNSUBSCRIBED

COLUMNS: Final = (*TEXTS, "redelivered", "partition_offset")
_NONE: Final = NO_TEXT
_MARKED, _DISCARDED = 1, 2  # what a taking is
_Key = tuple[int, int, str]  # of a consumer: a member by itself (0, member, ""), or a group (1, 0, name)


def has_topics(layout: TraceLayout, unit: Unit) -> bool:
    """Say whether a member's rows may have topics."""
    return any(
        "topic" in layout.open_file(layout.where(segment)[0]).schema_arrow.names
        for segment in range(layout.bounds[unit], layout.bounds[unit + 1])
    )


class ConsumerPart(msgspec.Struct, array_like=True):
    """What one member's log says of a consumer."""

    group: str | None  # None: the member by itself
    first_row: int
    done: bool  # it consumes no longer
    patterns: list[str]  # what it is subscribed to from the beginning on


class MemberTopics(NamedTuple):
    """The rows of one member that have to do with a broker, as arrays."""

    has: Array  # by row of the log: it has a topic
    marked: Array  # by row: redelivered
    stream: Array  # by row: code of (topic, partition)
    topic: Array  # by row: code of the topic
    topics: list[str]
    group: Array  # by row: code of the group, -1 where there is none
    groups: list[str]
    detail: Array
    details: list[str]


def read_topics(column: dict[str, Array], texts: TextCodes) -> MemberTopics | None:
    """Return the topics of a member's rows; None if no row has any, and nothing is said to a broker either."""
    topic, topics = _own_codes(column["topic"], texts)
    detail, details = _own_codes(column["detail"], texts)
    if not topics and not {ACKNOWLEDGED, SUBSCRIBED, SUBSCRIBED_LATE, UNSUBSCRIBED} & set(details):
        return None
    partition, partitions = _own_codes(column["partition"], texts)
    group, groups = _own_codes(column["group"], texts)
    stream = topic.astype(np.int64) * (len(partitions) + 1) + partition + 1
    return MemberTopics(
        topic >= 0, column["redelivered"].astype(bool), stream, topic, topics, group, groups, detail, details
    )


def _own_codes(codes: Array, texts: TextCodes) -> tuple[Array, list[str]]:
    """Number the texts of one log by their first appearance; -1 stays."""
    present = np.zeros(len(texts.names) + 1, bool)
    present[codes] = True
    known = np.flatnonzero(present[:-1])
    first = np.zeros(len(texts.names) + 1, np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    known = known[np.argsort(first[known])]
    own = np.full(len(texts.names) + 1, _NONE, np.int32)
    own[known] = np.arange(len(known), dtype=np.int32)
    return own[codes], [texts.names[code] for code in known]


def leave_consumption(
    run: CheckedRun, unit: Unit, column: dict[str, Array], topics: MemberTopics, message: Array, arena: ArenaWriter
) -> None:
    """Leave what the member takes, for which consumer, and what it and the broker say to each other."""
    event, group = column["event"], topics.group
    taken = np.flatnonzero(topics.has & ((event == DELIVER) | (event == DISCARD)))
    control = event == CONTROL
    word = {name: code for code, name in enumerate(topics.details)}

    def says(kind: str) -> Array:
        return np.flatnonzero(control & (topics.detail == word[kind])) if kind in word else np.zeros(0, np.int64)

    begun = np.union1d(says(SUBSCRIBED), says(SUBSCRIBED_LATE))
    gone = np.flatnonzero((event == LEAVE) | (event == CRASH))
    whole, ended = says(SUBSCRIBED), says(UNSUBSCRIBED)
    parts: list[ConsumerPart] = []
    local = np.full(len(topics.groups) + 1, _NONE, np.int32)  # group code (the last: none) -> consumer of this log
    makes = np.union1d(taken, begun) if len(begun) else taken
    of_group = group[makes]
    for code in (np.flatnonzero(np.bincount(of_group + 1)) - 1).tolist():
        rows = makes[of_group == code]
        over = np.concatenate((gone, ended[group[ended] == code]))
        patterns = {int(topics.topic[row]) for row in whole[group[whole] == code]} - {_NONE}
        local[code] = len(parts)
        name = None if code == _NONE else topics.groups[code]
        parts.append(
            ConsumerPart(name, int(rows[0]), bool((over > rows[-1]).any()), sorted(topics.topics[t] for t in patterns))
        )
    arena.put(unit, "consumers", np.frombuffer(msgspec.msgpack.encode((parts, topics.topics)), np.uint8))
    arena.put(unit, "taken_row", taken)
    arena.put(unit, "taken_message", message[taken])
    arena.put(unit, "taken_consumer", local[group[taken]])
    arena.put(unit, "taken_topic", topics.topic[taken])
    arena.put(unit, "taken_flags", topics.marked[taken] * _MARKED + (event[taken] == DISCARD) * np.uint8(_DISCARDED))
    acknowledged = says(ACKNOWLEDGED)
    numbers = _numbers(run, column["sender"][acknowledged], column["seq"][acknowledged])
    arena.put(unit, "acknowledged_row", acknowledged[numbers >= 0])
    arena.put(unit, "acknowledged_message", numbers[numbers >= 0])


def leave_sends(unit: Unit, topics: MemberTopics, sends: Array, send_row: Array, arena: ArenaWriter) -> None:
    """Leave the topics of what the member sent first."""
    topical = topics.has[send_row]
    arena.put(unit, "topical_sends", sends[topical])
    arena.put(unit, "topical_sends_topic", topics.topic[send_row[topical]])


def _numbers(run: CheckedRun, sender: Array, seq: Array) -> Array:
    """The messages' numbers in the run's universe; below 0 for those that nobody sends, delivers or discards."""
    universe = run.universe
    numbers, slot = np.empty(len(sender), np.int32), np.empty(len(sender), np.int32)
    k.number_messages(
        np.full(len(sender), DELIVER, np.uint8), sender, seq, universe.senders, universe.table, universe.table_base,
        universe.first_span, universe.low, universe.high, universe.base, numbers, slot,
    )  # fmt: skip
    return numbers


def check_partition_order(
    run: CheckedRun, unit: Unit, column: dict[str, Array], topics: MemberTopics, message: Array
) -> Finding:
    """Each member is given the messages of a partition in its order, what comes again aside."""
    rows = np.flatnonzero(topics.has & (column["event"] == DELIVER))
    consumer_message = (topics.group[rows].astype(np.int64) + 1) * (run.universe.size + 1) + message[rows]
    rows = rows[_first_of_each(consumer_message)]
    rows = rows[~topics.marked[rows]]
    if not len(rows):
        return Finding()
    group_stream = (topics.group[rows].astype(np.int64) + 1) * (int(topics.stream.max()) + 1) + topics.stream[rows]
    offset = column["partition_offset"][rows]
    placed = offset != NO_OFFSET  # by the broker, whoever the sender is; others are in the order of their sender
    sender = np.where(placed, 0, _ranked(column["sender"][rows]).astype(np.int64) + 1)
    stream = _ranked(sender * (int(group_stream.max()) + 1) + group_stream)
    order = np.argsort(stream, kind="stable")  # streams side by side, each in the order of its log
    of_stream, numbers = stream[order], np.where(placed, offset, column["seq"][rows])[order].astype(np.int64)
    starts = np.flatnonzero(np.concatenate(([True], of_stream[1:] != of_stream[:-1])))
    highest = np.empty(len(order), np.int64)  # the position, in this order, of the highest number so far
    for start, stop in zip(starts, np.append(starts[1:], len(order)), strict=True):
        reach = np.maximum.accumulate(numbers[start:stop])
        fresh = np.concatenate(([True], reach[1:] > reach[:-1]))
        highest[start:stop] = start + np.maximum.accumulate(np.where(fresh, np.arange(stop - start), 0))
    late = np.flatnonzero(numbers < numbers[highest])
    late_rows, high_rows = rows[order][late], rows[order][highest[late]]
    chosen = np.argsort(late_rows)[: run.job.witnesses]
    member = int(run.layout.unit_member[unit])
    stubs = [
        Stub(run.name, (member, row), (member, row, high))
        for row, high in zip(late_rows[chosen].tolist(), high_rows[chosen].tolist(), strict=True)
    ]
    return Finding(len(rows), len(late), False, 0, stubs)


def _ranked(values: Array) -> Array:
    """Number values by their first appearance; few are numbered in few bits, which are sorted faster."""
    encoded = pa.array(values).dictionary_encode()
    ranks: Array = encoded.indices.to_numpy(zero_copy_only=False)
    return ranks.astype(np.uint16) if len(encoded.dictionary) < 1 << 16 else ranks


def _first_of_each(values: Array) -> Array:
    """Return the positions at which a value appears for the first time."""
    codes = pa.array(values).dictionary_encode().indices.to_numpy(zero_copy_only=False)
    highest = np.maximum.accumulate(codes) if len(codes) else codes
    fresh = np.ones(len(codes), bool)
    fresh[1:] = highest[1:] > highest[:-1]
    return np.flatnonzero(fresh)


class RunConsumers:
    """All that the consumers of a run take, put together from its members' arrays."""

    def __init__(self, run: CheckedRun) -> None:
        self.run = run
        parts: list[tuple[Unit, list[ConsumerPart], list[str]]] = []
        for unit in run.units:
            encoded = run.array(unit, "consumers")
            if len(encoded):
                said = msgspec.msgpack.decode(encoded.tobytes(), type=tuple[list[ConsumerPart], list[str]])
                parts.append((unit, *said))
        member = run.layout.unit_member
        self.keys: list[_Key] = sorted({_key(int(member[unit]), part) for unit, found, _ in parts for part in found})
        at = {key: number for number, key in enumerate(self.keys)}
        self.topics: list[str] = sorted({topic for _, _, topics in parts for topic in topics})
        topic_at = {topic: number for number, topic in enumerate(self.topics)}
        self.parts: list[list[tuple[Unit, ConsumerPart]]] = [[] for _ in self.keys]
        columns: list[tuple[Array, ...]] = []
        acknowledged: list[tuple[Array, ...]] = []
        self.topic_of = np.full(run.universe.size, _NONE, np.int32)
        for unit, found, topics in parts:
            for part in found:
                self.parts[at[_key(int(member[unit]), part)]].append((unit, part))
            consumer = np.array([at[_key(int(member[unit]), part)] for part in found], np.int32)
            topic = np.array([topic_at[name] for name in topics], np.int32)
            message, flags = run.array(unit, "taken_message"), run.array(unit, "taken_flags")
            row = run.array(unit, "taken_row")
            of_consumer = consumer[run.array(unit, "taken_consumer")] if len(row) else np.zeros(0, np.int32)
            columns.append((np.full(len(row), unit, np.int64), row, message, of_consumer, flags))
            given = (flags & _DISCARDED) == 0
            self._name_topics(message[given], topic, run.array(unit, "taken_topic")[given])
            row = run.array(unit, "acknowledged_row")
            acknowledged.append((np.full(len(row), unit, np.int64), row, run.array(unit, "acknowledged_message")))
        for unit, _, topics in parts:
            sends = run.array(unit, "topical_sends")
            if len(sends):
                topic = np.array([topic_at[name] for name in topics], np.int32)
                self.topic_of[sends] = topic[run.array(unit, "topical_sends_topic")]
        self.unit, self.row, self.message, self.consumer, self.flags = _joined(columns, 5)
        self.ack_unit, self.ack_row, self.ack_message = _joined(acknowledged, 3)

    def _name_topics(self, message: Array, topic: Array, code: Array) -> None:
        """Let messages that have no topic yet have that of their first delivery here."""
        if len(message):
            fresh = self.topic_of[message] == _NONE
            # of several deliveries of one message here the last that is written counts: the first
            self.topic_of[message[fresh][::-1]] = topic[code[fresh][::-1]]

    def repeated(self, *, unmarked: bool) -> Finding:
        """No consumer has two deliveries of a message, or (`unmarked`) two that are not marked as redelivered."""
        given = np.flatnonzero((self.flags & _DISCARDED) == 0)
        counted = given[(self.flags[given] & _MARKED) == 0] if unmarked else given
        pair = self.consumer[counted].astype(np.int64) * (self.run.universe.size + 1) + self.message[counted]
        codes = pa.array(pair).dictionary_encode().indices.to_numpy(zero_copy_only=False)  # by first appearance
        first_of = counted[_first_of_each(pair)[codes]]  # units come in order, rows of each too
        again = counted != first_of
        stubs = [
            Stub(
                self.run.name,
                (self._member(at), int(self.row[at])),
                (self._member(at), int(self.row[at]), self._member(before), int(self.row[before])),
            )
            for at, before in zip(counted[again].tolist(), first_of[again].tolist(), strict=True)
        ][: self.run.job.witnesses]
        count = int(again.sum())
        return Finding(len(given), count, False, count, stubs)

    def _member(self, at: int) -> int:
        return int(self.run.layout.unit_member[self.unit[at]])

    def at_least_once(self) -> Finding:
        """What was acknowledged, or delivered to another consumer, everyone who owes it takes."""
        whole = Finding()
        topical = np.flatnonzero(self.topic_of >= 0)
        topic = self.topic_of[topical].astype(np.int64)
        universe = self.run.universe
        slot = np.searchsorted(universe.senders, universe.span_sender)
        sender = slot[np.searchsorted(universe.base, topical, side="right") - 1]
        stream = _ranked(sender * len(self.topics) + topic)
        streams = int(stream.max()) + 1 if len(stream) else 0
        acknowledged = self._among(self.ack_message)[topical]
        consumers_given = self._consumers_given()[topical]
        for number in range(len(self.keys)):
            mine = self.consumer == number
            taken = self._among(self.message[mine])[topical]
            given = self._among(self.message[mine & ((self.flags & _DISCARDED) == 0)])[topical]
            lowest, highest = np.full(streams, universe.size, np.int64), np.full(streams, _NONE, np.int64)
            np.minimum.at(lowest, stream[taken], topical[taken])  # messages are in order of (sender, number)
            np.maximum.at(highest, stream[taken], topical[taken])
            patterns = {pattern for _, part in self.parts[number] for pattern in part.patterns}
            covered = np.array([any(covers(one, name) for one in patterns) for name in self.topics], bool)
            owes = covered[topic] | (topical >= lowest[stream])
            if all(part.done for _, part in self.parts[number]):
                owes &= topical <= highest[stream]
            examined = owes & (acknowledged | (consumers_given - given > 0))
            missing = topical[examined & ~taken]
            cut = any(unit in self.run.cut for unit, _ in self.parts[number])
            stubs = (
                []
                if cut
                else [self._lacking(number, message) for message in missing[: self.run.job.witnesses].tolist()]
            )
            found = Finding(int(examined.sum()), 0 if cut else len(missing), cut and len(missing) > 0, 0, stubs)
            whole.add(found, self.run.job.witnesses)
        return whole

    def _consumers_given(self) -> Array:
        """How many consumers are given each message."""
        given = (self.flags & _DISCARDED) == 0
        size = self.run.universe.size
        pairs = pa.array(self.consumer[given].astype(np.int64) * (size + 1) + self.message[given]).unique().to_numpy()
        return np.bincount(pairs % (size + 1), minlength=size)

    def _among(self, messages: Array) -> Array:
        """Whether each message of the run is among some."""
        there = np.zeros(self.run.universe.size, bool)
        there[messages] = True
        return there

    def _lacking(self, consumer: int, message: int) -> Stub:
        """Say where it shows that a consumer lacks a message: an acknowledgment, or a delivery to another."""
        unit, part = self.parts[consumer][0]
        member = int(self.run.layout.unit_member[unit])
        facts = [member, part.first_row, *self.run.universe.message(message)]
        shown = np.flatnonzero(self.ack_message == message)
        if len(shown):
            at = int(self.ack_unit[shown[0]]), int(self.ack_row[shown[0]]), 1
        else:
            others = (self.message == message) & (self.consumer != consumer) & ((self.flags & _DISCARDED) == 0)
            found = int(np.flatnonzero(others)[0])
            at = int(self.unit[found]), int(self.row[found]), 0
        facts += [int(self.run.layout.unit_member[at[0]]), at[1], at[2]]
        return Stub(self.run.name, (message, consumer), tuple(facts))


def _key(member: int, part: ConsumerPart) -> _Key:
    return (0, member, "") if part.group is None else (1, 0, part.group)


def _joined(columns: list[tuple[Array, ...]], width: int) -> list[Array]:
    if not columns:
        return [np.zeros(0, np.int64)] * width
    return [np.concatenate(column) for column in zip(*columns, strict=True)]


def covers(pattern: str, topic: str) -> bool:
    """Say whether what is subscribed to covers a topic."""
    if pattern == topic:
        return True
    levels = re.split(r"[/.]", pattern)
    rest = levels[-1] in ("#", ">")
    one = [r"[^/.]*" if level in ("*", "+") else re.escape(level) for level in (levels[:-1] if rest else levels)]
    if not one:
        return True
    return re.fullmatch(r"[/.]".join(one) + (r"([/.].*)?" if rest else ""), topic, re.DOTALL) is not None
