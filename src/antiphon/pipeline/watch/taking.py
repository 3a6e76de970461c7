"""What clients take from brokers as it comes: for which consumer, how often, in what order."""

from __future__ import annotations

import numpy as np

from antiphon.pipeline import words as sentence
from antiphon.pipeline.checking.brokers import covers
from antiphon.pipeline.columns import CRASH, DELIVER, DISCARD, LEAVE, NO_OFFSET, SEND, Array
from antiphon.pipeline.results import WatchAlarm
from antiphon.pipeline.watch.consumers import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    DISCARDED,
    EXAMINED,
    GIVEN,
    MESSAGE,
    MISSING_MAX,
    MISSING_ONE,
    NOBODY,
    PARTITION_ORDER,
    REDELIVERY,
    TAKING,
    UNMARKED,
    BrokerRows,
    BrokerWords,
    Consumers,
    first_of,
    index_of,
    never_unmarked,
)
from antiphon.pipeline.watch.spans import span_of
from antiphon.trace.schema import ACKNOWLEDGED, BROKER_GUARANTEES, SUBSCRIBED, SUBSCRIBED_LATE, UNSUBSCRIBED


def take(
    kept: Consumers, rows: BrokerRows, table: list[BrokerWords], run: str, batch: int, newest: int
) -> list[WatchAlarm]:
    """Take in rows that were judged; returns what is wrong."""
    for word in table:
        if word.topic is not None and word.kind == "":
            kept.topic(word.topic)
    if not kept.are_there and not any(word.kind for word in table):
        return []
    says = np.array([word.kind for word in table] + [""])[rows.words]
    topical = np.array([word.topic is not None and word.kind == "" for word in table] + [False])[rows.words]
    taking = topical & ((rows.code == DELIVER) | (rows.code == DISCARD))
    consumer = _consumers_of(kept, rows, table, taking | np.isin(says, (SUBSCRIBED, SUBSCRIBED_LATE)))
    _note_subscriptions(kept, rows, table, consumer, says)
    topic = np.array([kept.topic(one) if one is not None else -1 for one in (word.topic for word in table)] + [-1])
    topic = np.where(topical, topic[rows.words], -1)
    _note_messages(kept, rows, topic, says == ACKNOWLEDGED, newest)
    _compare_topics(kept, rows, topic, np.flatnonzero(taking))
    return _note_takings(kept, rows, table, np.flatnonzero(taking), consumer, topic, run, batch)


def _consumers_of(kept: Consumers, rows: BrokerRows, table: list[BrokerWords], makes: Array) -> Array:
    """Return the consumer of each row that makes somebody one, -1 of the others."""
    consumer = np.full(len(rows.member), -1, np.int64)
    at = np.flatnonzero(makes)
    for alike in alike_rows(rows.words[at], rows.member[at]):
        first = at[alike[0]]
        consumer[at[alike]] = kept.number(table[rows.words[first]].group, int(rows.member[first]))
    return consumer


def _note_subscriptions(
    kept: Consumers, rows: BrokerRows, table: list[BrokerWords], consumer: Array, says: Array
) -> None:
    """Note who consumes, from when on, and who no longer does."""
    position = np.arange(len(rows.member))
    for at in np.flatnonzero(says == SUBSCRIBED).tolist():
        one, topic = kept.said.consumers[consumer[at]], table[rows.words[at]].topic
        if topic is not None and topic not in one.patterns:
            one.patterns.append(topic)
            if any(covers(topic, name) for name in _settled_topics(kept)):
                kept.said.totals.inexact[AT_LEAST_ONCE] = 1  # it is owed what is no longer known
    ends = [(at, None) for at in position[(rows.code == LEAVE) | (rows.code == CRASH)].tolist()]
    ended = [(at, table[rows.words[at]].group) for at in position[says == UNSUBSCRIBED].tolist()]
    makes = consumer >= 0
    for number, one in enumerate(kept.said.consumers):
        mine = makes & (consumer == number)
        for member in np.unique(rows.member[mine]).tolist():
            last = int(position[mine & (rows.member == member)][-1])
            if one.overlooked and one.is_over:
                kept.leave_open()  # it is back, and owes what was settled without it
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


def _settled_topics(kept: Consumers) -> list[str]:
    """Name the topics of which something is settled."""
    return [kept.said.topics[code] for code in kept.said.settled_to]


def _compare_topics(kept: Consumers, rows: BrokerRows, topic: Array, taking: Array) -> None:
    """Note if something is taken from another topic than it was sent to: the row does not tell its topic then."""
    at = index_of(kept.messages, rows.sender[taking], rows.seq[taking])
    there = at < len(kept.messages)
    kept.said.topics_differ |= bool((kept.messages["topic"][at[there]] != topic[taking[there]]).any())


