"""What only figures tell of: a halt, repairs beyond measure, a member that held the others up, lost messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from antiphon.pipeline.measuring.halts import HALT_NS_MIN
from antiphon.report.facts import Facts
from antiphon.report.incidents import phrases
from antiphon.report.incidents.story import SOON_NS, Incident, RunStory
from antiphon.report.member_names import lane_of, member_name, members_named, with_names
from antiphon.report.timeline import ended_at, gone, since_start
from antiphon.wording import count, duration, number, only_publishing

STORM_PER_MESSAGE: Final = 1.0  # repairs for each message and member that had to receive it
NEARLY_NS: Final = 100_000_000  # the last delivery may come this long before the cause of a halt is recorded
_HALTS: Final = (
    "crash", "partition", "split", "cut", "pause", "silence", "unread", "exclusion", "vanishing", "leave", "network",
    "keys",
)  # fmt: skip
_AGAIN: Final = " uses its number "  # of a sender, in the checker's words
_TWO_OF_A_NAME: Final = " (two senders under one name would do that)"
_EXPLAINS: Final = (
    "crash", "silent end", "exclusion", "partition", "cut", "pause", "silence", "outside", "stop", "unread",
)  # fmt: skip


def measured_incidents(story: RunStory) -> Iterator[Incident]:
    """Tell what stands out in the figures."""
    yield from _halted(story.facts)
    yield from _storm(story.facts)
    yield from _slow(story)
    yield from _lost(story.facts)
    yield from _breach(story.facts)


def _halted(facts: Facts) -> Iterator[Incident]:
    """Tell of a group in which messages waited at the end, and nobody had delivered anything for long."""
    gone_before = {row.member for row in gone(facts)}  # what they had sent is told with their going
    there = [row for row in facts.processes if row.ending in ("end", None) and row.member not in gone_before]
    waited = [row for row in there if row.waiting]
    everyone = len(waited) == len(there)
    delivered = [
        at - (row.clock_off_ns or 0)
        for row in (facts.processes if everyone else waited)
        if (at := since_start(facts, row.delivered_at_ns)) is not None
    ]
    ended = [at for row in there if (at := ended_at(facts, row)) is not None]
    if waited and delivered and ended and max(ended) - max(delivered) >= HALT_NS_MIN:
        since, until = duration(max(delivered)), duration(max(ended))
        who = "nothing was delivered"
        if not everyone:
            who = f"{members_named(facts, [row.member for row in waited])} delivered nothing"
        whose = "" if everyone else " of theirs" if len(waited) > 1 else " of it"
        waiting = count(sum(row.waiting or 0 for row in waited), "message")
        text = f"from {since} on {who}, until the run ended at {until}: {waiting}{whose} waited in vain"
        yield Incident("halt", max(ended), text)


def with_halts(story: RunStory, found: list[Incident]) -> list[Incident]:
    """Tell when nobody delivered anything, each time with what had happened shortly before."""
    for place in story.untold("halt"):
        one = story.occurred[place]
        story.told.add(place)
        begun = one.at_ns or 0
        causes = [
            at
            for at, cause in enumerate(found)
            if cause.kind in _HALTS and cause.at_ns is not None and -SOON_NS <= cause.at_ns - begun <= NEARLY_NS
        ]
        text = f"nobody delivered anything from {phrases.moment(one.at_ns)} to {phrases.moment(one.until_ns)}"
        if causes:
            at = max(causes, key=lambda at: found[at].at_ns or 0)
            found[at] = msgspec.structs.replace(found[at], text=f"{found[at].text}; {text}")
        else:
            found.append(Incident("halt", one.at_ns, f"{text}, although messages waited (inferred from the logs)"))
    return found


def _storm(facts: Facts) -> Iterator[Incident]:
    """Tell of far more repairs than there was anything to repair."""
    measured = facts.measured
    if measured is None or measured.retransmissions is None:
        return
    sent, others = measured.rows.get("send", 0), max(facts.members - 1, 1)
    again = measured.retransmissions
    if sent and again >= STORM_PER_MESSAGE * sent * others:
        text = (
            f"repairs became a storm: {count(again, 'repair')} for {count(sent, 'message')} of {facts.members} members"
        )
        yield Incident("storm", None, f"{text}, {again / sent:,.1f} for each")


def _lost(facts: Facts) -> Iterator[Incident]:
    """Tell what members lack that others delivered, as far as all of it is shown to be at one of them."""
    found = None if facts.checked is None else facts.checked.guarantees.get("agreement")
    if found is None or found.verdict != "violated":
        return
    who = sorted({witness.member for witness in found.witnesses})
    senders = {event.sender for witness in found.witnesses for event in witness.events if event.sender is not None}
    whose = f" of {member_name(facts, next(iter(senders)))}" if len(senders) == 1 else ""
    shown, all_ = len(found.witnesses), found.violations
    if shown == all_ and len(who) == 1:
        text = f"{member_name(facts, who[0])} lacks {count(all_, 'message')}{whose} that others delivered"
    else:
        every = whose if shown == all_ else ""
        text = f"{count(all_, 'delivery', 'deliveries')} of messages{every} that others delivered "
        text += f"{'is' if all_ == 1 else 'are'} missing"
        text += f"; the first {number(shown)},{whose and f'{whose},'}" if shown < all_ else ","
        text += f" at {members_named(facts, who)}"
    if facts.checked is not None and facts.checked.only_send:
        text += f"; {only_publishing([member_name(facts, member) for member in facts.checked.only_send])}"
    yield Incident("loss", None, text)


def _breach(facts: Facts) -> Iterator[Incident]:
    """Tell the first violation of a promise in the checker's words, unless it follows from what was lost."""
    if facts.checked is None or any(True for _ in _lost(facts)):
        return
    integrity = facts.checked.guarantees.get("integrity")
    unsent = facts.measured is not None and not facts.measured.rows.get("send")
    if unsent and integrity is not None and integrity.verdict == "violated":
        text = "no log says that anything was sent, only what was delivered"
        yield Incident("breach", None, f"{text} (--sends unrecorded, if nobody logs what is sent)")
        return
    for name in facts.checked.deciding():
        found = facts.checked.guarantees[name]
        if found.verdict == "violated" and found.witnesses:
            more = f", and there {'is' if found.violations == 2 else 'are'} {found.violations - 1:,} more like it"
            why = with_names(facts, found.witnesses[0].why)
            why += _TWO_OF_A_NAME if _AGAIN in why else ""
            yield Incident("breach", None, why + (more if found.violations > 1 else ""))
            return


def _slow(story: RunStory) -> Iterator[Incident]:
    """Tell of one member for which all others waited much longer than for anybody else."""
    facts, measured = story.facts, story.facts.measured
    if measured is None or not measured.held_back:
        return
    first, *rest = measured.held_back
    explained = [member for one in story.occurred if one.kind in _EXPLAINS for member in one.members]
    if lane_of(facts, first.member) in story.lanes(explained):
        return  # it is told why
    stands_out = first.waited_ns >= 3 * max([1, *(row.waited_ns for row in rest if row.run == first.run)])
    usually_last = 2 * (first.last + first.lacked) >= measured.rows.get("send", 0)
    if stands_out and usually_last and first.longest_ns >= phrases.SLOW_NS_MIN:
        text = f"{member_name(facts, first.member)} held the others up: they {phrases.waited(first)}"
        yield Incident("slow", None, text)
