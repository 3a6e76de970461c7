"""Causal blocks with one rule broken each: the paper's printed rules first, then bugs that one could write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from antiphon.protocol.machine import Instant
from antiphon.protocol.ordering.causal_blocks import CausalBlocks, NullBlock
from antiphon.protocol.ordering.causal_blocks.delivery import Delivery
from antiphon.protocol.ordering.causal_blocks.knowledge import Knowledge, News, Stamps
from antiphon.protocol.ordering.causal_blocks.matrix import Entry
from antiphon.protocol.ordering.causal_blocks.repair import Lack, Repair
from antiphon.protocol.ordering.causal_blocks.silence import Silence
from antiphon.protocol.parts import Step
from antiphon.protocol.rules import replaced
from antiphon.protocol.wire import pack_vector, unpack_vector

NEVER = 2**62

# As printed


def ldv_not_below(self: Delivery, entry: Entry) -> bool:
    """Figure 6, line 1: m.ldv >= LDV."""
    return all(block >= mine for block, mine in zip(entry.ldv, self.known.LDV, strict=True))


def never_set(self: Knowledge, now: Instant) -> int:
    """Figure 5: neither m.mb nor MBV[i] is ever set."""
    return 0


def of_everyone(self: Knowledge, now: Instant) -> int:
    """Section IV: MB counts everyone, also who has said nothing for long."""
    return min(self.arrivals.settled)


def others_only(self: Repair, j: int, below: int, suspects: Sequence[int]) -> Iterator[Entry]:
    """R5.0 with i != k: nobody sends its own messages again."""
    return Repair.retransmission_condition(self, j, below, [k for k in suspects if k != self.known.rank])


def least_of_all(self: Repair, j: int, below: int, suspects: Sequence[int]) -> Iterator[Entry]:
    """R5.0's minimum taken over all of k's messages in the block matrix, missing or not."""
    for k in suspects:
        first = self.known.BM[k].first
        if k != j and first is not None and self.known.MLDV[j][k] < first.message.block < below:
            yield first


def once_a_change(self: Repair, now: Instant) -> list[int]:
    """Figure 3: fires only when MB has changed, once."""
    return [j for j, mb in enumerate(self.known.MBV) if mb > self.looked[j]]


def not_in_matrix(self: Knowledge, sender: int, block: int) -> bool:
    """Figure 4, line 9: whatever is not in the block matrix is new."""
    return self.BM[sender].get(block) is None


def below_mbv(self: Knowledge, entry: Entry) -> bool:
    """A copy goes when everyone has received something later."""
    return entry.message.block < min(self.MBV)


def null_in_history(self: Silence, asking: bool, now: Instant) -> NullBlock:
    """Nulls are part of the causal history: a message waits for the nulls that its sender had sent."""
    null = Silence.null(self, asking, now)
    self.known.LDV[self.known.rank] = null.block
    return null


def null_delivered(self: CausalBlocks, source: int, pdu: NullBlock, now: Instant, step: Step) -> None:
    """A null is delivered in its turn, like a message."""
    CausalBlocks.receive_null(self, source, pdu, now, step)
    if unpack_vector(pdu.ldv, self.known.size)[source] == self.known.LDV[source] < pdu.block:
        self.delivery.advance_to(source, pdu.block, now, step)


def expires_at_once(self: Delivery, entry: Entry, now: Instant, step: Step) -> None:
    """An expired message advances LDV as soon as it comes."""
    if entry.expired(now):
        self.pass_on(entry, now, step)
    else:
        Delivery.place(self, entry, now, step)


PrintedDeliveryRule = replaced(CausalBlocks, delivery_condition=ldv_not_below)
PrintedTransmitter = replaced(CausalBlocks, maximum_block=never_set)
PrintedMb = replaced(CausalBlocks, maximum_block=of_everyone)
PrintedRetransmissionRule = replaced(CausalBlocks, retransmission_condition=others_only)
PrintedMinimum = replaced(CausalBlocks, retransmission_condition=least_of_all)
PrintedTrigger = replaced(CausalBlocks, trigger=once_a_change)
PrintedReceiver = replaced(CausalBlocks, is_new=not_in_matrix)
LetsGoAtMbv = replaced(CausalBlocks, is_stable=below_mbv)
PrintedNulls = replaced(CausalBlocks, null=null_in_history, receive_null=null_delivered)
PrintedExpiry = replaced(CausalBlocks, place=expires_at_once)

# Bugs


def always_deliverable(self: Delivery, entry: Entry) -> bool:
    """Delivers whatever comes."""
    return True


def after_its_senders(self: Delivery, entry: Entry) -> bool:
    """Waits for its sender's earlier messages only."""
    entry.met = k = entry.message.sender
    return entry.ldv[k] <= self.known.LDV[k]


