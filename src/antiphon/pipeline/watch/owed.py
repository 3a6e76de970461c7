"""What consumers owe: it is settled, message by message, when it is older than patience."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from antiphon.pipeline import words as sentence
from antiphon.pipeline.checking.brokers import covers
from antiphon.pipeline.columns import NULL_TIME, Array
from antiphon.pipeline.results import WatchAlarm, WatchFinding
from antiphon.pipeline.watch.consumers import (
    ALONE,
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    EXAMINED,
    GIVEN,
    GROUPS_MAX,
    MESSAGES_MAX,
    MISSING_MAX,
    MISSING_ONE,
    PARTITION_ORDER,
    PERHAPS,
    REDELIVERY,
    SPANS_MAX,
    Consumer,
    Consumers,
    first_of,
    index_of,
    never_unmarked,
)
from antiphon.pipeline.watch.spans import joined, shortened, with_numbers


def settle(kept: Consumers, newest: int, patience_ns: int, run: str, batch: int) -> list[WatchAlarm]:
    """Let go of the messages that are older than patience; returns which of them a consumer has not taken."""
    messages = kept.messages
    old = np.zeros(len(messages), bool) if newest == NULL_TIME else messages["since"] < newest - patience_ns
    if len(messages) > MESSAGES_MAX:
        old[np.argsort(messages["since"], kind="stable")[: len(messages) - MESSAGES_MAX]] = True
    alarms: list[WatchAlarm] = []
    if not old.any():
        return alarms
    givers = _givers(kept)
    kind = np.where((messages["acknowledged"] > 0) | (givers > 1), EXAMINED, ALONE)
    for number, one in enumerate(kept.said.consumers):
        taken, given = _taken_by(kept, number)
        owes = _owes(kept, one, taken, over=False)
        examined = old & ((messages["acknowledged"] > 0) | (givers - given > 0))
        if one.is_over:
            one.overlooked |= bool((old & owes & ~taken & ~_owes(kept, one, taken, over=True)).any())
            owes = _owes(kept, one, taken, over=True)
        kept.said.totals.taken += int((examined & owes & taken).sum())
        lacking = messages[examined & owes & ~taken]
        alarms += _alarms(one, lacking, sentence.not_taken_yet, run, batch)
        _list_missing(kept, number, lacking)
        for sender, seq, topic in messages[old & taken][["sender", "seq", "topic"]].tolist():
            kept.extend(one, topic, sender, seq)
    topical = messages["topic"] >= 0
    known = old & (topical | (messages["acknowledged"] > 0))
    gone, kind = messages[known], np.where(topical, kind, ALONE)[known]  # a topic that shows later comes too late
    for sender, seq, topic in messages[old & topical][["sender", "seq", "topic"]].tolist():
        to = kept.said.settled_to.setdefault(topic, {})
        to[sender] = max(to.get(sender, 0), seq)
    if kept.said.topics_differ:
        kept.said.totals.inexact[AT_LEAST_ONCE] = 1  # to which topic it belongs may show later
    kept.settled = with_numbers(kept.settled, gone["sender"], gone["seq"], kind)
    kept.settled = shortened(joined(kept.settled), SPANS_MAX, PERHAPS) if len(kept.settled) else kept.settled
    going = index_of(gone, kept.takings["sender"], kept.takings["seq"]) < len(gone)
    taken = kept.takings[going]
    taken = taken[np.lexsort((taken["seq"], taken["sender"], taken["consumer"]))]
    starts = np.flatnonzero(first_of(taken["consumer"], taken["sender"], taken["seq"]))
    if len(starts):
        did = np.bitwise_or.reduceat(taken["did"], starts)
        taken = taken[starts]
        taken["did"] = did
        kept.odd = np.concatenate([kept.odd, never_unmarked(taken)])[:MISSING_MAX]
    kept.takings = kept.takings[~going]
    kept.messages = messages[~old]
    return alarms


def lacking(kept: Consumers, run: str, batch: int) -> list[WatchAlarm]:
    """Return what consumers owe and have not taken, of what is not settled."""
    givers, messages = _givers(kept), kept.messages
    alarms: list[WatchAlarm] = []
    for number, one in enumerate(kept.said.consumers):
        taken, given = _taken_by(kept, number)
        owes = _owes(kept, one, taken, over=one.is_over) & ~taken
        lacking = messages[owes & ((messages["acknowledged"] > 0) | (givers - given > 0))]
        alarms += _alarms(one, lacking, sentence.never_taken, run, batch)
    return alarms


def _alarms(one: Consumer, lacking: Array, say: Callable[..., str], run: str, batch: int) -> list[WatchAlarm]:
    return [
        WatchAlarm(batch, run, "at-least-once", min(one.done), 0, sender, seq, why)
        for sender, seq, acknowledged in lacking[["sender", "seq", "acknowledged"]].tolist()
        for why in (say(one.name, (sender, seq), acknowledged=bool(acknowledged)),)
    ]


def _list_missing(kept: Consumers, number: int, lacking: Array) -> None:
    room = max(0, MISSING_MAX - len(kept.missing))
    fresh = np.zeros(min(room, len(lacking)), MISSING_ONE)
    fresh["consumer"] = number
    for name in ("sender", "seq", "topic"):
        fresh[name] = lacking[name][: len(fresh)]
    kept.missing = np.concatenate([kept.missing, fresh])
    kept.said.consumers[number].lost += len(lacking) - len(fresh)


def _givers(kept: Consumers) -> Array:
    """To how many consumers each message was given."""
    given = kept.takings[(kept.takings["did"] & GIVEN) > 0]
    pairs = np.unique(np.stack([given["sender"], given["seq"], given["consumer"]], 1), axis=0)
    return np.bincount(index_of(kept.messages, pairs[:, 0], pairs[:, 1]), minlength=len(kept.messages) + 1)[:-1]


def _taken_by(kept: Consumers, number: int) -> tuple[Array, Array]:
    """Which messages a consumer has taken, and which it was given."""
    mine = kept.takings[kept.takings["consumer"] == number]
    at = index_of(kept.messages, mine["sender"], mine["seq"])
    taken, given = np.zeros((2, len(kept.messages) + 1), bool)
    taken[at] = True
    given[at[(mine["did"] & GIVEN) > 0]] = True
    return taken[:-1], given[:-1]


def _owes(kept: Consumers, one: Consumer, taken: Array, *, over: bool) -> Array:
    """Which messages that are kept a consumer owes; `over`: nothing after the last that it took."""
    messages = kept.messages
    low, high = _reaches(kept, one, messages["topic"], messages["sender"], taken, messages["seq"])
    return _owed(kept, one, messages["topic"], messages["seq"], low, high, over=over)


def _owed(kept: Consumers, one: Consumer, topic: Array, seq: Array, low: Array, high: Array, *, over: bool) -> Array:
    covered = np.array([any(covers(pattern, name) for pattern in one.patterns) for name in kept.said.topics] + [False])
    owes: Array = (covered[topic] | (seq >= low)) & (topic >= 0)
    return owes & (seq <= high) if over else owes


def _reaches(
    kept: Consumers, one: Consumer, topic: Array, sender: Array, taken: Array, seq: Array
) -> tuple[Array, Array]:
    """The lowest and the highest number that a consumer has taken of each one's topic and sender."""
    keys, at = np.unique(np.stack([topic, sender], 1), axis=0, return_inverse=True)
    at = at.reshape(-1)
    top = int(np.iinfo(np.int64).max)
    low, high = np.full(len(keys), top), np.full(len(keys), -1)
    np.minimum.at(low, at[taken], seq[taken])
    np.maximum.at(high, at[taken], seq[taken])
    for number, (code, who) in enumerate(keys.tolist()):
        lowest, highest = one.reach.get(code, {}).get(who, (top, -1))
        if low[number] < min(lowest, kept.said.settled_to.get(code, {}).get(who, 0)):
            kept.said.totals.inexact[AT_LEAST_ONCE] = 1  # it owes some that were settled, and may not have them
        low[number], high[number] = min(low[number], lowest), max(high[number], highest)
    return low[at], high[at]


