"""Compiled loops over a member's columns; everything that touches each event once lives here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from antiphon.pipeline.columns import CONTROL, DELIVER, DISCARD, RECEIVE, SEND, STABLE, Array

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile a loop, and keep it compiled for the next process."""
    return cast(F, numba.njit(cache=True, nogil=True, boundscheck=False)(function))


def borrowing(function: F) -> F:
    """Compile a function that makes no arrays, without reference counting of the arrays that it is given.

    Where small functions hand a tuple of arrays to each other, the counting took most of their time.
    """
    return cast(F, numba.njit(cache=True, nogil=True, boundscheck=False, _nrt=False)(function))  # type: ignore[call-overload]


def inlined(function: F) -> F:
    """Compile a function as part of its callers: to pass many arrays costs more than what a short function does."""
    return cast(F, numba.njit(inline="always", nogil=True, boundscheck=False)(function))


def _word_at(context: Any, array: Any, at: Any) -> Any:
    """Return the eight bytes of an array from a position on, as one number; the caller knows that they are there."""

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values = target.make_array(signature.args[0])(target, builder, arguments[0])
        place = builder.gep(values.data, [arguments[1]])
        return builder.load(builder.bitcast(place, ir.IntType(64).as_pointer()), align=1)

    return types.uint64(array, types.int64), generate


word_at = cast(Callable[[Array, int], Any], intrinsic(_word_at))


@borrowing
def alike(one: Array, start: int, other: Array, other_start: int, size: int) -> bool:
    """Say whether two stretches of bytes are the same; they are compared from their ends, eight at a time."""
    if size < 8:
        i = 0
        while i < size and one[start + i] == other[other_start + i]:
            i += 1
        return bool(i == size)
    i = size - 8
    while i > 0 and word_at(one, start + i) == word_at(other, other_start + i):
        i -= 8
    return bool(i <= 0 and word_at(one, start) == word_at(other, other_start))


NEVER: Final = np.int32(2**31 - 1)


@compiled
def survey_rows(
    starts: Array,
    stops: Array,
    members: Array,
    code: Array,
    sender: Array,
    has_sender: Array,
    seq: Array,
    step: Array,
    counts: Array,
    sends: Array,
) -> bool:
    """Count the rows of stretches of one member each by event; False if one cannot be read or is out of order of step.

    `sends` gets, by stretch, the number of the first send, of the last, and whether they go up one by one.
    """
    masked = has_sender.size == code.size
    for stretch in range(starts.size):
        first_seq = last_seq = np.int64(0)
        steady = True
        for i in range(starts[stretch], stops[stretch]):
            kind = code[i]
            counts[stretch, kind] += 1
            if i > starts[stretch] and step[i] <= step[i - 1]:
                return False
            if kind < CONTROL:
                if seq[i] < 1 or (masked and not has_sender[i]):
                    return False
                if kind == SEND:
                    if sender[i] != members[stretch]:
                        return False
                    if first_seq == 0:
                        first_seq = seq[i]
                    elif seq[i] != last_seq + 1:
                        steady = False
                    last_seq = seq[i]
        sends[stretch, 0], sends[stretch, 1], sends[stretch, 2] = first_seq, last_seq, steady
    return True


@compiled
def number_messages(
    code: Array,
    sender: Array,
    seq: Array,
    senders: Array,
    table: Array,
    table_base: int,
    first_span: Array,
    low: Array,
    high: Array,
    base: Array,
    out: Array,
    slot: Array,
) -> int:
    """Give every row about a message its number in the run's universe; -1 for other rows, -2 where it has none.

    Sender i of `senders` has the spans first_span[i] .. first_span[i + 1]; span j holds the numbers low[j] .. high[j]
    and starts at base[j]. `table` (if not empty) finds a sender by its id directly. `slot` gets each row's sender i.
    Returns how many have no number.
    """
    lost = 0
    for row in range(code.size):
        if code[row] >= CONTROL or code[row] == STABLE:
            out[row] = -1
            continue
        who = np.int64(sender[row])
        if table.size:
            at = who - table_base
            s = table[at] if 0 <= at < table.size else -1
        else:
            s = np.searchsorted(senders, who)
            if s == senders.size or senders[s] != who:
                s = -1
        slot[row] = s
        out[row] = -2
        if s >= 0:
            start = first_span[s]
            stop = first_span[s + 1]
            if stop - start > 1:
                start += np.searchsorted(low[start:stop], seq[row], side="right") - 1
            if start >= first_span[s] and start < stop and low[start] <= seq[row] <= high[start]:
                out[row] = base[start] + (seq[row] - low[start])
        if out[row] == -2:
            lost += 1
    return lost


