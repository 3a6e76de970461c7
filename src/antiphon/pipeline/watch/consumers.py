"""The guarantees of brokers in a run under watch: who takes what for which consumer, in what order, and how often.

Of each message with a topic it is kept who has taken it, until it is older than patience; then it is *settled*: its
number goes into a span, and what a consumer owes and has not taken is listed as missing until it is taken after all.
Of what is settled a consumer keeps how far it reaches, by topic and sender: who has taken one before and one after
took what is not missing between them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
import numpy as np

from antiphon.pipeline import words as sentence
from antiphon.pipeline.columns import Array
from antiphon.pipeline.watch.spans import span_of

MESSAGES_MAX: Final = 1 << 18  # that are kept; of more, the oldest are settled before their time
MISSING_MAX: Final = 1 << 18  # that are listed; more are counted
GROUPS_MAX: Final = 10_000  # names of groups that were let go
SPANS_MAX: Final = 64

GIVEN, UNMARKED, DISCARDED = 1, 2, 4  # what a consumer's member did with a message
# of numbers that are settled: given to one consumer at most and not acknowledged; examined; perhaps never used
ALONE, EXAMINED, PERHAPS = range(3)
AT_LEAST_ONCE, AT_MOST_ONCE, PARTITION_ORDER, REDELIVERY = range(4)

NOBODY: Final = int(np.iinfo(np.int64).max)
# `namer` has said the topic: the sender (-NOBODY), else the smallest member that was given it
MESSAGE: Final = np.dtype(
    [(name, np.int64) for name in ("sender", "seq", "topic", "namer", "sent", "acknowledged", "since")]
)
TAKING: Final = np.dtype([(name, np.int64) for name in ("consumer", "member", "sender", "seq", "did")])
MISSING_ONE: Final = np.dtype([(name, np.int64) for name in ("consumer", "sender", "seq", "topic")])


class BrokerWords(msgspec.Struct, frozen=True, array_like=True):
    """What a row says of a broker beside its event."""

    kind: str = ""  # of a control row
    topic: str | None = None
    partition: str | None = None
    group: str | None = None
    redelivered: bool = False


class BrokerRows(NamedTuple):
    """Rows that were judged, in order of each member's log; ids as in the trace."""

    member: Array
    code: Array
    sender: Array
    seq: Array
    step: Array
    words: Array  # an index into a list of BrokerWords, -1 if it says nothing
    offset: Array  # in its partition, NO_OFFSET where unknown


class Consumer(msgspec.Struct, array_like=True):
    """A consumer group, or a member by itself."""

    group: str | None
    member: int
    done: dict[int, bool] = {}  # of each of its members: whether it consumes no longer
    patterns: list[str] = []  # what it is subscribed to from the beginning on
    reach: dict[int, dict[int, tuple[int, int]]] = {}  # topic -> sender -> its lowest and highest settled number
    overlooked: bool = False  # something was settled that it would have owed if it had not been over
    lost: int = 0  # missing messages that are no longer listed

    @property
    def is_over(self) -> bool:
        """Whether all of its members consume no longer."""
        return all(self.done.values())

    @property
    def name(self) -> str:
        """What it is called in a sentence."""
        return sentence.consumer(self.group, self.member)


class ConsumerTotals(msgspec.Struct, array_like=True):
    """What was counted."""

    given: int = 0  # `deliver` rows of consumers
    again: int = 0
    again_unmarked: int = 0
    ordered: int = 0  # rows that partition-order compares
    late: int = 0
    taken: int = 0  # settled pairs of consumer and message that at-least-once examines
    lost: int = 0  # what is missing at consumers that were let go
    inexact: list[int] = msgspec.field(default_factory=lambda: [0, 0, 0, 0])  # by guarantee


# member, group, sender (None: the broker says the order, whoever sends), topic, partition
Stream = tuple[int, str | None, int | None, str | None, str | None]