def forget_clients(kept: Consumers, going: set[int], here: set[int]) -> None:
    """Forget clients that are let go: as senders, as members of consumers, and the consumers that had no others.

    Of a consumer that is over it is counted what is missing. What one owes that is not over is no longer known.
    """
    said = kept.said
    still = {*kept.missing["sender"].tolist(), *kept.messages["sender"].tolist()}
    senders = going - still
    said.highest = [(key, top) for key, top in said.highest if key[0] not in going and key[2] not in senders]
    kept.settled = kept.settled[~np.isin(kept.settled[:, 0], list(senders))]
    for to in said.settled_to.values():
        for sender in senders & to.keys():
            del to[sender]
    for reach in (reach for one in said.consumers for reach in one.reach.values()):
        for sender in senders & reach.keys():
            del reach[sender]
    busy = set(kept.takings["consumer"].tolist())
    stays = np.ones(len(said.consumers), bool)
    for number, one in enumerate(said.consumers):
        for member in one.done.keys() - here if one.done.keys() & here else ():
            if not one.done.pop(member):
                said.totals.inexact[AT_LEAST_ONCE] = 1  # it never said that it consumes no longer
        if one.done.keys() & here or number in busy:
            continue
        taken, _ = _taken_by(kept, number)
        if one.is_over and (_owes(kept, one, taken, over=True) & ~taken).any():
            continue
        stays[number] = False
        if one.is_over:
            said.totals.lost += _still_missing(kept, number, taken)
        else:
            said.totals.inexact[AT_LEAST_ONCE] = 1
        if one.group is not None:
            said.past_groups.append(one.group)
    said.groups_forgotten |= len(said.past_groups) > GROUPS_MAX
    del said.past_groups[:-GROUPS_MAX]
    said.consumers = [one for one, stay in zip(said.consumers, stays.tolist(), strict=True) if stay]
    kept.missing = _renumbered(kept.missing, stays)
    kept.takings = _renumbered(kept.takings, stays)
    kept.odd = _renumbered(kept.odd, stays)