def _note_messages(kept: Consumers, rows: BrokerRows, topic: Array, acknowledged: Array, newest: int) -> None:
    """Note the messages that rows name, their topics and what was acknowledged of them."""
    about = np.flatnonzero((topic >= 0) | acknowledged | (rows.code == SEND))
    span = span_of(kept.settled, rows.sender[about], rows.seq[about])
    late = about[(span >= 0) & acknowledged[about]]
    if len(late) and (kept.settled[span[(span >= 0) & acknowledged[about]], 3] != EXAMINED).any():
        kept.said.totals.inexact[AT_LEAST_ONCE] = 1  # who took it was not to be examined then
    late = about[span >= 0]
    if ((rows.code[late] == SEND) & (topic[late] >= 0)).any():
        kept.said.totals.inexact[AT_LEAST_ONCE] = 1  # it says the topic, too late
    about = about[span < 0]
    fresh = np.zeros(len(about), MESSAGE)
    fresh["sender"], fresh["seq"] = rows.sender[about], rows.seq[about]
    fresh["topic"] = np.where(rows.code[about] == DISCARD, -1, topic[about])
    namer = np.where(rows.code[about] == SEND, -NOBODY, rows.member[about])
    fresh["namer"] = np.where(fresh["topic"] < 0, NOBODY, namer)
    fresh["sent"] = rows.code[about] == SEND
    fresh["acknowledged"], fresh["since"] = acknowledged[about], newest
    both = np.concatenate([kept.messages, fresh])
    # the first send says a message's topic, if it has one; else the smallest member that is given it
    again = (both["sent"] > 0) & ~first_with(both, "sent", 1, ("sender", "seq"))
    both = both[~again]
    both = both[np.lexsort((np.arange(len(both)), both["namer"], both["seq"], both["sender"]))]
    starts = np.flatnonzero(first_of(both["sender"], both["seq"]))
    kept.messages = both[starts]
    if len(starts):
        kept.messages["sent"] = np.maximum.reduceat(both["sent"], starts)
        kept.messages["acknowledged"] = np.maximum.reduceat(both["acknowledged"], starts)
        kept.messages["since"] = np.minimum.reduceat(both["since"], starts)