DELIVERED, DISCARDED, RECEIVED, SENT = 1, 2, 4, 8

# indices into the tallies of `walk`
REPEATED, UNSENT, LATE, UNSENT_BY_CUT, UNSENT_HANDLED_BY_CUT, DELIVERIES = range(6)
ORDER, SEEN, PAST, PAST_END, SENDS, DISCARDS = range(6, 12)


class Walk(NamedTuple):
    """What one member's log says by itself, filled as its rows are read; rows are positions in the whole log.

    Arrays are as long as they can become; how much of each is there, `tally` says.
    """

    tally: Array
    state: Array  # by message: DELIVERED, DISCARDED, RECEIVED, SENT
    since: Array  # by message: the time of its first receipt or delivery, if that is wanted; else empty
    order: Array  # first deliveries
    order_row: Array
    seen: Array  # messages in the order in which they were first delivered or discarded; empty if none is discarded
    past: Array  # first deliveries (and receipts) of sent messages, and ~message for first sends
    sends: Array  # first sends
    send_row: Array
    discards: Array
    discard_row: Array
    highest: Array  # by sender: the highest number delivered, and its row
    highest_row: Array
    integrity_rows: Array  # the first rows that break integrity, and fifo
    late_rows: Array
    late_highest_rows: Array

    def whole(self) -> Walk:
        """Return what has been filled; `past` up to the last send."""
        tally = self.tally
        return self._replace(
            order=self.order[: tally[ORDER]],
            order_row=self.order_row[: tally[ORDER]],
            seen=self.seen[: tally[SEEN]],
            past=self.past[: tally[PAST_END]],
            sends=self.sends[: tally[SENDS]],
            send_row=self.send_row[: tally[SENDS]],
        )


def begin_walk(counts: Array, messages: int, senders: int, wanted: int, *, receipts: bool, times: bool) -> Walk:
    """Make room for a log that has so many rows of each event; `wanted` rows of each kind that is wrong are noted."""
    deliveries, sends, discards = (int(counts[kind]) for kind in (DELIVER, SEND, DISCARD))
    return Walk(
        tally=np.zeros(12, np.int64),
        state=np.zeros(messages, np.uint8),
        since=np.full(messages if times else 0, np.iinfo(np.int64).max, np.int64),
        order=np.empty(deliveries, np.int32),
        order_row=np.empty(deliveries, np.int32),
        seen=np.empty(deliveries + discards if discards else 0, np.int32),
        past=np.empty(deliveries + sends + (int(counts[RECEIVE]) if receipts else 0), np.int32),
        sends=np.empty(sends, np.int32),
        send_row=np.empty(sends, np.int32),
        discards=np.empty(discards, np.int32),
        discard_row=np.empty(discards, np.int32),
        highest=np.zeros(senders, np.int64),
        highest_row=np.zeros(senders, np.int64),
        integrity_rows=np.zeros(wanted, np.int64),
        late_rows=np.zeros(wanted, np.int64),
        late_highest_rows=np.zeros(wanted, np.int64),
    )