def own_history(self: Knowledge) -> list[int]:
    """Stamps messages with its own history alone."""
    return [block if k == self.rank else 0 for k, block in enumerate(self.LDV)]


def keep_counter(self: Knowledge, stamps: Stamps, now: Instant, step: Step) -> News:
    """The block counter counts its own messages only."""
    counter = self.BC
    news = Knowledge.hear(self, stamps, now, step)
    self.BC = counter
    return news


def one_may_lack(self: Knowledge, entry: Entry) -> bool:
    """Calls a message stable when all but one have delivered it."""
    return entry.missing <= 1


def for_ever(self: Repair, lack: Lack, now: Instant) -> None:
    """A repair that is lost too is never sent again."""
    lack.at = NEVER


def ask_nothing(self: CausalBlocks, source: int, pdu: NullBlock, now: Instant, step: Step) -> None:
    """A member that lacks nothing does not answer those who still ask."""
    pdu.asking = False
    CausalBlocks.receive_null(self, source, pdu, now, step)


def received_as_delivered(self: Silence, asking: bool, now: Instant) -> NullBlock:
    """Its nulls tell what it has received as if it were delivered."""
    null = Silence.null(self, asking, now)
    null.ldv = pack_vector([max([mine, *self.known.BM[k].blocks]) for k, mine in enumerate(self.known.LDV)])
    return null


# name -> (ordering, the guarantee that it breaks; 'stuck' where deliveries fail to come, 'undrained' where buffers
# never empty although everything was delivered)
MUTANTS: dict[str, tuple[type[CausalBlocks], str]] = {
    "printed delivery rule": (PrintedDeliveryRule, "causal"),
    "printed transmitter": (PrintedTransmitter, "stuck"),
    "printed retransmission rule": (PrintedRetransmissionRule, "stuck"),
    "printed receiver": (PrintedReceiver, "integrity"),
    "lets go at min(MBV)": (LetsGoAtMbv, "stability"),
    "printed nulls": (PrintedNulls, "stuck"),
    "delivers on receipt": (replaced(CausalBlocks, delivery_condition=always_deliverable), "causal"),
    "delivers per sender": (replaced(CausalBlocks, delivery_condition=after_its_senders), "causal"),
    "forgets what it delivered": (replaced(CausalBlocks, own_ldv=own_history), "causal"),
    "ignores others' clocks": (replaced(CausalBlocks, hear=keep_counter), "stuck"),
    "one may lack": (replaced(CausalBlocks, is_stable=one_may_lack), "stability"),
    "repairs once": (replaced(CausalBlocks, suppress=for_ever), "stuck"),
    "answers nobody": (replaced(CausalBlocks, receive_null=ask_nothing), "undrained"),
    "stays silent": (replaced(CausalBlocks, restless=lambda self: False), "stuck"),
    "reports what it received": (replaced(CausalBlocks, null=received_as_delivered), "stability"),
    "keeps everything": (
        replaced(CausalBlocks, is_stable=lambda self, entry: False, let_go=lambda self, k, stable, step: None),
        "undrained",
    ),
}
