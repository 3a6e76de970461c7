"""What receipts are to mean, as docs/live.md says: judged by what senders were told, and what everyone delivered."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from antiphon.testing.torture import liveness
from antiphon.testing.torture.history import Segment, standing
from antiphon.testing.torture.log import Noticed, SeenMessage

if TYPE_CHECKING:
    from antiphon.testing.torture.judge import Case


def every_receipt_ends(case: Case) -> Iterator[str]:
    """Every receipt ends, where the member goes on: with delivered and stable, or with a reason."""
    for start in case.starts:
        if start.ended or not case.goes_on(start):
            continue
        for sent in start.sent.values():
            if sent.accepted and not sent.probe and sent.lost is None:
                case.counts["receipts"] += 1
                lacks = [
                    what for what, at in (("delivered", sent.delivered_at), ("stable", sent.stable_at)) if at is None
                ]
                if lacks:
                    yield f"the receipt of {sent.identity} at {start.address} never says {' and '.join(lacks)}"


def delivered_is_delivered(case: Case) -> Iterator[str]:
    """A receipt that says delivered: the message is in its sender's own stream."""
    for start in case.starts:
        if start.ended or not case.goes_on(start):
            continue  # what it had not taken from its inbox yet cannot be seen
        seen = {entry.identity for entry in start.stream if isinstance(entry, SeenMessage)}
        for sent in start.sent.values():
            if sent.delivered_at is not None and sent.identity not in seen:
                yield f"{start.address} was told that {sent.identity} is delivered, and never delivers it"


# What a receipt may say when one hears that a stage has come: it may have ended as unknown in the same turn.
_MEANS = {"delivered": ("delivered", "stable", "unknown"), "stable": ("stable",)}
_ENDS = ("stable", "unknown", "lost")


def stages_come_in_order(case: Case) -> Iterator[str]:
    """Stable says delivered too, and never comes before it; a receipt says of itself what it tells who waits.

    What has ended stays as it is.
    """
    for identity, sent in case.sent.items():
        came: list[str] = []
        for told in sent.told:
            case.counts["stages"] += 1
            means = _MEANS[told.stage] if told.came else ("unknown", "lost")
            if told.outcome not in means:
                was = "came" if told.came else "will not come"
                yield f"the receipt of {identity} says {told.outcome} when {told.stage} {was}"
            if told.came and told.stage == "stable" and "delivered" not in came:
                yield f"the receipt of {identity} says stable before it says delivered"
            came += [told.stage] if told.came else []
            if told.outcome in _ENDS and sent.ended_as not in (None, told.outcome):
                yield f"the receipt of {identity} ended with {told.outcome}, and says {sent.ended_as} later"
        if sent.lost is not None and sent.told and sent.told[-1].outcome != sent.lost[0].lower():
            yield f"the receipt of {identity} raises {sent.lost[0]} and says {sent.told[-1].outcome}"


_WAITS_MS = 5_000  # so long whoever leaves waits for what it has sent, if nothing else is said


def all_ends_with_the_group(case: Case) -> Iterator[str]:
    """Once a group was left nothing waits any more; before, what had been sent was delivered if nothing hindered it."""
    unhindered = liveness.is_undisturbed(case)
    for start in case.starts:
        if start.left_at is None:
            continue
        case.counts["left"] += 1
        hurried = start.hurried or case.schedule.setup.leave_ms < _WAITS_MS
        for what in start.hanging:
            if what != "the stream" or case.prompt(start):
                yield f"{start.address} has left, and {what} still waits"
        for sent in start.sent.values():
            if sent.ended_as is not None and sent.ended_as not in _ENDS:
                yield f"{start.address} has left, and the receipt of {sent.identity} still says {sent.ended_as}"
            if sent.accepted and sent.delivered_at is None and unhindered and not hurried and start.ended_by is None:
                yield f"{start.address} has left in a calm, and not waited for the delivery of {sent.identity}"