@compiled
def walk(
    first_row: int,
    code: Array,
    message: Array,
    seq: Array,
    slot: Array,
    time: Array,
    sent: Array,
    cut: Array,
    with_receipts: bool,
    into: Walk,
) -> None:
    """Read the next rows of one member's log: what it delivers and discards, and what is wrong with that alone.

    `slot` is each row's sender (an index), `sent` whether a message has a send, `cut` whether a sender's log is cut
    short; `time` is looked at if `into.since` is there.
    """
    tally, state, since = into.tally, into.state, into.since
    order, order_row, seen, past = into.order, into.order_row, into.seen, into.past
    sends, send_row, discards, discard_row = into.sends, into.send_row, into.discards, into.discard_row
    highest, highest_row = into.highest, into.highest_row
    integrity_rows, late_rows, late_highest_rows = into.integrity_rows, into.late_rows, into.late_highest_rows
    wanted, timed, discarding = late_rows.size, since.size > 0, seen.size > 0
    for i in range(code.size):
        kind = code[i]
        m = message[i]
        if m < 0:
            continue
        row = first_row + i
        before = state[m]
        if kind == DELIVER:
            s = slot[i]
            tally[DELIVERIES] += 1
            if seq[i] > highest[s]:
                highest[s] = seq[i]
                highest_row[s] = row
            elif seq[i] < highest[s]:
                if tally[LATE] < wanted:
                    late_rows[tally[LATE]] = row
                    late_highest_rows[tally[LATE]] = highest_row[s]
                tally[LATE] += 1
            wrong = False
            if before & DELIVERED:
                tally[REPEATED] += 1
                wrong = True
            else:
                order[tally[ORDER]] = m
                order_row[tally[ORDER]] = row
                tally[ORDER] += 1
                if timed:
                    since[m] = min(since[m], time[i])
                if sent[m]:
                    past[tally[PAST]] = m
                    tally[PAST] += 1
                elif cut[s]:
                    tally[UNSENT_BY_CUT] += 1
                else:
                    tally[UNSENT] += 1
                    wrong = True
            if wrong and tally[REPEATED] + tally[UNSENT] <= wanted:
                integrity_rows[tally[REPEATED] + tally[UNSENT] - 1] = row
            if not before & (DELIVERED | DISCARDED):
                if discarding:
                    seen[tally[SEEN]] = m
                    tally[SEEN] += 1
                if not sent[m] and cut[s]:
                    tally[UNSENT_HANDLED_BY_CUT] += 1
            state[m] = before | DELIVERED
        elif kind == RECEIVE:
            if not before & RECEIVED:
                if timed:
                    since[m] = min(since[m], time[i])
                if with_receipts and sent[m]:
                    past[tally[PAST]] = m
                    tally[PAST] += 1
            state[m] = before | RECEIVED
        elif kind == SEND:
            if before & SENT:
                tally[REPEATED] += 1
                if tally[REPEATED] + tally[UNSENT] <= wanted:
                    integrity_rows[tally[REPEATED] + tally[UNSENT] - 1] = row
            else:
                sends[tally[SENDS]] = m
                send_row[tally[SENDS]] = row
                tally[SENDS] += 1
                past[tally[PAST]] = ~m
                tally[PAST] += 1
                tally[PAST_END] = tally[PAST]
            state[m] = before | SENT
        elif kind == DISCARD:
            discards[tally[DISCARDS]] = m
            discard_row[tally[DISCARDS]] = row
            tally[DISCARDS] += 1
            if not before & (DELIVERED | DISCARDED):
                seen[tally[SEEN]] = m
                tally[SEEN] += 1
                if not sent[m] and cut[slot[i]]:
                    tally[UNSENT_HANDLED_BY_CUT] += 1
            state[m] = before | DISCARDED


@compiled
def place(messages: Array, position: Array, column: int) -> None:
    """Note where each of some messages stands among them."""
    for i in range(messages.size):
        position[messages[i], column] = i


@compiled
def causal_count(past: Array, position: Array, lanes: tuple[int, ...], examined: Array, violations: Array) -> None:
    """Check one sender's messages at a block of members: position[m, j] is where member j handles m, or NEVER.

    A message is handled too early at j if a predecessor's position is later. `lanes` is as long as the block is wide,
    since the compiler knows the length of a tuple.
    """
    width = len(lanes)
    latest = np.full(width, -1, np.int32)  # made here, so that the compiler knows it overlaps with nothing
    one = np.int32(-1)  # a predecessor, and whether there is another one: m itself is none
    several = False
    for i in range(past.size):
        entry = past[i]
        if entry >= 0:
            row = np.uint32(entry)
            for j in range(width):
                latest[j] = max(latest[j], position[row, j])
            several = several or bool(one >= 0 and one != entry)
            one = entry
        else:
            row = np.uint32(~entry)
            if several or (one >= 0 and one != ~entry):
                for j in range(width):
                    here = position[row, j]
                    handled = np.int64(here != NEVER)
                    examined[j] += handled
                    violations[j] += handled & np.int64(latest[j] > here)
            for j in range(width):
                latest[j] = position[row, j]
            one = ~entry
            several = False


