"""The guarantees of brokers in a run under watch: who takes what for which consumer, in what order, and how often.

Of each message with a topic it is kept who has taken it, until it is older than patience; then it is *settled*: its
number goes into a span, and what a consumer owes and has not taken is listed as missing until it is taken after all.
Of what is settled a consumer keeps how far it reaches, by topic and sender: who has taken one before and one after
took what is not missing between them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec
import numpy as np

from antiphon.pipeline import words as sentence
from antiphon.pipeline.checking.brokers import covers
from antiphon.pipeline.columns import CRASH, DELIVER, DISCARD, LEAVE, NULL_TIME, SEND, Array
from antiphon.pipeline.results import WatchAlarm, WatchFinding
from antiphon.pipeline.watch.spans import joined, shortened, span_of, with_numbers
from antiphon.trace.schema import ACKNOWLEDGED, BROKER_GUARANTEES, SUBSCRIBED, SUBSCRIBED_LATE, UNSUBSCRIBED

MESSAGES_MAX: Final = 1 << 18  # that are kept; of more, the oldest are settled before their time
MISSING_MAX: Final = 1 << 18  # that are listed; more are counted
SPANS_MAX: Final = 64

GIVEN, UNMARKED, DISCARDED = 1, 2, 4  # what a consumer's member did with a message
# of numbers that are settled: given to one consumer at most and not acknowledged; examined; perhaps never used
ALONE, EXAMINED, PERHAPS = range(3)
AT_LEAST_ONCE, AT_MOST_ONCE, PARTITION_ORDER, REDELIVERY = range(4)

_MESSAGE: Final = np.dtype([(name, np.int64) for name in ("sender", "seq", "topic", "sent", "acknowledged", "since")])
_TAKING: Final = np.dtype([(name, np.int64) for name in ("consumer", "member", "sender", "seq", "did")])
_MISSING: Final = np.dtype([(name, np.int64) for name in ("consumer", "sender", "seq", "topic")])


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
    inexact: list[int] = msgspec.field(default_factory=lambda: [0, 0, 0, 0])  # by guarantee


_Stream = tuple[int, str | None, int, str | None, str | None]  # member, group, sender, topic, partition


class ConsumersSaid(msgspec.Struct, array_like=True):
    """What of the consumers of a run is no array."""

    consumers: list[Consumer] = []
    topics: list[str] = []
    highest: list[tuple[_Stream, int]] = []  # the highest number of each stream that was given in order
    totals: ConsumerTotals = msgspec.field(default_factory=ConsumerTotals)
    topics_differ: bool = False  # some message was taken from another topic than it was sent to
    settled_to: dict[int, dict[int, int]] = {}  # topic -> sender -> the highest number that is settled


BROKER_ARRAYS: Final = ("messages", "takings", "missing", "odd", "settled")


class Consumers(msgspec.Struct):
    """All that is kept of the consumers of a run."""

    said: ConsumersSaid = msgspec.field(default_factory=ConsumersSaid)
    messages: Array = msgspec.field(default_factory=lambda: np.zeros(0, _MESSAGE))
    takings: Array = msgspec.field(default_factory=lambda: np.zeros(0, _TAKING))
    missing: Array = msgspec.field(default_factory=lambda: np.zeros(0, _MISSING))
    odd: Array = msgspec.field(default_factory=lambda: np.zeros(0, _TAKING))  # of what is settled: never given unmarked
    settled: Array = msgspec.field(default_factory=lambda: np.zeros((0, 4), np.int64))  # spans of numbers

    @property
    def are_there(self) -> bool:
        """Whether any row of the run had a topic."""
        return bool(self.said.topics)

    def leave_open(self) -> None:
        """Note that something came too late: nothing can be said to hold any more."""
        self.said.totals.inexact[:] = [1, 1, 1, 1]

    def _number(self, group: str | None, member: int) -> int:
        """Return the number of a consumer, a new one if it has none."""
        alone = member if group is None else -1
        for number, one in enumerate(self.said.consumers):
            if (one.group, one.member if group is None else -1) == (group, alone):
                return number
        self.said.consumers.append(Consumer(group, member))
        return len(self.said.consumers) - 1

    def _topic(self, name: str) -> int:
        if name not in self.said.topics:
            self.said.topics.append(name)
        return self.said.topics.index(name)

    # --- what comes ---------------------------------------------------------------------------------------------------

    def take(self, rows: BrokerRows, table: list[BrokerWords], run: str, batch: int, newest: int) -> list[WatchAlarm]:
        """Take in rows that were judged; returns what is wrong."""
        for word in table:
            if word.topic is not None and word.kind == "":
                self._topic(word.topic)
        if not self.are_there:
            return []
        says = np.array([word.kind for word in table] + [""])[rows.words]
        topical = np.array([word.topic is not None and word.kind == "" for word in table] + [False])[rows.words]
        taking = topical & ((rows.code == DELIVER) | (rows.code == DISCARD))
        consumer = self._consumers_of(rows, table, taking | np.isin(says, (SUBSCRIBED, SUBSCRIBED_LATE)))
        self._note_subscriptions(rows, table, consumer, says)
        topic = np.array([self._topic(one) if one is not None else -1 for one in (word.topic for word in table)] + [-1])
        topic = np.where(topical, topic[rows.words], -1)
        self._note_messages(rows, topic, says == ACKNOWLEDGED, newest)
        self._compare_topics(rows, topic, np.flatnonzero(taking))
        return self._note_takings(rows, table, np.flatnonzero(taking), consumer, topic, run, batch)

    def _consumers_of(self, rows: BrokerRows, table: list[BrokerWords], makes: Array) -> Array:
        """Return the consumer of each row that makes somebody one, -1 of the others."""
        consumer = np.full(len(rows.member), -1, np.int64)
        at = np.flatnonzero(makes)
        for alike in _alike(rows.words[at], rows.member[at]):
            first = at[alike[0]]
            consumer[at[alike]] = self._number(table[rows.words[first]].group, int(rows.member[first]))
        return consumer

    def _note_subscriptions(self, rows: BrokerRows, table: list[BrokerWords], consumer: Array, says: Array) -> None:
        """Note who consumes, from when on, and who no longer does."""
        position = np.arange(len(rows.member))
        for at in np.flatnonzero(says == SUBSCRIBED).tolist():
            one, topic = self.said.consumers[consumer[at]], table[rows.words[at]].topic
            if topic is not None and topic not in one.patterns:
                one.patterns.append(topic)
                if any(covers(topic, name) for name in self._settled_topics()):
                    self.said.totals.inexact[AT_LEAST_ONCE] = 1  # it is owed what is no longer known
        ends = [(at, None) for at in position[(rows.code == LEAVE) | (rows.code == CRASH)].tolist()]
        ended = [(at, table[rows.words[at]].group) for at in position[says == UNSUBSCRIBED].tolist()]
        makes = consumer >= 0
        for number, one in enumerate(self.said.consumers):
            mine = makes & (consumer == number)
            for member in np.unique(rows.member[mine]).tolist():
                last = int(position[mine & (rows.member == member)][-1])
                if one.overlooked and one.is_over:
                    self.leave_open()  # it is back, and owes what was settled without it
                    one.overlooked = False
                one.done[member] = any(
                    at > last
                    for at in [*(at for at, _ in ends), *(at for at, group in ended if group == one.group)]
                    if rows.member[at] == member
                )
            if not mine.any() or len(one.done) > 1:
                over = [at for at, _ in ends] + [at for at, group in ended if group == one.group]
                for at in over:
                    member = int(rows.member[at])
                    if member in one.done and not (mine & (rows.member == member)).any():
                        one.done[member] = True

    def _settled_topics(self) -> list[str]:
        """Name the topics of which something is settled."""
        return [self.said.topics[code] for code in self.said.settled_to]

    def _compare_topics(self, rows: BrokerRows, topic: Array, taking: Array) -> None:
        """Note if something is taken from another topic than it was sent to: the row does not tell its topic then."""
        at = _index_of(self.messages, rows.sender[taking], rows.seq[taking])
        there = at < len(self.messages)
        self.said.topics_differ |= bool((self.messages["topic"][at[there]] != topic[taking[there]]).any())

    def _note_messages(self, rows: BrokerRows, topic: Array, acknowledged: Array, newest: int) -> None:
        """Note the messages that rows name, their topics and what was acknowledged of them."""
        about = np.flatnonzero((topic >= 0) | acknowledged | (rows.code == SEND))
        span = span_of(self.settled, rows.sender[about], rows.seq[about])
        late = about[(span >= 0) & acknowledged[about]]
        if len(late) and (self.settled[span[(span >= 0) & acknowledged[about]], 3] != EXAMINED).any():
            self.said.totals.inexact[AT_LEAST_ONCE] = 1  # who took it was not to be examined then
        late = about[span >= 0]
        if ((rows.code[late] == SEND) & (topic[late] >= 0)).any():
            self.said.totals.inexact[AT_LEAST_ONCE] = 1  # it says the topic, too late
        about = about[span < 0]
        fresh = np.zeros(len(about), _MESSAGE)
        fresh["sender"], fresh["seq"] = rows.sender[about], rows.seq[about]
        fresh["topic"] = np.where(rows.code[about] == DISCARD, -1, topic[about])
        fresh["sent"] = rows.code[about] == SEND
        fresh["acknowledged"], fresh["since"] = acknowledged[about], newest
        both = np.concatenate([self.messages, fresh])
        # the first send says a message's topic, if it has one; else whoever is given it first
        again = (both["sent"] > 0) & ~_first_with(both, "sent", 1, ("sender", "seq"))
        both = both[~again]
        order = np.lexsort((np.arange(len(both)), both["topic"] < 0, -both["sent"], both["seq"], both["sender"]))
        named = both[order]
        topics = named["topic"][_first_of(named["sender"], named["seq"])]
        order = np.lexsort((np.arange(len(both)), both["topic"] < 0, both["seq"], both["sender"]))
        both = both[order]
        starts = np.flatnonzero(_first_of(both["sender"], both["seq"]))
        self.messages = both[starts]
        if len(starts):
            self.messages["topic"] = np.where(topics >= 0, topics, self.messages["topic"])
            self.messages["sent"] = np.maximum.reduceat(both["sent"], starts)
            self.messages["acknowledged"] = np.maximum.reduceat(both["acknowledged"], starts)
            self.messages["since"] = np.minimum.reduceat(both["since"], starts)

    def _note_takings(
        self,
        rows: BrokerRows,
        table: list[BrokerWords],
        at: Array,
        consumer: Array,
        topic: Array,
        run: str,
        batch: int,
    ) -> list[WatchAlarm]:
        """Count what is given again or late; returns it as alarms."""
        marked = np.array([word.redelivered for word in table] + [False])[rows.words[at]]
        given = rows.code[at] == DELIVER
        self.said.totals.given += int(given.sum())
        fresh = np.zeros(len(at), _TAKING)
        fresh["consumer"], fresh["member"] = consumer[at], rows.member[at]
        fresh["sender"], fresh["seq"] = rows.sender[at], rows.seq[at]
        fresh["did"] = np.where(given, GIVEN + np.where(marked, 0, UNMARKED), DISCARDED)
        span = span_of(self.settled, fresh["sender"], fresh["seq"])
        late = span >= 0
        known, sure = self.takings, np.ones(len(at), bool)
        if late.any():
            before, sure[late] = self._takings_of_settled(fresh[late], span[late], topic[at][late])
            known = np.concatenate([known, before])
        both = np.concatenate([known, fresh])
        is_fresh = np.arange(len(both)) >= len(known)
        alarms = [
            *self._repeated(both, is_fresh, rows.step[at], GIVEN, run, batch),
            *self._repeated(both, is_fresh, rows.step[at], UNMARKED, run, batch),
        ]
        first = _first_with(both, "did", GIVEN, ("consumer", "member", "sender", "seq"))[len(known) :]
        in_order = first & ~marked & sure
        alarms += self._late(fresh[in_order], rows.words[at][in_order], rows.step[at][in_order], table, run, batch)
        both = np.concatenate([self.takings, fresh[~late]])
        both = both[np.lexsort((both["seq"], both["sender"], both["member"], both["consumer"]))]
        starts = np.flatnonzero(_first_of(both["consumer"], both["member"], both["sender"], both["seq"]))
        self.takings = both[starts]
        if len(starts):
            self.takings["did"] = np.bitwise_or.reduceat(both["did"], starts)
        return alarms

    def _takings_of_settled(self, fresh: Array, span: Array, topics: Array) -> tuple[Array, list[bool]]:
        """Return what was taken before of messages that are settled and taken now; and of which of these it is sure."""
        known: list[tuple[int, ...]] = []
        before = {(number, sender, seq): did for number, _, sender, seq, did in self.odd.tolist()}
        odd = dict(before)
        missing = {(number, sender, seq): topic for number, sender, seq, topic in self.missing.tolist()}
        first: set[tuple[int, int, int]] = set()
        sure = []
        for taking, kind, topic in zip(fresh.tolist(), self.settled[span, 3].tolist(), topics.tolist(), strict=True):
            number, member, sender, seq, did = taking
            one, pair = self.said.consumers[number], (number, sender, seq)
            if pair in missing:
                self.said.totals.taken += 1
                self._extend(one, missing.pop(pair), sender, seq)
                first.add(pair)
            sure.append(pair in first)
            if pair not in first:
                low, high = one.reach.get(topic, {}).get(sender, (1, 0))
                told = kind == EXAMINED and not one.lost and not self.said.topics_differ and len(before) < MISSING_MAX
                if not low <= seq <= high or not told:
                    self.leave_open()  # whether it was given it before is not known
                elif len(one.done) > 1:
                    self.said.totals.inexact[PARTITION_ORDER] = 1  # by which of its members is not known
                sure[-1] = low <= seq <= high and told
                if sure[-1]:
                    known.append((number, member, sender, seq, before.get(pair, GIVEN + UNMARKED)))
            if pair in first or pair in odd:
                odd[pair] = odd.get(pair, 0) | did
        self.odd = _odd(np.array([(number, -1, *message, did) for (number, *message), did in odd.items()], _TAKING))
        self.missing = np.array([(*pair, topic) for pair, topic in missing.items()], _MISSING)
        return np.array(known, _TAKING), sure

    def _repeated(self, both: Array, is_fresh: Array, step: Array, did: int, run: str, batch: int) -> list[WatchAlarm]:
        """Count the fresh deliveries of a consumer and message after the first (of those that `did` chooses)."""
        first = _first_with(both, "did", did, ("consumer", "sender", "seq"))
        again = np.flatnonzero(is_fresh & ((both["did"] & did) > 0) & ~first)
        if did == GIVEN:
            self.said.totals.again += len(again)
        else:
            self.said.totals.again_unmarked += len(again)
        guarantee = BROKER_GUARANTEES[AT_MOST_ONCE if did == GIVEN else REDELIVERY]
        say = sentence.given_again if did == GIVEN else sentence.given_again_unmarked
        known = len(both) - len(step)
        return [
            WatchAlarm(batch, run, guarantee, member, int(step[at - known]), sender, seq, why)
            for at in again.tolist()
            for number, member, sender, seq, _ in (both[at].tolist(),)
            for why in (say(self.said.consumers[number].name, (sender, seq)),)
        ]

    def _late(
        self, given: Array, words: Array, step: Array, table: list[BrokerWords], run: str, batch: int
    ) -> list[WatchAlarm]:
        """Compare what is given for the first time with the highest number of its stream; returns what is late."""
        self.said.totals.ordered += len(given)
        highest = dict(self.said.highest)
        alarms = []
        for rows in _alike(words, given["sender"], given["member"]):
            word = table[words[rows[0]]]
            member, sender = int(given["member"][rows[0]]), int(given["sender"][rows[0]])
            key = (member, word.group, sender, word.topic, word.partition)
            numbers = given["seq"][rows]
            reach = np.maximum.accumulate(np.concatenate([[highest.get(key, 0)], numbers]))
            highest[key] = int(reach[-1])
            late = np.flatnonzero(numbers < reach[:-1])
            self.said.totals.late += len(late)
            assert word.topic is not None, "a row of a broker has a topic"
            for at in late.tolist():
                message = (sender, int(numbers[at]))
                why = sentence.given_late(member, message, int(reach[at]), word.topic, word.partition)
                alarms.append(WatchAlarm(batch, run, "partition-order", member, int(step[rows[at]]), *message, why))
        self.said.highest = list(highest.items())
        return alarms

    # --- what is owed -------------------------------------------------------------------------------------------------

    def is_settled(self, sender: Array, seq: Array) -> Array:
        """Which of these messages are settled."""
        return span_of(self.settled, sender, seq) >= 0

    def is_kept(self, sender: Array, seq: Array) -> Array:
        """Which of these messages have a topic and are not settled."""
        topical = self.messages[self.messages["topic"] >= 0]
        spans = np.stack([topical["sender"], topical["seq"], topical["seq"]], 1)
        return span_of(spans, sender, seq) >= 0

    def settle(self, newest: int, patience_ns: int, run: str, batch: int) -> list[WatchAlarm]:
        """Let go of the messages that are older than patience; returns which of them a consumer has not taken."""
        messages = self.messages
        old = np.zeros(len(messages), bool) if newest == NULL_TIME else messages["since"] < newest - patience_ns
        if len(messages) > MESSAGES_MAX:
            old[np.argsort(messages["since"], kind="stable")[: len(messages) - MESSAGES_MAX]] = True
        alarms: list[WatchAlarm] = []
        if not old.any():
            return alarms
        givers = self._givers()
        kind = np.where((messages["acknowledged"] > 0) | (givers > 1), EXAMINED, ALONE)
        for number, one in enumerate(self.said.consumers):
            taken, given = self._taken_by(number)
            owes = self._owes(one, taken, over=False)
            examined = old & ((messages["acknowledged"] > 0) | (givers - given > 0))
            if one.is_over:
                one.overlooked |= bool((old & owes & ~taken & ~self._owes(one, taken, over=True)).any())
                owes = self._owes(one, taken, over=True)
            self.said.totals.taken += int((examined & owes & taken).sum())
            lacking = messages[examined & owes & ~taken]
            alarms += self._alarms(one, lacking, sentence.not_taken_yet, run, batch)
            self._list_missing(number, lacking)
            for sender, seq, topic in messages[old & taken][["sender", "seq", "topic"]].tolist():
                self._extend(one, topic, sender, seq)
        gone, kind = messages[old & (messages["topic"] >= 0)], kind[old & (messages["topic"] >= 0)]
        for sender, seq, topic in gone[["sender", "seq", "topic"]].tolist():
            to = self.said.settled_to.setdefault(topic, {})
            to[sender] = max(to.get(sender, 0), seq)
        if self.said.topics_differ:
            self.said.totals.inexact[AT_LEAST_ONCE] = 1  # to which topic it belongs may show later
        self.settled = with_numbers(self.settled, gone["sender"], gone["seq"], kind)
        self.settled = shortened(joined(self.settled), SPANS_MAX, PERHAPS) if len(self.settled) else self.settled
        going = _index_of(gone, self.takings["sender"], self.takings["seq"]) < len(gone)
        taken = self.takings[going]
        taken = taken[np.lexsort((taken["seq"], taken["sender"], taken["consumer"]))]
        starts = np.flatnonzero(_first_of(taken["consumer"], taken["sender"], taken["seq"]))
        if len(starts):
            did = np.bitwise_or.reduceat(taken["did"], starts)
            taken = taken[starts]
            taken["did"] = did
            self.odd = np.concatenate([self.odd, _odd(taken)])[:MISSING_MAX]
        self.takings = self.takings[~going]
        self.messages = messages[~old]
        return alarms

    def lacking(self, run: str, batch: int) -> list[WatchAlarm]:
        """Return what consumers owe and have not taken, of what is not settled."""
        givers, messages = self._givers(), self.messages
        alarms: list[WatchAlarm] = []
        for number, one in enumerate(self.said.consumers):
            taken, given = self._taken_by(number)
            owes = self._owes(one, taken, over=one.is_over) & ~taken
            lacking = messages[owes & ((messages["acknowledged"] > 0) | (givers - given > 0))]
            alarms += self._alarms(one, lacking, sentence.never_taken, run, batch)
        return alarms

    def _alarms(self, one: Consumer, lacking: Array, say: Callable[..., str], run: str, batch: int) -> list[WatchAlarm]:
        return [
            WatchAlarm(batch, run, "at-least-once", min(one.done), 0, sender, seq, why)
            for sender, seq, acknowledged in lacking[["sender", "seq", "acknowledged"]].tolist()
            for why in (say(one.name, (sender, seq), acknowledged=bool(acknowledged)),)
        ]

    def _extend(self, one: Consumer, topic: int, sender: int, seq: int) -> None:
        if topic < 0:
            return
        low, high = one.reach.setdefault(topic, {}).get(sender, (seq, seq))
        if seq < low:
            self.leave_open()  # what is settled between these it owes now, and may not have
        one.reach[topic][sender] = min(low, seq), max(high, seq)

    def _list_missing(self, number: int, lacking: Array) -> None:
        room = max(0, MISSING_MAX - len(self.missing))
        fresh = np.zeros(min(room, len(lacking)), _MISSING)
        fresh["consumer"] = number
        for name in ("sender", "seq", "topic"):
            fresh[name] = lacking[name][: len(fresh)]
        self.missing = np.concatenate([self.missing, fresh])
        self.said.consumers[number].lost += len(lacking) - len(fresh)

    def _givers(self) -> Array:
        """To how many consumers each message was given."""
        given = self.takings[(self.takings["did"] & GIVEN) > 0]
        pairs = np.unique(np.stack([given["sender"], given["seq"], given["consumer"]], 1), axis=0)
        return np.bincount(_index_of(self.messages, pairs[:, 0], pairs[:, 1]), minlength=len(self.messages) + 1)[:-1]

    def _taken_by(self, number: int) -> tuple[Array, Array]:
        """Which messages a consumer has taken, and which it was given."""
        mine = self.takings[self.takings["consumer"] == number]
        at = _index_of(self.messages, mine["sender"], mine["seq"])
        taken, given = np.zeros((2, len(self.messages) + 1), bool)
        taken[at] = True
        given[at[(mine["did"] & GIVEN) > 0]] = True
        return taken[:-1], given[:-1]

    def _owes(self, one: Consumer, taken: Array, *, over: bool) -> Array:
        """Which messages that are kept a consumer owes; `over`: nothing after the last that it took."""
        messages = self.messages
        low, high = self._reaches(one, messages["topic"], messages["sender"], taken, messages["seq"])
        return self._owed(one, messages["topic"], messages["seq"], low, high, over=over)

    def _owed(self, one: Consumer, topic: Array, seq: Array, low: Array, high: Array, *, over: bool) -> Array:
        covered = np.array(
            [any(covers(pattern, name) for pattern in one.patterns) for name in self.said.topics] + [False]
        )
        owes: Array = (covered[topic] | (seq >= low)) & (topic >= 0)
        return owes & (seq <= high) if over else owes

    def _reaches(self, one: Consumer, topic: Array, sender: Array, taken: Array, seq: Array) -> tuple[Array, Array]:
        """The lowest and the highest number that a consumer has taken of each one's topic and sender."""
        keys, at = np.unique(np.stack([topic, sender], 1), axis=0, return_inverse=True)
        at = at.reshape(-1)
        top = int(np.iinfo(np.int64).max)
        low, high = np.full(len(keys), top), np.full(len(keys), -1)
        np.minimum.at(low, at[taken], seq[taken])
        np.maximum.at(high, at[taken], seq[taken])
        for number, (code, who) in enumerate(keys.tolist()):
            lowest, highest = one.reach.get(code, {}).get(who, (top, -1))
            if low[number] < min(lowest, self.said.settled_to.get(code, {}).get(who, 0)):
                self.said.totals.inexact[AT_LEAST_ONCE] = 1  # it owes some that were settled, and may not have them
            low[number], high[number] = min(low[number], lowest), max(high[number], highest)
        return low[at], high[at]

    def findings(self, cut: set[int], complete: set[int], *, final: bool) -> dict[str, WatchFinding]:
        """What is known so far; `cut`: members whose logs were cut short; `complete`: those that will log no more."""
        total = self.said.totals
        at_least_once = WatchFinding(total.taken, 0, 0, total.inexact[AT_LEAST_ONCE])
        givers, messages = self._givers(), self.messages
        for number, one in enumerate(self.said.consumers):
            taken, given = self._taken_by(number)
            owes = self._owes(one, taken, over=one.is_over)
            examined = owes & ((messages["acknowledged"] > 0) | (givers - given > 0))
            missing = int((examined & ~taken).sum()) + self._still_missing(number, taken)
            at_least_once.examined += int((examined & taken).sum()) + missing
            decided = not cut & one.done.keys() if final else one.done.keys() <= complete
            if decided and not total.inexact[AT_LEAST_ONCE]:  # else what is missing may not be owed
                at_least_once.violations += missing
            elif missing:
                at_least_once.undecided = 1
        return {
            "at-least-once": at_least_once,
            "at-most-once": WatchFinding(total.given, total.again, 0, total.inexact[AT_MOST_ONCE], total.again),
            "partition-order": WatchFinding(total.ordered, total.late, 0, total.inexact[PARTITION_ORDER]),
            "redelivery": WatchFinding(
                total.given, total.again_unmarked, 0, total.inexact[REDELIVERY], total.again_unmarked
            ),
        }

    def _still_missing(self, number: int, taken: Array) -> int:
        """How many messages that are settled a consumer owes and has not taken."""
        one = self.said.consumers[number]
        mine = self.missing[self.missing["consumer"] == number]
        if not one.is_over or not len(mine):
            return len(mine) + one.lost
        messages = self.messages
        both = [np.concatenate([mine[name], messages[name]]) for name in ("topic", "sender", "seq")]
        took = np.concatenate([np.zeros(len(mine), bool), taken])
        low, high = self._reaches(one, both[0], both[1], took, both[2])
        count = len(mine)
        return int(self._owed(one, mine["topic"], mine["seq"], low[:count], high[:count], over=True).sum()) + one.lost


