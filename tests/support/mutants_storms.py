"""Seeded storms: rules that keep repair at the pace of the network, each replaced by one that does not.

Every one of them delivers all messages in the right order; what gives it away is what it costs.
"""

from __future__ import annotations

from collections.abc import Iterable

from antiphon.protocol.machine import MILLISECOND, Duration, Instant
from antiphon.protocol.ordering.abcast import Abcast
from antiphon.protocol.ordering.causal_blocks import CausalBlocks
from antiphon.protocol.ordering.causal_blocks.repair import Lack, Repair
from antiphon.protocol.ordering.causal_blocks.silence import Silence
from antiphon.protocol.ordering.co import Co
from antiphon.protocol.ordering.co.losses import Losses
from antiphon.protocol.ordering.co.pdus import Gaps
from antiphon.protocol.ordering.co.sending_log import SendingLog
from antiphon.protocol.ordering.tomp import Tomp
from antiphon.protocol.ordering.two_phase import Ask, Proposal, TwoPhase
from antiphon.protocol.ordering.two_phase.polls import Polls
from antiphon.protocol.parts import Ordering, Step
from antiphon.protocol.recovery import Nack, Recovery
from antiphon.protocol.rules import replaced

MANY = 20
_UNDER_WAY = {"wanted": lambda self, member, number, now: True}  # whoever asks is sent a large copy, again and again

# Causal blocks


def at_once_again(self: Repair, lack: Lack, now: Instant) -> None:
    """A repair is repeated without waiting for its effect."""
    lack.at = now + MILLISECOND


def all_at_once(self: Repair, lack: Lack, now: Instant) -> Duration | None:
    """Whoever keeps a message sends it again as soon as someone lacks it."""
    return 0


def late_is_lost(self: Repair, j: int) -> int:
    """What a member has not said that it has is taken for lost."""
    return 2**32


CAUSAL_BLOCKS: dict[str, type[CausalBlocks]] = {
    # without backoff alone there is none: a message is sent again only after another word of who lacks it
    "no suppression": replaced(CausalBlocks, suppress=at_once_again, first_delay_ns=all_at_once),
    "late is lost": replaced(CausalBlocks, below=late_is_lost, suppress=at_once_again),
    "nulls all the time": replaced(CausalBlocks, pause_ns=lambda self: MILLISECOND),
}

# CO


def all_that_is_kept(self: SendingLog, gaps: Gaps) -> Iterable[int]:
    """A request is answered with all that is kept."""
    return range(self.releasable(), self.acceptance.req[self.acceptance.rank]) if gaps else ()


_ASKS_EAGERLY = {
    "retry_ns": lambda self, source, tries, now: MILLISECOND,
    "quiet_ns": lambda self: 0,
}
_COPIES_EAGERLY = {
    "just_resent": lambda self, sent, asker, now: False,
    "spread_ns": lambda self, sent, asker, now: 0,
}

CO: dict[str, type[Co]] = {
    "no backoff": replaced(Co, **_ASKS_EAGERLY, **_COPIES_EAGERLY),
    "no suppression": replaced(
        Co, **_ASKS_EAGERLY, ret_targets=lambda self, asked: None, postpone=lambda self, source, now: None
    ),
    "late is lost": replaced(Co, hearsay_grace_ns=lambda self, source, now: 0, **_ASKS_EAGERLY, **_COPIES_EAGERLY),
    "answers with everything": replaced(Co, retransmission_range=all_that_is_kept, **_COPIES_EAGERLY),
    "copies while they are under way": replaced(Co, **_ASKS_EAGERLY, **_UNDER_WAY),
}

# Recovery, under fifo


def all_again(self: Recovery, source: int, nack: Nack) -> Step:
    """A request is answered with all that is kept, many times."""
    sent, released = self.sent, self.released[self._rank]
    return Step([], MANY * [*Recovery.repair(self, source, Nack([(released + 1, max(sent, released + 1))])).down])


RECOVERY: dict[str, type[Recovery]] = {
    "repeats answers": replaced(
        Recovery,
        repair=lambda self, source, nack: Step([], MANY * Recovery.repair(self, source, nack).down),
        once=lambda self, source, repairs, now: repairs,
    ),
    "answers with everything": replaced(Recovery, repair=all_again, once=lambda self, source, repairs, now: repairs),
    "repeats requests": replaced(Recovery, ask=lambda self, source, tries: MANY * Recovery.ask(self, source, tries)),
}
COPIES_UNDER_WAY = replaced(Recovery, **_UNDER_WAY)  # a storm on slow links alone

# ABCAST and TOMP


def all_of_all(self: Polls, now: Instant) -> dict[int, list[int]]:
    """Everyone is asked for everything that is not decided, many times."""
    seqs = [*self.polls]
    return {host: MANY * seqs for poll in self.polls.values() for host in poll.missing} if seqs else {}


def many_answers(self: TwoPhase, source: int, ask: Ask) -> list[Proposal]:
    """A proposal is given many times."""
    return MANY * TwoPhase.answers(self, source, ask)


TWO_PHASE: dict[str, type[TwoPhase]] = {
    "abcast repeats answers": replaced(Abcast, asks=all_of_all, answers=many_answers),
    "tomp repeats answers": replaced(Tomp, asks=all_of_all, answers=many_answers),
}

# Half as dear again, or less: each schedule bears it, and the mean of many does not


def quarter_ns(self: Losses, source: int, tries: int, now: Instant) -> Duration:
    """What was asked for is asked for again after a quarter of the time, however often that was in vain."""
    return Losses.retry_ns(self, source, 0, now) // 4


MODEST: dict[str, tuple[str, type[Ordering]]] = {
    "causal-blocks, answers by all": ("causal-blocks", replaced(CausalBlocks, first_delay_ns=all_at_once)),
    "causal-blocks, repairs to all": ("causal-blocks", replaced(CausalBlocks, targets=lambda self, lacking: None)),
    "causal-blocks, repairs at once again": ("causal-blocks", replaced(CausalBlocks, suppress=at_once_again)),
    "causal-blocks, nulls five times": (
        "causal-blocks",
        replaced(CausalBlocks, pause_ns=lambda self: Silence.pause_ns(self) // 5),
    ),
    "co, no grace": (
        "co",
        replaced(Co, hearsay_grace_ns=lambda self, source, now: 0, gap_grace_ns=lambda self, source: 0),
    ),
    "co, asks again too soon": ("co", replaced(Co, retry_ns=quarter_ns)),
    "co, copies to all": (
        "co",
        replaced(Co, lacking=lambda self, number: None, for_askers=lambda self, sent: False),
    ),
}
MODEST_RECOVERY: dict[str, type[Recovery]] = {
    "every repair twice": replaced(
        Recovery, once=lambda self, source, repairs, now: Step([], 2 * Recovery.once(self, source, repairs, now).down)
    ),
}

ORDERINGS: dict[str, tuple[str, type[Ordering]]] = {
    **{f"causal-blocks, {name}": ("causal-blocks", storm) for name, storm in CAUSAL_BLOCKS.items()},
    **{f"co, {name}": ("co", storm) for name, storm in CO.items()},
    **{name: (name.split()[0], storm) for name, storm in TWO_PHASE.items()},
}
