"""Causal blocks with one rule broken each: the paper's printed rules first, then bugs that one could write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from antiphon.protocol.machine import Instant, Submit
from antiphon.protocol.ordering.causal_blocks import CausalBlocks, NullMessage
from antiphon.protocol.ordering.causal_blocks.matrix import Entry
from antiphon.protocol.parts import Step
from antiphon.protocol.wire import pack_vector, unpack_vector

NEVER = 2**62

# As printed


class PrintedDeliveryRule(CausalBlocks):
    """Figure 6, line 1: m.ldv >= LDV."""

    def delivery_condition(self, entry: Entry) -> bool:
        return all(block >= mine for block, mine in zip(entry.ldv, self.LDV, strict=True))


class PrintedTransmitter(CausalBlocks):
    """Figure 5: neither m.mb nor MBV[i] is ever set."""

    def maximum_block(self) -> int:
        return 0


class PrintedRetransmissionRule(CausalBlocks):
    """R5.0 with i != k: nobody sends its own messages again."""

    def retransmission_condition(self, j: int, below: int, suspects: Sequence[int]) -> Iterator[Entry]:
        return super().retransmission_condition(j, below, [k for k in suspects if k != self._rank])


class PrintedMinimum(CausalBlocks):
    """R5.0's minimum taken over all of k's messages in the block matrix, missing or not."""

    def retransmission_condition(self, j: int, below: int, suspects: Sequence[int]) -> Iterator[Entry]:
        for k in suspects:
            first = self.BM[k].first
            if k != j and first is not None and self.MLDV[j][k] < first.message.block < below:
                yield first


class PrintedTrigger(CausalBlocks):
    """Figure 3: fires only when min(MBV) has changed, once."""

    fired_at = 0

    def _plan(self, now: Instant) -> None:
        if self._repair_at is None and min(self.MBV) != self.fired_at:
            super()._plan(now)
            if self._repair_at is not None:
                self.fired_at = min(self.MBV)


class PrintedReceiver(CausalBlocks):
    """Figure 4, line 9: whatever is not in the block matrix is new."""

    def is_new(self, sender: int, block: int) -> bool:
        return self.BM[sender].get(block) is None


class LetsGoAtMbv(CausalBlocks):
    """A copy goes when everyone has received something later."""

    def is_stable(self, entry: Entry) -> bool:
        return entry.message.block < min(self.MBV)


class PrintedNulls(CausalBlocks):
    """Nulls are part of the causal history: a message waits for the nulls that its sender had sent."""

    def _null(self, *, asking: bool) -> NullMessage:
        null = super()._null(asking=asking)
        self.LDV[self._rank] = null.block
        return null

    def _receive_null(self, source: int, pdu: NullMessage, now: Instant) -> Step:
        step = super()._receive_null(source, pdu, now)
        if unpack_vector(pdu.ldv, self._size)[source] == self.LDV[source] < pdu.block:
            self._advance(source, pdu.block, step)
            for entry in self._freed(source):
                self._consider(entry, now, step)
        return step


class PrintedExpiry(CausalBlocks):
    """An expired message advances LDV as soon as it comes."""

    def _place(self, entry: Entry, now: Instant, step: Step) -> None:
        if entry.expired(now):
            self._pass(entry, now, step)
        else:
            super()._place(entry, now, step)


# Bugs


class DeliversOnReceipt(CausalBlocks):
    """Delivers whatever comes."""

    def delivery_condition(self, entry: Entry) -> bool:
        return True


class DeliversPerSender(CausalBlocks):
    """Waits for its sender's earlier messages only."""

    def delivery_condition(self, entry: Entry) -> bool:
        k = entry.message.sender
        entry.met = k
        return entry.ldv[k] <= self.LDV[k]


class ForgetsWhatItDelivered(CausalBlocks):
    """Stamps messages with its own history alone."""

    def submit(self, message: Submit, seq: int, now: Instant) -> Step:
        known, own = list(self.LDV), self.LDV[self._rank]
        self.LDV[:] = [own if x == self._rank else 0 for x in range(self._size)]
        step = super().submit(message, seq, now)
        self.LDV[:] = [self.LDV[x] if x == self._rank else block for x, block in enumerate(known)]
        return step


class IgnoresOthersClocks(CausalBlocks):
    """The block counter counts its own messages only."""

    def _hear(self, k: int, block: int, mb: int, ldv: list[int], stable: int, step: Step) -> bool:
        counter = self.BC
        fresh = super()._hear(k, block, mb, ldv, stable, step)
        self.BC = counter
        return fresh


class OneMayLack(CausalBlocks):
    """Calls a message stable when all but one have delivered it."""

    def is_stable(self, entry: Entry) -> bool:
        return entry.missing <= 1


class RepairsOnce(CausalBlocks):
    """A repair that is lost too is never sent again."""

    def suppress(self, entry: Entry, now: Instant) -> None:
        entry.repair_after = NEVER


class AnswersNobody(CausalBlocks):
    """A member that lacks nothing does not answer those who still ask."""

    def _receive_null(self, source: int, pdu: NullMessage, now: Instant) -> Step:
        pdu.asking = False
        return super()._receive_null(source, pdu, now)


class StaysSilent(CausalBlocks):
    """Never breaks a silence."""

    @property
    def _restless(self) -> bool:
        return False


class ReportsWhatItReceived(CausalBlocks):
    """Its nulls tell what it has received as if it were delivered."""

    def _null(self, *, asking: bool) -> NullMessage:
        null = super()._null(asking=asking)
        ldv = [max([mine, *self.BM[k].blocks]) for k, mine in enumerate(self.LDV)]
        null.ldv = pack_vector(ldv)
        return null


class KeepsEverything(CausalBlocks):
    """Never lets a copy go."""

    def is_stable(self, entry: Entry) -> bool:
        return False

    def _let_go(self, k: int, stable: int, step: Step) -> None:
        return


# name -> (ordering, the guarantee that it breaks; 'stuck' where deliveries fail to come, 'undrained' where buffers
# never empty although everything was delivered)
MUTANTS: dict[str, tuple[type[CausalBlocks], str]] = {
    "printed delivery rule": (PrintedDeliveryRule, "causal"),
    "printed transmitter": (PrintedTransmitter, "stuck"),
    "printed retransmission rule": (PrintedRetransmissionRule, "stuck"),
    "printed receiver": (PrintedReceiver, "integrity"),
    "lets go at min(MBV)": (LetsGoAtMbv, "stability"),
    "printed nulls": (PrintedNulls, "stuck"),
    "delivers on receipt": (DeliversOnReceipt, "causal"),
    "delivers per sender": (DeliversPerSender, "causal"),
    "forgets what it delivered": (ForgetsWhatItDelivered, "causal"),
    "ignores others' clocks": (IgnoresOthersClocks, "stuck"),
    "one may lack": (OneMayLack, "stability"),
    "repairs once": (RepairsOnce, "stuck"),
    "answers nobody": (AnswersNobody, "undrained"),
    "stays silent": (StaysSilent, "stuck"),
    "reports what it received": (ReportsWhatItReceived, "stability"),
    "keeps everything": (KeepsEverything, "undrained"),
}
