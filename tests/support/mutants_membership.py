"""Processes that leave one rule of membership out, each with what it breaks.

A mutant is noticed on schedules drawn from seeds, or on one made for it. `hint` is a seed that is known to show it, so
that the search is short.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, ClassVar

import msgspec

from antiphon.protocol.machine import Effect, Instant, ReceiveMany
from antiphon.protocol.membership.agreement import Agreement
from antiphon.protocol.membership.flush import Flush
from antiphon.protocol.membership.messages import Acceptance, Message, State
from antiphon.protocol.membership.process import Process, Saved
from antiphon.protocol.membership.views import (
    NO_BALLOT,
    Ballot,
    Change,
    Cut,
    GroupView,
    before_the_first,
    name_of,
    process,
)
from antiphon.protocol.options import GroupOptions
from antiphon.protocol.ordering.abcast import Abcast
from antiphon.protocol.ordering.causal_blocks import CausalBlocks
from antiphon.protocol.ordering.tomp import Tomp
from antiphon.protocol.ordering.two_phase import Claim, TwoPhase
from antiphon.protocol.parts import Decided
from antiphon.protocol.rules import replaced
from antiphon.protocol.view.delivery import Held, StreamDelivery
from antiphon.protocol.view.member import Member
from antiphon.sim.network import NetworkOptions
from antiphon.sim.scenario import Fault, Scenario
from antiphon.sim.view_schedules import QUICK


class Mutant(msgspec.Struct, frozen=True, kw_only=True):
    """A process, an ordering, or both, with a rule left out."""

    process: type[Process] = Process
    ordering: str = "fifo"
    ordering_type: Any = None  # an ordering with a rule left out, like `ordering`
    breaks: tuple[str, ...]  # how it is noticed
    hint: int = 0
    made: Scenario | None = None  # a schedule of its own


# Agreement on the next view


class Obedient(Agreement):
    """Follows whoever asked last."""

    def promise(self, ballot: Ballot, now: Instant) -> bool:
        self.promised = min(self.promised, ballot)
        return super().promise(ballot, now)


class WithoutBallots(Process):
    """Follows whoever asked last."""

    agreements: ClassVar[Mapping[str, type[Agreement]]] = {"majority": Obedient}


class AnyoneDecides(Agreement):
    """Goes on with whoever is within reach."""

    def is_quorum(self, names: Collection[int]) -> bool:
        return bool(names)


class WithoutQuorum(Process):
    """Goes on with whoever is within reach."""

    agreements: ClassVar[Mapping[str, type[Agreement]]] = {"majority": AnyoneDecides}


class ProposingAfresh(Agreement):
    """Proposes afresh although something may have been decided."""

    def bound(self, states: Mapping[int, State]) -> Acceptance | None:
        return None


class ForgettingTheAccepted(Process):
    """Proposes afresh although something may have been decided."""

    agreements: ClassVar[Mapping[str, type[Agreement]]] = {"majority": ProposingAfresh}


class WithoutIncarnations(Process):
    """Is the same process after a restart."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.id = self._peers.me = process(self.name, 1)

    def _begin_next_life(self, now: Instant) -> None:
        self._trace("leave", "excluded")


class WithoutDisk(Process):
    """Remembers after a restart only how often it has started."""

    def __init__(self, name: int, names: Any, *args: Any, **kwargs: Any) -> None:
        *others, saved = args
        if saved is not None:
            last = msgspec.msgpack.decode(saved, type=Saved)
            saved = msgspec.msgpack.encode(Saved(last.incarnation, before_the_first(names), NO_BALLOT, None, None))
        super().__init__(name, names, *others, saved, **kwargs)


class MoreThanHalf(Agreement):
    """Asks for more than half even of two."""

    def is_quorum(self, names: Collection[int]) -> bool:
        return 2 * sum(name in names for name in self.view.names) > len(self.view.members)


class WithoutHalf(Process):
    """Asks for more than half even of two."""

    agreements: ClassVar[Mapping[str, type[Agreement]]] = {"majority": MoreThanHalf}


