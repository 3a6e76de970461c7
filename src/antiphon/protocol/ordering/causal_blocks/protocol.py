"""The rules of causal blocks: when a message may be delivered, sent again, let go, discarded or skipped.

Every message carries its block number (a logical clock) and the block numbers of the last messages that its sender had
delivered; it is delivered after those. As these stamps also say what everyone has delivered, any member that keeps a
message can see who lacks it and send it again, and all let it go when everyone has delivered it. Messages without data
(nulls) break a silence for as long as something is unstable. The channel may lose, double and reorder at will.

The names in capitals are the paper's: BC the block counter, BM the block matrix, LDV the blocks of the last delivered
messages, MLDV what is known of everyone's LDV, MB the block up to which something was received from everyone, MBV what
is known of everyone's MB; R1.0 to R5.0 are its rules. `docs/protocols/causal-blocks.md` says where we depart from them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush, merge, nsmallest
from operator import gt
from typing import ClassVar

import msgspec
from msgspec.structs import replace

from antiphon.protocol.machine import Deliver, Drop, Instant, Stable, Submit, earliest
from antiphon.protocol.ordering.causal_blocks.matrix import Column, Entry
from antiphon.protocol.ordering.causal_blocks.messages import (
    BLOCK_MAX,
    EARLY_MAX,
    PRIORITY_MAX,
    BlockMessage,
    CausalBlocksOptions,
    NullMessage,
)
from antiphon.protocol.parts import Duplicate, Ending, Out, PartContext, Received, Step
from antiphon.protocol.wire import Malformed, Pdu, Streamed, pack_vector, unpack_vector


def _block(entry: Entry) -> int:
    return entry.message.block


class _Gap(msgspec.Struct, frozen=True):
    """Messages of one sender up to (block, seq) that are missing here, and since when this is known."""

    since: Instant
    block: int
    seq: int
    ldv: list[int]  # all that can have come before them


class CausalBlocks(Ending):
    """Causal order on a lossy network, with recovery, stability and flow control of its own."""

    PDUS: ClassVar[tuple[type[Pdu], ...]] = (BlockMessage, NullMessage)
    NEEDS_RECOVERY: ClassVar[bool] = False
    PROMISES: ClassVar[tuple[str, ...]] = ("fifo", "causal")
    Options: ClassVar[type[msgspec.Struct]] = CausalBlocksOptions

    def __init__(self, context: PartContext, options: CausalBlocksOptions) -> None:
        size = context.size
        self._rank, self._size, self._random, self._options = context.rank, size, context.random, options
        self._repeat_ns = options.repeat_ns or options.silence_ns
        self._unstable_max = options.window + options.lag  # of one sender
        self.BC = 0
        self.BM = [Column() for _ in range(size)]
        self.MLDV = [[0] * size for _ in range(size)]
        self.LDV = self.MLDV[context.rank]  # the same knowledge, so the same list
        self.MBV = [0] * size
        self._highest = [0] * size  # per member, the highest block received: all that MB needs of the block matrix
        self._passed_seq = [0] * size  # per sender, the last message delivered or discarded here
        self._stable_seq = [0] * size  # per sender, the last message that everyone has delivered
        # per member, what waited there at its last null, and the block up to which that was all
        self._early: list[frozenset[tuple[int, int]]] = [frozenset() for _ in range(size)]
        self._told = [0] * size
        self._lapsed = [0] * size  # per sender, how many of its first messages that are kept have lapsed
        self._waiting: dict[tuple[int, int], Entry] = {}  # received, not yet delivered, and not wanted again
        self._waiters: list[list[tuple[int, int, Entry]]] = [[] for _ in range(size)]  # heaps of (block awaited, ...)
        self._waits = 0  # so far, to tell equal ones apart
        self._places_taken = 0  # of the buffer, by messages that wait with their payload
        self._lacking: dict[int, int] = {}  # sender -> block of a message that someone has delivered and we have not
        self._gaps: dict[int, _Gap] = {}
        self._gap_at: Instant | None = None
        self._repair_at: Instant | None = None
        self._answer_at: dict[int, Instant] = {}  # who asked -> when; all at once would overrun the one who asked
        self._silent_since: Instant = 0
        self._pause_ns, self._jittered = options.silence_ns, context.jittered
        self._was_restless = options.always
        self._untold = 0  # deliveries since this member last said what it has
        self.held = 0
        self.overruns = 0

    # What the member reads

    @property
    def deadline(self) -> Instant | None:
        """When a silence is to be broken, a message sent again or a gap skipped."""
        silence = self._silent_since + self._pause_ns if self._restless else None
        answer = min(self._answer_at.values(), default=None)
        return earliest(silence, self._repair_at, self._gap_at, answer, self._lapse_at)

    def may_submit(self, priority: int) -> bool:
        """Keep to the window of own messages that someone may still lack, and to the numbers that the wire has.

        Those whose life is over take places of their own, if there are any: who is slow holds nobody back by them.
        """
        unstable = self._passed_seq[self._rank] - self._stable_seq[self._rank]
        alive = unstable - self._lapsed[self._rank]
        return alive < self._options.window and unstable < self._unstable_max and self.BC < BLOCK_MAX

    def lag(self) -> dict[int, int | None]:
        """Say how many of the messages that are kept here each member is not known to have delivered."""
        lacking: dict[int, int | None] = {}
        for j, row in enumerate(self.MLDV):
            count = sum(len(list(column.between(row[k], BLOCK_MAX + 1))) for k, column in enumerate(self.BM) if k != j)
            if j != self._rank and count:
                lacking[j] = count
        return lacking

    # What happens

    def submit(self, message: Submit, seq: int, now: Instant) -> Step:
        """Stamp a message, multicast it and deliver it here."""
        ldv = list(self.LDV)  # R2.0
        block, mb = self._next_block()
        limits = [life for life in (message.lifetime_ns, self._options.skip_after_ns or None) if life is not None]
        life = max(0, min(limits)) if limits else None
        priority = max(-PRIORITY_MAX, min(PRIORITY_MAX, message.priority))
        stable = self._stable_seq[self._rank]
        pdu = BlockMessage(self._rank, seq, block, mb, pack_vector(ldv), stable, priority, life, message.payload)
        step = Step([Received(self._rank, seq)], [Out(pdu, None, self._rank, seq)])
        entry = self._enter(pdu, ldv, now)
        self._consider(entry, now, step)
        if not self._waiting:  # else a null is due all the same: only nulls tell what waits
            self._spoke(now)
        self._pause_ns = self._options.silence_ns
        return self._settle(now, step)

    def accept(self, source: int, pdu: Streamed, now: Instant) -> Step:
        """Refuse: this ordering has no reliable streams."""
        raise Malformed("unexpected")

    def receive(self, source: int, pdu: Pdu, now: Instant) -> Step:
        """Take a message, whoever sent it on, or a null."""
        match pdu:
            case BlockMessage():
                step = self._receive_message(pdu, now)
            case NullMessage():
                step = self._receive_null(source, pdu, now)
            case _:
                raise Malformed("unexpected")
        return self._settle(now, step)

    def wake(self, now: Instant) -> Step:
        """Send again what others miss, and break the silence, where it is time."""
        step = Step([], [])
        if self._repair_at is not None and self._repair_at <= now:
            self._repair_at = None
            self._repair(now, step)
        for source in [source for source, instant in self._answer_at.items() if instant <= now]:
            del self._answer_at[source]
            step.down.append(Out(self._null(asking=False), (source,)))
        if self._restless and self._silent_since + self._pause_ns <= now:
            self._report(now, step)
        return self._settle(now, step)

    # The rules, each in one place

    def maximum_block(self) -> int:
        """MB: the highest block such that something of it or later has come from everyone."""
        return min(self._highest)

    def delivery_condition(self, entry: Entry) -> bool:
        """Say whether all that its sender had delivered is delivered here: m.ldv[j] <= LDV[j] for every j.

        LDV only grows, so what was met once stays met and each message looks at each member once.
        """
        ldv, LDV, met = entry.ldv, self.LDV, entry.met
        while met < self._size and ldv[met] <= LDV[met]:
            met += 1
        entry.met = met
        return met == self._size

    def is_new(self, sender: int, block: int) -> bool:
        """Say whether a message was never here: neither kept, nor delivered and let go."""
        return block > self.LDV[sender] and self.BM[sender].get(block) is None

    def is_stable(self, entry: Entry) -> bool:
        """Say whether everyone has delivered it: MLDV[j][m.s] >= m.b for every j but the sender."""
        return entry.missing == 0

    def retransmission_condition(self, j: int, below: int, suspects: Sequence[int]) -> Iterator[Entry]:
        """R5.0: give the messages with MLDV[j][k] < m.b < min(MBV) that member j could deliver, one after the other.

        What it could deliver at once is certainly missing there; what would follow then may already wait there, unless
        its last null told otherwise. Blocks respect causality, so in their order one look at each is enough.
        """
        early, told, left = self._early[j], self._told[j], self._options.burst
        delivered = list(self.MLDV[j])
        delivered[j] = self._highest[j]  # it never lacks its own
        row = list(delivered)  # what it will have delivered when the repairs have come
        columns = [self.BM[k].between(row[k], below) for k in suspects if k != j]
        for entry in merge(*columns, key=_block):
            k, block, seq = entry.message.sender, entry.message.block, entry.message.seq
            if any(map(gt, entry.ldv, row)):
                continue  # it has to wait for something that only others can send
            certain = not any(map(gt, entry.ldv, delivered))
            if certain or (k, seq) not in early:
                if not entry.sendable or not (certain or block < told):
                    continue
                yield entry
                left -= 1
                if left == 0:
                    return
            row[k] = block

    def suppress(self, entry: Entry, now: Instant) -> None:
        """Leave a message alone for one report period, since a copy of it is on its way to everyone."""
        entry.repair_after = now + self._repeat_ns

    def victim(self, newcomer: Entry) -> Entry:
        """Choose what a full buffer gives up: of the lowest priority, the one furthest from its delivery."""
        waiting = [entry for entry in self._waiting.values() if entry.whole]
        return min([*waiting, newcomer], key=lambda entry: (entry.message.priority, -entry.message.block))

    # Receiving

    def _receive_message(self, pdu: BlockMessage, now: Instant) -> Step:
        k, step = pdu.sender, Step([], [])
        if k >= self._size:
            raise Malformed("impossible-sender")
        if pdu.seq <= pdu.stable:
            raise Malformed("impossible-window")
        ldv = self._checked(k, pdu.block, pdu.mb, pdu.ldv, pdu.seq, pdu.stable)
        if k != self._rank:
            self._hear(k, pdu.block, pdu.mb, ldv, pdu.stable, step)
            if self.is_new(k, pdu.block):
                self._receive_new(pdu, ldv, now, step)
                return step
        entry = self.BM[k].get(pdu.block)
        if entry is not None:
            self.suppress(entry, now)
            if not entry.whole and entry.discard is None and not entry.passed:
                self._refill(entry, pdu, now, step)
                return step
        step.up.append(Duplicate(k, pdu.seq))
        return step

    def _receive_new(self, pdu: BlockMessage, ldv: list[int], now: Instant, step: Step) -> None:
        k = pdu.sender
        if len(self.BM[k]) >= self._unstable_max:
            self.overruns += 1  # its sender did not keep to the window
            return
        entry = self._enter(pdu, ldv, now)
        self._pause_ns = self._options.silence_ns
        step.up.append(Received(k, pdu.seq))
        if pdu.life_ns == 0:
            entry.whole, entry.discard = False, "expired"
        self._place(entry, now, step)
        if not entry.passed:
            self._missing_since(k, ldv[k], pdu.seq - 1, ldv, now)

    def _refill(self, entry: Entry, pdu: BlockMessage, now: Instant, step: Step) -> None:
        """Take the payload of a message that was shed."""
        if pdu.life_ns == 0:
            entry.discard = "expired"
        else:
            entry.message, entry.whole = pdu, True
        self._place(entry, now, step)

    def _place(self, entry: Entry, now: Instant, step: Step) -> None:
        """Deliver a message if it can be, else find a place for it to wait."""
        self._waiting[entry.message.sender, entry.message.seq] = entry
        self._places_taken += entry.whole
        self._consider(entry, now, step)
        if not entry.passed and self._options.buffer and self._places_taken > self._options.buffer:
            self._shed(self.victim(entry))

    def _shed(self, entry: Entry) -> None:
        """Give up the payload of a message; it is recovered when others see that it is missing, or not at all."""
        entry.strip()
        self._places_taken -= 1
        if self._options.shed == "discard":
            entry.discard = "shed"
        else:
            del self._waiting[entry.message.sender, entry.message.seq]

    def _receive_null(self, source: int, pdu: NullMessage, now: Instant) -> Step:
        if source == self._rank:
            raise Malformed("impossible-sender")
        ldv, step = self._checked(source, pdu.block, pdu.mb, pdu.ldv, pdu.seq, pdu.stable), Step([], [])
        if self._hear(source, pdu.block, pdu.mb, ldv, pdu.stable, step):
            self._early[source], self._told[source] = frozenset(pdu.early), pdu.told
            self._missing_since(source, ldv[source], pdu.seq, ldv, now)
            if pdu.asking and not self._restless:
                self._answer_at.setdefault(source, now + self._random.randint(0, self._options.repair_delay_ns))
        return step

    def _checked(self, k: int, block: int, mb: int, packed: bytes, seq: int, stable: int) -> list[int]:
        """Take stamps from the wire; refuse what no correct member says, before anything changes."""
        ldv = unpack_vector(packed, self._size)
        if mb > block or max(ldv) >= block:
            raise Malformed("impossible-stamps")
        if not 0 <= seq - stable <= self._unstable_max:
            raise Malformed("impossible-window")
        if ldv[self._rank] > self.LDV[self._rank] or (k == self._rank and block > self.LDV[k]):
            raise Malformed("never-sent")  # someone claims a message of ours that does not exist
        if stable > self._passed_seq[k]:
            raise Malformed("never-delivered")  # not everyone has delivered it: we have not
        return ldv

    def _hear(self, k: int, block: int, mb: int, ldv: list[int], stable: int, step: Step) -> bool:
        """R1.1, R3.0 and R4.0: take note of a member's stamps, if they are its newest."""
        self._let_go(k, stable, step)
        if block <= self._highest[k]:
            return False
        self._highest[k] = block
        self.BC = max(self.BC, block)  # at receipt already: safe, and losses show sooner
        changed = mb != self.MBV[k]
        self.MBV[k] = mb
        for x, known in enumerate(ldv):
            if known > self.MLDV[k][x]:
                changed = True
                self._know(k, x, known, step)
                if known > self.LDV[x]:
                    self._lacking[x] = max(known, self._lacking.get(x, 0))
        if changed:
            self._pause_ns = self._options.silence_ns
        return True

    # Delivering

    def _enter(self, pdu: BlockMessage, ldv: list[int], now: Instant) -> Entry:
        """Put a message into the block matrix."""
        k, block = pdu.sender, pdu.block
        missing = sum(1 for j, row in enumerate(self.MLDV) if j != k and row[k] < block)
        entry = Entry(pdu, ldv, None if pdu.life_ns is None else now + pdu.life_ns, missing)
        self.BM[k].insert(entry)
        self.held += 1
        return entry

    def _consider(self, entry: Entry, now: Instant, step: Step) -> None:
        """Deliver or discard a message if its turn has come, and all that waited for it."""
        candidates = deque([entry])
        while candidates:
            entry = candidates.popleft()
            if entry.passed:
                continue
            if not self.delivery_condition(entry):
                if not entry.awaits:
                    self._await(entry)
            elif entry.whole or entry.discard is not None:
                self._pass(entry, now, step)
                candidates.extend(self._freed(entry.message.sender))

    def _await(self, entry: Entry) -> None:
        """Look at the message again when the first predecessor that it lacks is delivered."""
        entry.awaits = True
        self._waits += 1
        x = min(entry.met, self._size - 1)
        heappush(self._waiters[x], (entry.ldv[x], self._waits, entry))

    def _freed(self, k: int) -> list[Entry]:
        """Give the messages that waited for what k's messages have reached now."""
        waiters, freed = self._waiters[k], []
        while waiters and waiters[0][0] <= self.LDV[k]:
            freed.append(heappop(waiters)[2])
            freed[-1].awaits = False
        return freed

    def _pass(self, entry: Entry, now: Instant, step: Step) -> None:
        """Deliver a message in its causal turn or, if its life is over, discard it."""
        message = entry.message
        k, seq = message.sender, message.seq
        if entry.discard is None and entry.expired(now) and k != self._rank:
            entry.discard = "expired"
        if entry.discard is None:
            step.up.append(Deliver(k, seq, message.payload))
        else:
            step.up.append(Drop(entry.discard, k, seq))
        self._passed(entry)
        self._passed_seq[k] = seq
        self._advance(k, message.block, step)

    def _passed(self, entry: Entry) -> None:
        """Free the place of a message that waits no more; one that was discarded keeps its stamps only."""
        entry.passed = True
        if self._waiting.pop((entry.message.sender, entry.message.seq), None) is not None:
            self._places_taken -= entry.whole
        if entry.discard is not None and entry.whole:
            entry.strip()

    def _advance(self, k: int, block: int, step: Step) -> None:
        """R2.1, R2.2 and R3.2: LDV reaches a message."""
        self._know(self._rank, k, block, step)
        if self._lacking.get(k, block + 1) <= block:
            del self._lacking[k]
        if k != self._rank:
            self._untold += 1

    # Stability at delivery

    def _know(self, j: int, k: int, block: int, step: Step) -> None:
        """Learn that member j has delivered k's messages up to a block; each message counts each member once."""
        row = self.MLDV[j]
        if j != k:
            for entry in self.BM[k].between(row[k], block + 1):
                entry.missing -= 1
        row[k] = block
        stable = 0
        while (first := self.BM[k].first) is not None and first.passed and self.is_stable(first):
            stable = self._release(k)
        self._announce(k, stable, step)

    def _let_go(self, k: int, stable: int, step: Step) -> None:
        """Hear from a sender that everyone has delivered its messages up to a number."""
        last = 0
        while (first := self.BM[k].first) is not None and first.message.seq <= stable:
            for j, row in enumerate(self.MLDV):
                if j != k and row[k] < first.message.block:
                    row[k] = first.message.block
            last = self._release(k)
        self._announce(k, last, step)

    def _release(self, k: int) -> int:
        entry = self.BM[k].pop()
        self._lapsed[k] -= entry.lapsed
        self.held -= 1
        self._stable_seq[k] = entry.message.seq
        return entry.message.seq

    def _announce(self, k: int, seq: int, step: Step) -> None:
        # where gaps are skipped, a member may have passed what it never held: nothing is then called stable
        if seq and not self._options.skip_after_ns:
            step.up.append(Stable(k, seq))

    # Recovery

    def _missing_elsewhere(self) -> Iterator[Entry]:
        """Give every message that R5.0 allows to send again; only columns that lag behind min(MBV) are looked at."""
        below = min(self.MBV)
        suspects = [k for k, column in enumerate(self.BM) if column.blocks and column.blocks[0] < below]
        if suspects:
            for j in range(self._size):
                if j != self._rank:
                    yield from self.retransmission_condition(j, below, suspects)

    def _plan(self, now: Instant) -> None:
        """Set a random time for the next repair, if any message may be sent again."""
        if self._repair_at is None and self.held:
            first = min((entry.repair_after for entry in self._missing_elsewhere()), default=None)
            if first is not None:
                self._repair_at = max(now, first) + self._random.randint(0, self._options.repair_delay_ns)

    def _repair(self, now: Instant, step: Step) -> None:
        """Send again what is still missing elsewhere and has not just been sent by anyone."""
        due = {
            (entry.message.block, entry.message.sender): entry
            for entry in self._missing_elsewhere()
            if entry.repair_after <= now
        }
        for (_, k), entry in sorted(due.items(), key=lambda item: item[0]):
            self.suppress(entry, now)
            step.down.append(Out(entry.copy(now), None, k, entry.message.seq, repair=True))

    # Silence

    @property
    def _restless(self) -> bool:
        """Whether something is unstable here, or someone has what we lack: then we do not stay silent."""
        return self.held > 0 or bool(self._lacking) or self._options.always

    def _next_block(self) -> tuple[int, int]:
        """R1.0 and R4.1: count a message of one's own; give its block and its MB."""
        self.BC = min(self.BC + 1, BLOCK_MAX)
        self._highest[self._rank] = self.BC
        mb = self.MBV[self._rank] = self.maximum_block()
        return self.BC, mb

    def _null(self, *, asking: bool) -> NullMessage:
        block, mb = self._next_block()
        early = nsmallest(EARLY_MAX, self._waiting.values(), key=_block)
        told = _block(early[-1]) if len(early) == EARLY_MAX else mb
        listed = [(entry.message.sender, entry.message.seq) for entry in early]
        own, stable = self._passed_seq[self._rank], self._stable_seq[self._rank]
        return NullMessage(block, mb, pack_vector(self.LDV), own, stable, asking, listed, told)

    def _report(self, now: Instant, step: Step) -> None:
        """Tell everyone what is delivered here; with no news, the next silence is longer."""
        step.down.append(Out(self._null(asking=self.held > 0 or bool(self._lacking))))
        self._spoke(now)
        if not self._options.always:
            longer = min(2 * self._pause_ns, self._options.silence_ns_max)
            self._pause_ns = self._jittered(max(self._options.silence_ns, longer))

    def _spoke(self, now: Instant) -> None:
        self._silent_since = now
        self._untold = 0

    def _settle(self, now: Instant, step: Step) -> Step:
        """See what the new state asks for, at the end of every call."""
        if self._options.lag:
            self._lapse(now)
        if self._options.skip_after_ns:
            self._skip(now, step)
        if self._restless and not self._was_restless:
            self._silent_since = now  # a quiet member answers together, not at the first of several messages
            self._pause_ns = self._options.silence_ns
        self._was_restless = self._restless
        if self._untold > self._options.window // 2:
            self._report(now, step)  # its senders may be waiting for room in their windows
        self._plan(now)
        return step

    # Lagging

    @property
    def _lapse_at(self) -> Instant | None:
        """When a message of one's own will lapse and so make room in a window that is full."""
        lapsed = self._lapsed[self._rank]
        if not self._options.lag or len(self.BM[self._rank]) - lapsed < self._options.window:
            return None
        first = self.BM[self._rank].at(lapsed)
        return None if first is None else first.expires_at

    def _lapse(self, now: Instant) -> None:
        """Let the payloads go of what was delivered here and has outlived its time; who lacks it gets the stamps."""
        for k, column in enumerate(self.BM):
            while (entry := column.at(self._lapsed[k])) is not None and entry.passed and entry.expired(now):
                if entry.whole:
                    entry.strip()
                entry.lapsed = True
                self._lapsed[k] += 1

    # When the view ends: see `Keeper` and `Ending`

    def reach(self) -> list[int]:
        """Say up to which block each sender's messages are delivered here: with all that came before them."""
        return list(self.LDV)

    def copies(self, source: int, above: int, upto: int) -> list[tuple[int, Pdu]]:
        """Give a sender's messages by their blocks; of what was discarded only the stamps are left."""
        return [
            (entry.message.block, entry.message if entry.whole else replace(entry.message, life_ns=0, payload=b""))
            for entry in self.BM[source].between(above, upto + 1)
        ]

    def adopt(self, source: int, pdu: Pdu) -> Step:
        """Take a message that another member has delivered."""
        if not isinstance(pdu, BlockMessage) or pdu.sender != source:
            raise Malformed("unexpected")
        step, entry = Step([], []), self.BM[source].get(pdu.block)
        if entry is None:
            entry = self._enter(pdu, unpack_vector(pdu.ldv, self._size), 0)
            step.up.append(Received(source, pdu.seq))
        elif not entry.whole and entry.discard is None:
            entry.message, entry.whole = pdu, True
        if pdu.life_ns == 0:
            entry.whole, entry.discard = False, entry.discard or "expired"
        return step

    def finish(self, reach: Sequence[int], order: bytes) -> Step:
        """Deliver what someone has delivered, in the order of blocks, which respects causality."""
        rest = [
            entry
            for k, column in enumerate(self.BM)
            for entry in column.between(self.LDV[k], reach[k] + 1)
            if not entry.passed
        ]
        step = Step([], [])
        for entry in sorted(rest, key=lambda entry: (entry.message.block, entry.message.sender)):
            message, entry.passed = entry.message, True
            if entry.discard is None:
                step.up.append(Deliver(message.sender, message.seq, message.payload))
            else:
                step.up.append(Drop(entry.discard, message.sender, message.seq))
        return step

    # Skipping

    def _missing_since(self, k: int, block: int, seq: int, ldv: list[int], now: Instant) -> None:
        """Note that k's messages up to (block, seq) exist, unless an older gap is already being watched."""
        if self._options.skip_after_ns and block > self.LDV[k] and k not in self._gaps:
            self._gaps[k] = _Gap(now, block, seq, ldv)

    def _skip(self, now: Instant, step: Step) -> None:
        """Discard what is missing and known for a whole lifetime, in its causal turn."""
        moved = True
        while moved:
            moved = False
            for k, gap in list(self._gaps.items()):
                if self.LDV[k] >= gap.block:
                    del self._gaps[k]
                elif gap.since + self._options.skip_after_ns <= now and self._reached(gap.ldv, k):
                    del self._gaps[k]
                    self._skip_to(k, gap, now, step)
                    moved = True
        ends = [gap.since + self._options.skip_after_ns for gap in self._gaps.values()]
        self._gap_at = min((end for end in ends if end > now), default=None)

    def _reached(self, ldv: Sequence[int], k: int) -> bool:
        return all(block <= mine for x, (block, mine) in enumerate(zip(ldv, self.LDV, strict=True)) if x != k)

    def _skip_to(self, k: int, gap: _Gap, now: Instant, step: Step) -> None:
        for entry in self.BM[k].between(self.LDV[k], gap.block + 1):
            entry.discard = "expired"
            self._passed(entry)
        for seq in range(self._passed_seq[k] + 1, gap.seq + 1):
            step.up.append(Drop("expired", k, seq))
        self._passed_seq[k] = gap.seq
        self._advance(k, gap.block, step)
        for entry in self._freed(k):
            self._consider(entry, now, step)