def _alike(*columns: Array) -> list[Array]:
    """Return the positions of rows that are alike in some columns, those of each kind together and in order."""
    order = np.lexsort(columns)
    starts = np.flatnonzero(_first_of(*(column[order] for column in columns)))
    return np.split(order, starts[1:]) if len(order) else []


def _first_of(*columns: Array) -> Array:
    """Where, in rows that are in order of some columns, these change."""
    first = np.ones(len(columns[0]), bool)
    first[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return first


def _first_with(takings: Array, field: str, bits: int, names: tuple[str, ...]) -> Array:
    """Which records are the first of those alike in some columns that have some bits of a field, in the order given."""
    chosen = np.flatnonzero((takings[field] & bits) > 0)
    order = chosen[np.lexsort([chosen, *(takings[name][chosen] for name in reversed(names))])]
    first = np.zeros(len(takings), bool)
    first[order] = _first_of(*(takings[name][order] for name in names))
    return first


def _index_of(messages: Array, sender: Array, seq: Array) -> Array:
    """Return the index of each message among those that are kept, in order; their number where it is not there."""
    spans = np.stack([messages["sender"], messages["seq"], messages["seq"]], 1)
    at = span_of(spans, sender, seq)
    return np.where(at < 0, len(messages), at)


def _odd(takings: Array) -> Array:
    """Return those in which nothing was given without a mark."""
    result: Array = takings[(takings["did"] & UNMARKED) == 0]
    return result