class InstallingWithoutTheCut(Process):
    """Begins a newer view that it hears of without ending the one before."""

    def _on_newer(self, sender: int, view: GroupView, now: Instant, decision: Change | None = None) -> None:
        if view.number > self.view.number and self.member is not None and view.lists(self.id):
            self._install(view, now)
        else:
            super()._on_newer(sender, view, now, decision)


class OneTag(Process):
    """Does not tell the datagrams of one view from those of another."""

    def _tag(self, view: GroupView) -> int:
        return 0


# The end of a view


class NotFetching(Flush):
    """Thinks that it has everything."""

    def lacking(self, cut: Cut) -> list[tuple[int, int, int]]:
        return []


class WithoutFetching(Process):
    """Ends a view with what it happens to have."""

    flush_type = NotFetching


class OpenMember(Member):
    """Can still send and deliver while its view ends."""

    def block(self) -> None:
        pass

    def finish(self, reach: Any, order: bytes, rest: Any, now: Instant) -> list[Effect]:
        self.blocked = True
        self.ordering.block()
        return super().finish(reach, order, rest, now)


class WithoutBlocking(Process):
    """Goes on receiving, and delivering, after it has told what it holds."""

    member_type = OpenMember

    def _receive(self, datagrams: Iterable[bytes], now: Instant) -> bool:
        if self._flush is not None and self.member is not None:
            self._drive(ReceiveMany([datagram for datagram in datagrams if self._is_data(datagram)]), now)
        return super()._receive(datagrams, now)


class AcceptingAtOnce(Process):
    """Accepts a change before it holds the cut."""

    def _accept_if_held(self, now: Instant) -> None:
        flush, self._flush = self._flush, None
        super()._accept_if_held(now)
        self._flush = flush


class WithoutHelp(Process):
    """Is deaf once it has left."""

    def _help(self, sender: int, message: Message, now: Instant) -> None:
        pass


class AllJoinersAtOnce(Agreement):
    """Takes all that want to join, however few stay."""

    def admitted(self, elders: Collection[int], joiners: Iterable[int]) -> list[int]:
        return sorted(joiners, key=name_of)


class WithoutJoinerLimit(Process):
    """Takes all that want to join, however few stay."""

    agreements: ClassVar[Mapping[str, type[Agreement]]] = {"majority": AllJoinersAtOnce}


def body_alone(delivery: StreamDelivery, decided: Decided) -> Held:
    """Take a message for safe when all hold its body, whether they know its place in the order or not."""
    return delivery.requirements[decided.sender, decided.seq]


class SafeByBody(Process):
    """Takes a message for safe when all hold its body."""

    member_type = replaced(Member, must_be_held=body_alone)


class CutAtTheLeast(Agreement):
    """Cuts where everyone is, instead of where anyone is."""

    def cut(self, config: GroupOptions, held: Mapping[int, State]) -> Cut:
        cut = super().cut(config, held)
        reach = [min(state.reach[rank] for state in held.values()) for rank in range(len(cut.reach))] if held else []
        return msgspec.structs.replace(cut, reach=tuple(reach) or cut.reach)


class LeastCommon(Process):
    """Cuts where everyone is, instead of where anyone is."""

    agreements: ClassVar[Mapping[str, type[Agreement]]] = {"majority": CutAtTheLeast}


# Orderings that end a view wrongly


class OpenCausalBlocks(CausalBlocks):
    """Counts what it has received, whatever that depends on."""

    def reach(self) -> list[int]:
        return [max([last, *self.known.BM[k].blocks]) for k, last in enumerate(self.known.LDV)]


def _claim(ordering: TwoPhase, provisional: Mapping[tuple[int, int], tuple[int, int]]) -> bytes:
    final = [(*message, *stamp) for message, stamp in ordering.pending().final.items()]
    stamps = [(*message, *stamp) for message, stamp in provisional.items()]
    return msgspec.msgpack.encode(Claim(ordering.clock.time, ordering.next_mid, stamps, final))