def _renumbered(rows: Array, stays: Array) -> Array:
    """Keep the rows of the consumers that stay, with their new numbers."""
    rows = rows[stays[rows["consumer"]]]
    rows["consumer"] = (np.cumsum(stays) - 1)[rows["consumer"]]
    return rows


def findings(kept: Consumers, cut: set[int], unfinished: set[int], *, final: bool) -> dict[str, WatchFinding]:
    """What is known so far; `cut`: members whose logs were cut short; `unfinished`: those that may log more."""
    total = kept.said.totals
    known = 0 if total.inexact[AT_LEAST_ONCE] else total.lost
    at_least_once = WatchFinding(total.taken + total.lost, known, 0, total.inexact[AT_LEAST_ONCE])
    givers, messages = _givers(kept), kept.messages
    for number, one in enumerate(kept.said.consumers):
        taken, given = _taken_by(kept, number)
        owes = _owes(kept, one, taken, over=one.is_over)
        examined = owes & ((messages["acknowledged"] > 0) | (givers - given > 0))
        missing = int((examined & ~taken).sum()) + _still_missing(kept, number, taken)
        at_least_once.examined += int((examined & taken).sum()) + missing
        decided = not (cut if final else unfinished) & one.done.keys()
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


def _still_missing(kept: Consumers, number: int, taken: Array) -> int:
    """How many messages that are settled a consumer owes and has not taken."""
    one = kept.said.consumers[number]
    mine = kept.missing[kept.missing["consumer"] == number]
    if not one.is_over or not len(mine):
        return len(mine) + one.lost
    messages = kept.messages
    both = [np.concatenate([mine[name], messages[name]]) for name in ("topic", "sender", "seq")]
    took = np.concatenate([np.zeros(len(mine), bool), taken])
    low, high = _reaches(kept, one, both[0], both[1], took, both[2])
    count = len(mine)
    return int(_owed(kept, one, mine["topic"], mine["seq"], low[:count], high[:count], over=True).sum()) + one.lost
