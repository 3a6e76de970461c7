"""What is not well with a live group: each trouble with its reason and what to do about it, the worst first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from antiphon.live.events import Status
from antiphon.report.board_state import Headline, Level, MemberRow
from antiphon.wording import count, listed, size

LATE_S: Final = 5  # joining or changing the view takes less
_REFUSED: Final = {  # why packets are refused, where that tells what to mend
    "unknown-key": " under another key",
    "sealed": " that are encrypted: it has no key",
    "unsealed": " that are not encrypted: the others have no key",
    "other-settings": " of a group that is set up differently",
    "other-version": " of another version",
}
_WORSE: Final[tuple[Level, ...]] = ("good", "warn", "bad")


class Trouble(msgspec.Struct, frozen=True):
    """Something that is not well: what, and what to do."""

    level: Level
    text: str
    remedy: str = ""


def headline(rows: Sequence[MemberRow], live: Sequence[Status], violations: int) -> Headline:
    """Say in one sentence whether all is well and, if not, what is wrong; in another what to do about it."""
    if not live:
        gone = [row.member for row in rows if row.state in ("gone", "silent")]
        if gone:
            text = f"No news from any member: {_are(gone)} gone or silent."
            return Headline("bad", text, "Start them again, or look whether this machine still reaches them.")
        text = "No member publishes its status."
        return Headline("warn", text, "Start members with antiphon join --status-at HOST:PORT, or join(status_at=...).")
    troubles = sorted(_troubles(rows, live, violations), key=lambda one: -_WORSE.index(one.level))
    level: Level = troubles[0].level if troubles else "good"
    said = "; ".join(one.text for one in troubles) or "everyone is heard from"
    remedies = dict.fromkeys(one.remedy for one in troubles if one.remedy)
    return Headline(level, f"{_where(rows, live)}: {said}.", " ".join(remedies))


def _where(rows: Sequence[MemberRow], live: Sequence[Status]) -> str:
    if _before_the_first_view(live):
        return "No view yet"
    view, members = max(status.view for status in live), count(sum(row.in_view for row in rows), "member")
    return f"{members}, view {view}" if view else f"{members}, fixed"


def _before_the_first_view(live: Sequence[Status]) -> bool:
    return all(status.standing == "joining" and not status.view for status in live)


def _troubles(rows: Sequence[MemberRow], live: Sequence[Status], violations: int) -> Iterator[Trouble]:
    missing = [row.member for row in rows if row.is_missing and row.in_view]
    yield from _stalled(live, missing)
    yield from _failed(rows)
    if missing:
        them = "it" if len(missing) == 1 else "them"
        can_go_on = all(status.standing != "stalled" for status in live)
        remedy = f"The others go on without {them} once they suspect a crash." if can_go_on else ""
        if not max(status.view for status in live):
            remedy = f"Membership is fixed: nothing goes on without {them}, and a member that starts again is refused. "
            remedy += "Start the whole group again."
        yield Trouble("bad", f"no news from {listed(missing)}", remedy)
    yield from _stuck(rows, live, missing)
    yield from _late(rows, live)
    if violations:
        remedy = "antiphon report on the members' traces shows where."
        yield Trouble("bad", f"watch found {count(violations, 'violation')}", remedy)
    slow = [row.member for row in rows if row.holds_back_s and row.member not in missing and not _takes_nothing(row)]
    if slow:
        verb, whose = ("holds", "its") if len(slow) == 1 else ("hold", "their")
        remedy = f"Look at {listed(slow)}: a busy machine, a slow link, or an application that does not read."
        yield Trouble(
            "warn", f"{listed(slow)} {verb} stability back, so that {whose} copies stay in all buffers", remedy
        )
    yield from _left_out(rows, live)
    active = [row for row in rows if row.published is not None and row.published.standing == "active"]
    outside = [row.member for row in active if row.state == "live" and not row.in_view]
    if outside:
        yield Trouble("warn", f"{_are(outside)} not in the view")


def _left_out(rows: Sequence[MemberRow], live: Sequence[Status]) -> Iterator[Trouble]:
    """Tell who is missing and no longer in the view: dead, or standing still."""
    there = [row.member for row in rows if row.in_view]
    went_on = f"{there[0]} went on alone" if len(there) == 1 else "the others went on"
    if any(status.standing == "stalled" for status in live):  # nobody goes on now
        went_on = "had been left out before"
    for state, ends, remedy in (
        ("gone", "gone", "Start {} again; {} then."),
        ("silent", "silent (stopped, or out of this page's reach)", "Let {} run on; {} by itself."),
    ):
        who = [row.member for row in rows if row.is_missing and not row.in_view and row.state == state]
        if who:
            come = "it comes back" if len(who) == 1 else "they come back"
            yield Trouble("warn", f"{_are(who)} {ends}, and {went_on}", remedy.format(listed(who), come))


def _stalled(live: Sequence[Status], missing: Sequence[str]) -> Iterator[Trouble]:
    stalled = [status for status in live if status.standing == "stalled"]
    if not stalled:
        return
    who = listed([status.me for status in stalled])
    broken = {link for status in stalled for link in status.links}
    links = sorted(link for link in broken if not set(link) & set(missing))  # of who is gone nothing can be heard
    reason = "too few members within reach"
    if links:
        some = listed([f"from {source} to {target}" for source, target in links[:3]])
        more = f" and over {count(len(links) - 3, 'more link')}" if len(links) > 3 else ""
        reason += f"; nothing is heard {some}{more}"
    what = f"Start {listed(missing)} again" if missing else "Start the missing members again"
    remedy = f"{what}, or mend the links. If they are gone for good, antiphon rescue makes a view from what is left."
    yield Trouble("bad", f"{who} stopped delivering: {reason}", remedy)


def _failed(rows: Sequence[MemberRow]) -> Iterator[Trouble]:
    failed = [row.member for row in rows if row.published is not None and row.published.standing == "failed"]
    if failed:
        yield Trouble("bad", f"{listed(failed)} failed", "The log of that process says why; start it again.")


def _stuck(rows: Sequence[MemberRow], live: Sequence[Status], missing: Sequence[str]) -> Iterator[Trouble]:
    """Tell who should deliver and does not, and for what it waits."""
    unread = [row for row in rows if _takes_nothing(row)]
    for row in unread:
        assert row.published is not None
        held, waited_s = size(row.published.inbox_bytes), row.published.unread_s
        takes = f"has taken nothing for {waited_s} s, and" if waited_s else "does not keep up: its inbox is full, and"
        how = "Let it read on" if waited_s else "Let it read faster"
        remedy = f"{how} (async for event in group); what is not taken at {row.member} holds the others up too."
        yield Trouble("bad", f"the application of {row.member} {takes} {held} wait for it", remedy)
    stuck = [row for row in rows if row.published is not None and row.published.stuck_s]
    if not stuck:
        return
    least_s = min(row.published.stuck_s for row in stuck if row.published is not None)
    who = "nobody" if len(stuck) == len(live) else listed([row.member for row in stuck])
    what = "has delivered anything" if who == "nobody" else f"{_have([row.member for row in stuck])} delivered nothing"
    text = f"{who} {what} for {least_s} s, although messages wait"
    # who takes nothing in does not know how far the others are
    lagging = {row.member for row in unread}
    named = {status.slowest for status in live if status.slowest is not None and status.me not in lagging}
    in_view = {row.member for row in rows if row.in_view}
    waited_for = sorted(member for member in named & in_view if member not in {*lagging, *missing})
    remedy = ""
    if waited_for and not missing:
        text += f": {_are(waited_for)} waited for"
        remedy = f"Look at {listed(waited_for)}: stopped, overloaded, or no longer reached by the others."
    elif not missing and not unread:
        remedy = (
            "Nobody is known to be waited for: look at the members' logs, and whether the network lets packets pass."
        )
    yield Trouble("bad", text, remedy)


def _takes_nothing(row: MemberRow) -> bool:
    return row.published is not None and bool(row.published.unread_s or row.published.full)


def _late(rows: Sequence[MemberRow], live: Sequence[Status]) -> Iterator[Trouble]:
    """Tell who takes too long to get in, or to change the view."""
    late = [row for row in rows if row.state == "live" and row.published is not None]
    late = [row for row in late if row.published is not None and row.published.standing_s >= LATE_S]
    if _before_the_first_view(live) and not any(row.published is not None and row.published.refused for row in rows):
        yield from _not_begun([row.member for row in late], live)
        return
    for row in late:
        own = row.published
        assert own is not None
        if own.standing == "changing":
            text = f"{row.member} has been changing the view for {own.standing_s} s"
            yield Trouble(
                "bad",
                text,
                "Until the view is changed nothing new is delivered; members that do not answer are left out.",
            )
        elif own.standing == "joining":
            why = _REFUSED.get(own.refused_why, "")
            refused = f" and has refused {count(own.refused, 'packet')}{why}" if own.refused else ""
            text = f"{row.member} has been joining for {own.standing_s} s{refused}"
            remedy = (
                f"Compare the key, settings and peers of {row.member} with the others'; its log names what differs."
            )
            yield Trouble("bad" if own.refused else "warn", text, remedy)


def _not_begun(late: Sequence[str], live: Sequence[Status]) -> Iterator[Trouble]:
    """Tell that a group has not begun, because too few of its founders are there."""
    if not late:
        return
    wait = f"{listed(late)} {'waits' if len(late) == 1 else 'wait'} for the group to begin"
    here = {status.me for status in live}
    absent = sorted({source for status in live for source, target in status.links if target == status.me} - here)
    unheard = f"; nothing is heard from {listed(absent)}" if absent else ""
    start = f"Start {listed(absent) if absent else 'the others'}"
    yield Trouble("bad", wait + unheard, f"{start}: a group begins when more than half of its members are there.")


def _are(names: Sequence[str]) -> str:
    return f"{listed(names)} {'is' if len(names) == 1 else 'are'}"


def _have(names: Sequence[str]) -> str:
    return "has" if len(names) == 1 else "have"