def stable_is_kept(case: Case) -> Iterator[str]:
    """A receipt that says stable: everyone who goes on, or comes after, has the message or the state it led to."""
    if not case.one_side:
        return
    where = {seen.identity: segment.key for segment in case.segments for seen in segment.messages}
    stable = {sent.identity for start in case.starts for sent in start.sent.values() if sent.stable_at is not None}
    case.counts["stable"] += len(stable)
    for start in case.starts:
        # its application may not have read of the views since, in which the message was delivered
        last = next((segment.key for segment in reversed(case.segments) if segment.start is start), None)
        survives = any(_survives(case, segment) for segment in case.segments if segment.key == last)
        for sent in start.sent.values() if survives else ():
            if sent.stable_at is not None and sent.identity not in where:
                yield f"{start.address} was told that {sent.identity} is stable, and nobody delivered it"
    for key, segments in case.views.items():
        of_view = {identity for identity in stable if where.get(identity) == key}
        for segment in segments:
            if segment.next is None:
                continue
            for identity in sorted(of_view - set(segment.identities) - case.may_have_missed(segment)):
                yield f"{segment.who} goes on from view {key[0]} without {identity}, which was said to be stable"


def _survives(case: Case, segment: Segment) -> bool:
    """Whether an application goes on from a view to the end, from each view to the next, so that all that it delivered
    there and since can be seen.
    """
    last = segment
    while last.next is not None:
        last = last.next
    return last is not segment and last.end == "open" and not segment.start.ended and case.goes_on(segment.start)


def stable_without_views(case: Case) -> Iterator[str]:
    """Without views a receipt that says stable: every member has the message, and whoever is there delivers it.

    Orders that wait for everyone may wait for one who is gone; and nothing of one who was started again is stable.
    """
    if case.has_views:
        return
    stable = [sent for start in case.starts for sent in start.sent.values() if sent.stable_at is not None]
    case.counts["stable"] += len(stable)
    for start in case.starts:
        if start.number > 1 and liveness.was_met(case.outcome, start):
            yield from (
                f"{sent.identity} is said to be stable, though its sender was started again"
                for sent in start.sent.values()
                if sent.stable_at is not None
            )
    whole = liveness.is_whole(case.outcome)
    for start in liveness.running(case.outcome).values():
        if not whole and (case.schedule.setup.ordering != "fifo" or case.schedule.setup.safe or not case.prompt(start)):
            continue
        seen = {entry.identity for entry in start.stream if isinstance(entry, SeenMessage)}
        for sent in stable:
            if sent.identity not in seen and start.number == 1:
                yield f"{start.address} does not deliver {sent.identity}, which was said to be stable"


def unknown_has_a_reason(case: Case) -> Iterator[str]:
    """A receipt says that nothing can be known only where the member was left out, left, or failed; and says why."""
    for start in case.starts:
        outs = [
            entry.at for entry in start.stream if isinstance(entry, Noticed) and entry.what in ("excluded", "yielded")
        ]
        crashed_before_it_read = start.crashed_at is not None and not case.prompt(start)
        for sent in start.sent.values():
            if sent.lost is None:
                continue
            kind, words = sent.lost
            case.counts["unknown"] += 1
            if kind not in ("Unknown", "Lost"):
                yield f"the receipt of {sent.identity} raises {kind}: {words}"
            elif not words:
                yield f"the receipt of {sent.identity} gives no reason"
            elif not (outs or crashed_before_it_read or start.leaving_at or start.ended_by or case.lags):
                yield f"{start.address} was never left out and has not left, but {sent.identity} is unknown: {words}"


def lost_is_lost(case: Case) -> Iterator[str]:
    """A receipt that says lost: nobody who goes on has delivered the message."""
    lost = {
        sent.identity
        for start in case.starts
        for sent in start.sent.values()
        if sent.lost is not None and sent.lost[0] == "Lost"
    }
    for segments in case.views.values():
        for segment in chain.from_iterable(standing(segments)):
            for identity in lost & set(segment.identities):
                yield f"{segment.who} delivers {identity} and goes on, though its sender was told that it is lost"
