"""Processes that leave one rule of membership out, each with what it breaks.

A mutant is noticed on schedules drawn from seeds, or on one made for it. `hint` is a seed that is known to show it, so
that the search is short.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from antiphon.protocol.membership.agreement import ViewAgreement
from antiphon.protocol.membership.decisions import Decisions
from antiphon.protocol.membership.messages import State
from antiphon.protocol.membership.process import Process, Saved
from antiphon.protocol.membership.session import ViewSession
from antiphon.protocol.membership.views import NO_BALLOT, Cut, GroupView, before_the_first
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
from antiphon.sim.scenario import Fault, Scenario, Workload
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


def anyone(agreement: ViewAgreement, names: Collection[int]) -> bool:
    """Go on with whoever is within reach."""
    return bool(names)


def more_than_half(agreement: ViewAgreement, names: Collection[int]) -> bool:
    """Ask for more than half even of two."""
    return 2 * sum(name in names for name in agreement.view.names) > len(agreement.view.members)


def incarnation_alone(saved: Saved, founders: tuple[int, ...]) -> Saved:
    """Remember after a restart only how often this name has started."""
    return Saved(saved.incarnation, before_the_first(founders), NO_BALLOT, None, None, remembers=False)


def begun_at_once(decisions: Decisions, view: GroupView) -> bool:
    """Begin a newer view that one hears of without ending the one before."""
    life = decisions.life
    return life.session is None or (view.number > life.view.number and view.lists(life.own.id))


def whatever_its_ballot(decisions: Decisions, view: GroupView) -> bool:
    """Begin a view that lists one's number, even if one has not answered the ballot that made it."""
    return view.lists(decisions.life.own.id)


# The end of a view


def without_acting(member: Member) -> None:
    """Go on sending and delivering while the view ends."""


def while_within_reach(session: ViewSession) -> bool:
    """Go on receiving after others were told what is held."""
    return not session.stalled


def body_alone(delivery: StreamDelivery, decided: Decided) -> Held:
    """Take a message for safe when all hold its body, whether they know its place in the order or not."""
    return delivery.requirements[decided.sender, decided.seq]


def least(agreement: ViewAgreement, options: GroupOptions, held: Mapping[int, State]) -> Cut:
    """Cut where everyone is, instead of where anyone is."""
    cut = ViewAgreement.cut(agreement, options, held)
    reach = [min(state.reach[rank] for state in held.values()) for rank in range(len(cut.reach))] if held else []
    return msgspec.structs.replace(cut, reach=tuple(reach) or cut.reach)


ACCEPTING_AT_ONCE = replaced(Process, holds_cut=lambda self, change: True)
SAFE_BY_BODY = replaced(Process, must_be_held=body_alone)
WITHOUT_JOINER_LIMIT = replaced(Process, admitted=lambda self, holders, newcomers: list(newcomers))


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

# datagrams of the view in which 2 was a member are doubled, and come when it has left
LATE = msgspec.structs.replace(
    made(3, Fault(kind="leave", at="300ms", member=2)),
    messages=20,
    workload=Workload(interval="fixed 20ms", payload=8),
    network=NetworkOptions(latency="fixed 2ms", duplicate=0.3, reorder=0.3, reorder_delay="uniform 20ms 200ms"),
)

# 2 stamps above the others, for it counts messages of its own that are under way to them. It crashes when 1 knows its
# stamps for some messages, which are decided, and not yet for those that follow
CLOCK_AHEAD = msgspec.structs.replace(
    made(3, Fault(kind="crash", at="25ms", member=2)),
    ordering="abcast",
    messages=40,
    workload=Workload(interval="fixed 1ms", payload=8, senders=[1, 2]),
)

MUTANTS: dict[str, Mutant] = {
    "without ballots": Mutant(
        process=replaced(Process, may_follow=lambda self, ballot: True), breaks=("one-number",), made=DUEL
    ),
    "without a quorum": Mutant(process=replaced(Process, is_quorum=anyone), breaks=("one-number",), hint=1),
    "forgetting the accepted": Mutant(
        process=replaced(Process, bound=lambda self, states: None), breaks=("one-number",), made=UNHEARD
    ),
    "without incarnations": Mutant(
        process=replaced(Process, next_incarnation=lambda last: 1, is_new=lambda self, sender, alive: True),
        breaks=("integrity",),
        hint=23,
    ),
    "without a disk": Mutant(
        process=replaced(Process, remembered=incarnation_alone), breaks=("one-number",), made=FORGETFUL
    ),
    "without half": Mutant(process=replaced(Process, is_quorum=more_than_half), breaks=("stuck",), made=HALVED),
    "installing without the cut": Mutant(
        process=replaced(Process, may_begin=begun_at_once, is_listed=whatever_its_ballot),
        breaks=("agreement",),
        hint=46,
    ),
    "one tag": Mutant(process=replaced(Process, tag=lambda self, view: 0), breaks=("stuck",), made=LATE, hint=2),
    "without fetching": Mutant(process=replaced(Process, lacking=lambda self, cut: []), breaks=("agreement",), hint=2),
    "without blocking": Mutant(
        process=replaced(Process, block=without_acting, takes_data=while_within_reach), breaks=("agreement",), hint=93
    ),
    "least common": Mutant(process=replaced(Process, cut=least), breaks=("agreement",), hint=2),
    "open causal blocks": Mutant(
        ordering="causal-blocks", ordering_type=OpenCausalBlocks, breaks=("agreement",), hint=8
    ),
    "without help": Mutant(
        process=replaced(Process, answers_after_leaving=lambda self, message: False), breaks=("stuck",), made=LAST_WORD
    ),
    "first proposals": Mutant(ordering="tomp", ordering_type=FirstProposals, breaks=("total",), hint=199),
    "without neighbours": Mutant(
        ordering="abcast", ordering_type=WithoutNeighbours, breaks=("fifo",), made=CLOCK_AHEAD
    ),
}