def _note_takings(
    kept: Consumers,
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
    kept.said.totals.given += int(given.sum())
    fresh = np.zeros(len(at), TAKING)
    fresh["consumer"], fresh["member"] = consumer[at], rows.member[at]
    fresh["sender"], fresh["seq"] = rows.sender[at], rows.seq[at]
    fresh["did"] = np.where(given, GIVEN + np.where(marked, 0, UNMARKED), DISCARDED)
    span = span_of(kept.settled, fresh["sender"], fresh["seq"])
    late = span >= 0
    known, sure = kept.takings, np.ones(len(at), bool)
    if late.any():
        before, sure[late] = _takings_of_settled(kept, fresh[late], span[late], topic[at][late])
        known = np.concatenate([known, before])
    both = np.concatenate([known, fresh])
    is_fresh = np.arange(len(both)) >= len(known)
    alarms = [
        *_repeated(kept, both, is_fresh, rows.step[at], GIVEN, run, batch),
        *_repeated(kept, both, is_fresh, rows.step[at], UNMARKED, run, batch),
    ]
    first = first_with(both, "did", GIVEN, ("consumer", "member", "sender", "seq"))[len(known) :]
    in_order = first & ~marked & sure
    alarms += _late(kept, fresh[in_order], rows, at[in_order], table, run, batch)
    both = np.concatenate([kept.takings, fresh[~late]])
    both = both[np.lexsort((both["seq"], both["sender"], both["member"], both["consumer"]))]
    starts = np.flatnonzero(first_of(both["consumer"], both["member"], both["sender"], both["seq"]))
    kept.takings = both[starts]
    if len(starts):
        kept.takings["did"] = np.bitwise_or.reduceat(both["did"], starts)
    return alarms


def _takings_of_settled(kept: Consumers, fresh: Array, span: Array, topics: Array) -> tuple[Array, list[bool]]:
    """Return what was taken before of messages that are settled and taken now; and of which of these it is sure."""
    known: list[tuple[int, ...]] = []
    before = {(number, sender, seq): did for number, _, sender, seq, did in kept.odd.tolist()}
    odd = dict(before)
    missing = {(number, sender, seq): topic for number, sender, seq, topic in kept.missing.tolist()}
    first: set[tuple[int, int, int]] = set()
    sure = []
    for taking, kind, topic in zip(fresh.tolist(), kept.settled[span, 3].tolist(), topics.tolist(), strict=True):
        number, member, sender, seq, did = taking
        one, pair = kept.said.consumers[number], (number, sender, seq)
        if pair in missing:
            kept.said.totals.taken += 1
            kept.extend(one, missing.pop(pair), sender, seq)
            first.add(pair)
        sure.append(pair in first)
        if pair not in first:
            low, high = one.reach.get(topic, {}).get(sender, (1, 0))
            told = kind == EXAMINED and not one.lost and not kept.said.topics_differ and len(before) < MISSING_MAX
            if not low <= seq <= high or not told:
                kept.leave_open()  # whether it was given it before is not known
            elif len(one.done) > 1:
                kept.said.totals.inexact[PARTITION_ORDER] = 1  # by which of its members is not known
            sure[-1] = low <= seq <= high and told
            if sure[-1]:
                known.append((number, member, sender, seq, before.get(pair, GIVEN + UNMARKED)))
        if pair in first or pair in odd:
            odd[pair] = odd.get(pair, 0) | did
    kept.odd = never_unmarked(
        np.array([(number, -1, *message, did) for (number, *message), did in odd.items()], TAKING)
    )
    kept.missing = np.array([(*pair, topic) for pair, topic in missing.items()], MISSING_ONE)
    return np.array(known, TAKING), sure


def _repeated(
    kept: Consumers, both: Array, is_fresh: Array, step: Array, did: int, run: str, batch: int
) -> list[WatchAlarm]:
    """Count the fresh deliveries of a consumer and message after the first (of those that `did` chooses)."""
    first = first_with(both, "did", did, ("consumer", "sender", "seq"))
    again = np.flatnonzero(is_fresh & ((both["did"] & did) > 0) & ~first)
    if did == GIVEN:
        kept.said.totals.again += len(again)
    else:
        kept.said.totals.again_unmarked += len(again)
    guarantee = BROKER_GUARANTEES[AT_MOST_ONCE if did == GIVEN else REDELIVERY]
    say = sentence.given_again if did == GIVEN else sentence.given_again_unmarked
    known = len(both) - len(step)
    return [
        WatchAlarm(batch, run, guarantee, member, int(step[at - known]), sender, seq, why)
        for at in again.tolist()
        for number, member, sender, seq, _ in (both[at].tolist(),)
        for why in (say(kept.said.consumers[number].name, (sender, seq)),)
    ]


def _late(
    kept: Consumers, given: Array, rows: BrokerRows, of_row: Array, table: list[BrokerWords], run: str, batch: int
) -> list[WatchAlarm]:
    """Compare what is given for the first time with the highest number of its stream; returns what is late."""
    kept.said.totals.ordered += len(given)
    highest = dict(kept.said.highest)
    words, offset, step = rows.words[of_row], rows.offset[of_row], rows.step[of_row]
    placed = offset != NO_OFFSET
    number = np.where(placed, offset, given["seq"])
    alarms = []
    for alike in alike_rows(words, np.where(placed, 0, given["sender"]), placed, given["member"]):
        first = alike[0]
        word, member = table[words[first]], int(given["member"][first])
        sender = None if placed[first] else int(given["sender"][first])
        key = (member, word.group, sender, word.topic, word.partition)
        numbers = number[alike]
        reach = np.maximum.accumulate(np.concatenate([[highest.get(key, NO_OFFSET)], numbers]))
        highest[key] = int(reach[-1])
        late = np.flatnonzero(numbers < reach[:-1])
        kept.said.totals.late += len(late)
        assert word.topic is not None, "a row of a broker has a topic"
        for at in late.tolist():
            message = (int(given["sender"][alike[at]]), int(given["seq"][alike[at]]))
            said = int(numbers[at]) if placed[first] else None
            why = sentence.given_late(member, message, said, int(reach[at]), word.topic, word.partition)
            alarms.append(WatchAlarm(batch, run, "partition-order", member, int(step[alike[at]]), *message, why))
    kept.said.highest = list(highest.items())
    return alarms


def alike_rows(*columns: Array) -> list[Array]:
    """Return the positions of rows that are alike in some columns, those of each kind together and in order."""
    order = np.lexsort(columns)
    starts = np.flatnonzero(first_of(*(column[order] for column in columns)))
    return np.split(order, starts[1:]) if len(order) else []


def first_with(takings: Array, field: str, bits: int, names: tuple[str, ...]) -> Array:
    """Which records are the first of those alike in some columns that have some bits of a field, in the order given."""
    chosen = np.flatnonzero((takings[field] & bits) > 0)
    order = chosen[np.lexsort([chosen, *(takings[name][chosen] for name in reversed(names))])]
    first = np.zeros(len(takings), bool)
    first[order] = first_of(*(takings[name][order] for name in names))
    return first