class ConsumersSaid(msgspec.Struct, array_like=True):
    """What of the consumers of a run is no array."""

    consumers: list[Consumer] = []
    topics: list[str] = []
    highest: list[tuple[Stream, int]] = []  # the highest number, or offset, of each stream that was given in order
    totals: ConsumerTotals = msgspec.field(default_factory=ConsumerTotals)
    topics_differ: bool = False  # some message was taken from another topic than it was sent to
    settled_to: dict[int, dict[int, int]] = {}  # topic -> sender -> the highest number that is settled
    past_groups: list[str] = []  # groups that were let go, the last of them
    groups_forgotten: bool = False  # there were more


BROKER_ARRAYS: Final = ("messages", "takings", "missing", "odd", "settled")


class Consumers(msgspec.Struct):
    """All that is kept of the consumers of a run."""

    said: ConsumersSaid = msgspec.field(default_factory=ConsumersSaid)
    messages: Array = msgspec.field(default_factory=lambda: np.zeros(0, MESSAGE))
    takings: Array = msgspec.field(default_factory=lambda: np.zeros(0, TAKING))
    missing: Array = msgspec.field(default_factory=lambda: np.zeros(0, MISSING_ONE))
    odd: Array = msgspec.field(default_factory=lambda: np.zeros(0, TAKING))  # of what is settled: never given unmarked
    settled: Array = msgspec.field(default_factory=lambda: np.zeros((0, 4), np.int64))  # spans of numbers

    @property
    def are_there(self) -> bool:
        """Whether any row of the run had a topic."""
        return bool(self.said.topics)

    def leave_open(self) -> None:
        """Note that something came too late: nothing can be said to hold any more."""
        self.said.totals.inexact[:] = [1, 1, 1, 1]

    def number(self, group: str | None, member: int) -> int:
        """Return the number of a consumer, a new one if it has none."""
        alone = member if group is None else -1
        for number, one in enumerate(self.said.consumers):
            if (one.group, one.member if group is None else -1) == (group, alone):
                return number
        if group is not None and (self.said.groups_forgotten or group in self.said.past_groups):
            self.leave_open()  # it may be one that was let go
        self.said.consumers.append(Consumer(group, member))
        return len(self.said.consumers) - 1

    def topic(self, name: str) -> int:
        """Return the number of a topic, a new one if it has none."""
        if name not in self.said.topics:
            self.said.topics.append(name)
        return self.said.topics.index(name)

    def is_settled(self, sender: Array, seq: Array) -> Array:
        """Which of these messages are settled."""
        return span_of(self.settled, sender, seq) >= 0

    def is_kept(self, sender: Array, seq: Array) -> Array:
        """Which of these messages have a topic and are not settled."""
        topical = self.messages[self.messages["topic"] >= 0]
        spans = np.stack([topical["sender"], topical["seq"], topical["seq"]], 1)
        return span_of(spans, sender, seq) >= 0

    def extend(self, one: Consumer, topic: int, sender: int, seq: int) -> None:
        """Note that a consumer has taken a message that is settled."""
        if topic < 0:
            return
        low, high = one.reach.setdefault(topic, {}).get(sender, (seq, seq))
        if seq < low:
            self.leave_open()  # what is settled between these it owes now, and may not have
        one.reach[topic][sender] = min(low, seq), max(high, seq)


def first_of(*columns: Array) -> Array:
    """Where, in rows that are in order of some columns, these change."""
    first = np.ones(len(columns[0]), bool)
    first[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return first


def index_of(messages: Array, sender: Array, seq: Array) -> Array:
    """Return the index of each message among those that are kept, in order; their number where it is not there."""
    spans = np.stack([messages["sender"], messages["seq"], messages["seq"]], 1)
    at = span_of(spans, sender, seq)
    return np.where(at < 0, len(messages), at)


def never_unmarked(takings: Array) -> Array:
    """Return those in which nothing was given without a mark."""
    result: Array = takings[(takings["did"] & UNMARKED) == 0]
    return result