@compiled
def causal_count_in_views(
    past: Array, position: Array, examined: Array, violations: Array, sent_view: Array, belongs: Array
) -> None:
    """As `causal_count`, where a predecessor counts at a member only if it belongs to the view it was sent in."""
    width = position.shape[1]
    latest = np.full(width, -1, np.int32)
    counted = np.zeros(width, np.int64)
    own = np.zeros(width, np.int64)  # a message delivered before its own send is no predecessor of itself
    start = 0
    for i in range(past.size):
        entry = past[i]
        if entry >= 0:
            for j in range(width):
                if belongs[sent_view[entry], j]:
                    latest[j] = max(latest[j], position[entry, j])
                    counted[j] += 1
        else:
            m = ~entry
            own[:] = 0
            for k in range(start, i):
                if past[k] == m:
                    for j in range(width):
                        own[j] += belongs[sent_view[m], j]
            for j in range(width):
                if position[m, j] != NEVER and counted[j] > own[j]:
                    examined[j] += 1
                    if latest[j] > position[m, j]:
                        violations[j] += 1
                latest[j] = -1
                counted[j] = 0
                if belongs[sent_view[m], j]:
                    latest[j] = position[m, j]
                    counted[j] = 1
            start = i + 1


@compiled
def causal_find(past: Array, position: Array, counts: Array, found: Array, cause: Array) -> int:
    """One sender's messages that one member handles too early, each with the smallest predecessor that it lacks.

    `counts[m]` says whether a message counts as a predecessor at this member. Returns how many; fills found and cause.
    """
    n = 0
    start = 0
    previous = -1
    for i in range(past.size):
        if past[i] >= 0:
            continue
        m = ~past[i]
        here = position[m]
        if here != NEVER:
            smallest = -1
            if previous >= 0 and counts[previous] and position[previous] > here:
                smallest = previous
            for k in range(start, i):
                p = past[k]
                if p != m and counts[p] and position[p] > here and (smallest < 0 or p < smallest):
                    smallest = p
            if smallest >= 0:
                found[n] = m
                cause[n] = smallest
                n += 1
        previous = m
        start = i + 1
    return n


@compiled
def mark(messages: Array, low: int, high: int, mask: Array) -> None:
    """Mark the messages between low and high in a mask that starts at low."""
    for m in messages:
        if low <= m < high:
            mask[m - low] = 1


@compiled
def lacking(candidates: Array, bits: Array, found: Array) -> int:
    """The candidates whose bit is not set; returns how many, fills found."""
    n = 0
    for m in candidates:
        if not (bits[m >> 3] >> (m & 7)) & 1:
            found[n] = m
            n += 1
    return n


@compiled
def begins_alike(one: Array, other: Array) -> bool:
    """Whether one of two sequences is the beginning of the other."""
    shorter = min(one.size, other.size)
    alike = 0
    while alike < shorter and one[alike] == other[alike]:
        alike += 1
    return bool(alike == shorter)


@compiled
def first_inversion(one: Array, position: Array) -> tuple[int, int, int]:
    """Walk one member's order of the messages that another has at position (-1 if not).

    Returns (how many are common, the neighbours that the other has the other way round or -1, -1); the count may stop
    at the inversion, and is at least 2 there.
    """
    common = 0
    previous = -1
    for m in one:
        here = position[m]
        if here < 0:
            continue
        common += 1
        if previous >= 0 and here < position[previous]:
            return common, previous, m
        previous = m
    return common, -1, -1


def distinct(pieces: list[Array], low: int, high: int) -> Array:
    """The distinct messages from low up to high in some arrays, in order."""
    if sum(len(piece) for piece in pieces) * 64 < high - low:  # few of many: sorting is cheaper than a mask of all
        together = np.unique(np.concatenate([np.zeros(0, np.int32), *pieces]))
        return together[(together >= low) & (together < high)]
    mask = np.zeros(high - low, np.uint8)
    for piece in pieces:
        mark(piece, low, high, mask)
    return (np.flatnonzero(mask) + low).astype(np.int32)


@compiled
def _number_id(one: int, who: int, whose: Array, number: Array, count: Array) -> bool:
    """Give an id its owner's next number if it has none; False if it is another owner's."""
    if whose[one] < 0:
        whose[one] = who
        count[who] += 1
        number[one] = count[who]
    return bool(whose[one] == who)


@compiled
def number_by_owner(code: Array, owner: Array, sent: Array, sender: Array, ids: int, owners: int, seq: Array) -> bool:
    """Number the ids of each owner from 1: first those that were sent, then the others as they come.

    False if some id has several owners, so that it has no number of its own.
    """
    whose = np.full(ids, -1, np.int32)
    number = np.zeros(ids, np.int64)
    count = np.zeros(owners, np.int64)
    for i in range(sent.size):
        if not _number_id(sent[i], sender[i], whose, number, count):
            return False
    for i in range(code.size):
        if not _number_id(code[i], owner[i], whose, number, count):
            return False
        seq[i] = number[code[i]]
    return True