class FirstProposals(Tomp):
    """Claims what it proposed at first."""

    def claim(self) -> bytes:
        waiting = [message for messages in self.undecided for message in messages.values()]
        return _claim(self, {(m.sender, m.seq): (m.proposal.time, self.rank) for m in waiting})


class WithoutNeighbours(Abcast):
    """Claims timestamps without regard to the same sender's earlier messages."""

    def claim(self) -> bytes:
        waiting = [message for messages in self.undecided for message in messages.values()]
        return _claim(self, {(m.sender, m.seq): max(self.provisional(m), m.own) for m in waiting})


class WithoutTheSendersStamp(Abcast):
    """Claims what it proposed itself, and not what the sender's own timestamp was."""

    def claim(self) -> bytes:
        for messages in self.undecided:
            for message in messages.values():
                message.own = (0, message.sender)
        return super().claim()


def made(members: int, *faults: Fault) -> Scenario:
    """Give a small schedule that a mutant cannot get through, with exact times."""
    return Scenario.of(
        "paper",
        name="made",
        members=members,
        messages=3,
        views=True,
        membership=QUICK,
        network=NetworkOptions(latency="fixed 2ms"),
        faults=list(faults),
        limit="5s",
    )


# 0 and 1 do not hear each other, and both propose the first view to 2 at about the same time
DUEL = made(
    3,
    Fault(kind="cut", at="0ms", until="700ms", source=[0], target=[1]),
    Fault(kind="cut", at="0ms", until="700ms", source=[1], target=[0]),
    Fault(kind="join", at="90ms", member=0),
)
# 0 decides on a view with the votes of the others, and they do not hear of it
UNHEARD = made(3, Fault(kind="cut", at="7ms", until="800ms", source=[0], target=[1, 2]))
# 1 and 2 form the first view and crash; 1 comes back and meets 0, which starts only then
FORGETFUL = made(
    3,
    Fault(kind="join", at="600ms", member=0),
    Fault(kind="crash", at="300ms", until="500ms", member=1),
    Fault(kind="crash", at="300ms", until="1500ms", member=2),
)
# the second of two is gone
HALVED = made(2, Fault(kind="crash", at="300ms", member=1))

# 0 leaves; 1 decides on the view without it with its vote, is heard by nobody else, and crashes
LAST_WORD = made(
    4,
    Fault(kind="leave", at="200ms", member=0),
    Fault(kind="cut", at="205ms", until="900ms", source=[1], target=[2, 3]),
    Fault(kind="crash", at="211ms", member=1),
)

MUTANTS: dict[str, Mutant] = {
    "without ballots": Mutant(process=WithoutBallots, breaks=("one-number",), made=DUEL),
    "without a quorum": Mutant(process=WithoutQuorum, breaks=("one-number",), hint=1),
    "forgetting the accepted": Mutant(process=ForgettingTheAccepted, breaks=("one-number",), made=UNHEARD),
    "without incarnations": Mutant(process=WithoutIncarnations, breaks=("integrity",), hint=23),
    "without a disk": Mutant(process=WithoutDisk, breaks=("one-number",), made=FORGETFUL),
    "without half": Mutant(process=WithoutHalf, breaks=("stuck",), made=HALVED),
    "installing without the cut": Mutant(process=InstallingWithoutTheCut, breaks=("agreement",), hint=46),
    "one tag": Mutant(process=OneTag, breaks=("integrity",), hint=214),
    "without fetching": Mutant(process=WithoutFetching, breaks=("agreement",), hint=2),
    "without blocking": Mutant(process=WithoutBlocking, breaks=("agreement",), hint=93),
    "least common": Mutant(process=LeastCommon, breaks=("agreement",), hint=2),
    "open causal blocks": Mutant(
        ordering="causal-blocks", ordering_type=OpenCausalBlocks, breaks=("agreement",), hint=8
    ),
    "without help": Mutant(process=WithoutHelp, breaks=("stuck",), made=LAST_WORD),
    "first proposals": Mutant(ordering="tomp", ordering_type=FirstProposals, breaks=("total",), hint=199),
    "without neighbours": Mutant(ordering="abcast", ordering_type=WithoutNeighbours, breaks=("fifo",), hint=274),
}
