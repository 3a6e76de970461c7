"""Members that ended without leaving: killed, crashed or fallen silent; how the others went on, and what was lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from antiphon.pipeline.results import ProcessRow, ViewRow
from antiphon.report.incidents import phrases
from antiphon.report.incidents.story import SOON_NS, Incident, RunStory
from antiphon.report.member_names import lane_of, member_name, members_named
from antiphon.report.timeline import Occurrence, ended_at, since_start
from antiphon.wording import count, duration, listed, number

SERIES_MIN: Final = 3  # crashes one after the other that are first told as one
SERIES_MAX: Final = 4  # members that the sentence on a series of crashes names


class _Crash(msgspec.Struct):
    """Members that ended together: in the same view, before the others had gone on."""

    occurred: list[Occurrence]
    rows: list[ProcessRow]
    before: ViewRow | None
    after: ViewRow | None

    @property
    def cut_short(self) -> bool:
        """Whether perhaps only their logs ended: the others never went on without them."""
        return self.before is not None and self.after is None and all(row.ending is None for row in self.rows)

    def does(self) -> str:
        """Say how they ended."""
        if all(one.basis == "injected" for one in self.occurred):
            return "killed"
        if all(row.ending == "end" for row in self.rows):
            return "stopped without leaving"
        return "crashed" if all(row.ending == "crash" for row in self.rows) else "fell silent"


def crashes(story: RunStory) -> Iterator[Incident]:
    """Tell of crashes, those together that one view answers; of many, all in one sentence first."""
    found: dict[int, tuple[Occurrence, ProcessRow]] = {}
    for place in story.untold("crash", "silent end", "stop"):
        one = story.occurred[place]
        story.told.add(place)
        row = story.process_of(one)
        if row is not None:  # the kill and the row that records it are one
            if row.member not in found or one.basis == "injected":
                found[row.member] = one, row
        elif one.members:
            yield Incident("crash", one.at_ns, _unrecorded(story, one))
    groups: list[_Crash] = []
    for one, row in sorted(found.values(), key=lambda pair: pair[0].at_ns or 0):
        before = story.last_view(row.member, ended_at(story.facts, row))
        if groups and groups[-1].before is before and not _had_gone_on(story, groups[-1], one):
            groups[-1].occurred.append(one)
            groups[-1].rows.append(row)
        else:
            groups.append(_Crash([one], [row], before, None))
        groups[-1].after = story.view_without([row.member for row in groups[-1].rows], before)
    if len(groups) >= SERIES_MIN:
        yield _series(story, groups)
    for group in groups:
        yield Incident("crash", group.occurred[0].at_ns, _crash(story, group))


def _unrecorded(story: RunStory, one: Occurrence) -> str:
    """Tell of a kill without a log of the group that it ended: it was not running, or not yet in the group."""
    facts = story.facts
    outside = [place for place in story.untold("outside") if story.occurred[place].members == one.members]
    story.told.update(outside)
    never = ", before it got into the group" if outside else ""
    return f"{member_name(facts, one.members[0])} was killed{phrases.at(one)}{never}"


def _had_gone_on(story: RunStory, group: _Crash, one: Occurrence) -> bool:
    """Say whether the others had gone on without those of a group when one more ended."""
    last = group.occurred[-1].at_ns
    if last is None or one.at_ns is None:
        return True
    if group.before is None or group.after is None:
        return one.at_ns - last > SOON_NS
    at = since_start(story.facts, group.after.first_ns)
    return at is not None and at <= one.at_ns


def _crash(story: RunStory, group: _Crash) -> str:
    rows, many, does = group.rows, len(group.rows) > 1, group.does()
    post = story.post(rows[0].member, group.before) if not many else ""
    who = members_named(story.facts, sorted(row.member for row in rows))
    instants = [one.at_ns for one in group.occurred if one.at_ns is not None]
    was = "" if does != "killed" else "were " if many else "was "
    said = [f"{who}{post} {was}{does}{phrases.between(instants)}"]
    if all(row.ending is None for row in rows):
        ends = "their logs end" if many else "its log ends"
        said[0] += f" or soon after ({ends} there without a word)"
    said += _went_on(story, group)
    left_behind = [] if group.cut_short else _left_behind(rows)
    if left_behind and any(row.ending is None for row in rows):
        left_behind[0] = f"as far as {'their logs go' if many else 'its log goes'}, {left_behind[0]}"
    said += left_behind
    back = story.returned(rows, forgets=any(one.forgets for one in group.occurred))
    said += [one for one in back if many or not any(f"until {who} was {one[7:]}" in other for other in said)]
    said += story.kept_out(rows)
    return "; ".join(said)


def _series(story: RunStory, groups: Sequence[_Crash]) -> Incident:
    """Tell of a series of crashes in one sentence; each is told by itself below."""
    facts = story.facts
    rows = [row for group in groups for row in group.rows]
    lanes = Counter(lane_of(facts, row.member) for row in rows)
    does = groups[0].does() if len({group.does() for group in groups}) == 1 else "ended"
    if len(lanes) == 1:
        who = member_name(facts, next(iter(lanes)))
        said = f"{who} {'was ' if does == 'killed' else ''}{does} {phrases.times(len(rows))}"
    elif len(lanes) == len(rows):
        said = f"{members_named(facts, sorted(lanes))} {'were ' if does == 'killed' else ''}{does} one after the other"
    else:
        each = [f"{member_name(facts, lane)} {phrases.times(many)}" for lane, many in sorted(lanes.items())]
        named = f" ({listed(each)})" if len(each) <= SERIES_MAX else f" ({count(len(each), 'member')})"
        said = f"{number(len(rows))} times a member {'was ' if does == 'killed' else ''}{does}{named}"
    said += phrases.from_to([one.at_ns for group in groups for one in group.occurred if one.at_ns is not None])
    after = [
        since - at
        for group in groups
        if (since := None if group.after is None else since_start(facts, group.after.first_ns)) is not None
        and (at := ended_at(facts, group.rows[-1])) is not None
    ]
    if len(after) == len(groups):
        said += f"; the others went on each time, after {duration(max(0, *after))} at most"
    elif facts.settings.views:
        said += f"; the others went on {phrases.times(len(after))} of {number(len(groups))}"
    back = sum(story.next_life(row) is not None for row in rows)
    if len(lanes) == 1:
        said += f"; it came back {'each time' if back == len(rows) else phrases.times(back)}" if back else ""
    else:
        said += "; all came back" if back == len(rows) else f"; {number(back)} came back" if back else ""
    text = "; ".join([said, *_left_behind(rows, many=len(lanes) > 1)])
    return Incident("crashes", groups[0].occurred[0].at_ns, text)


def _went_on(story: RunStory, group: _Crash) -> list[str]:
    """Say how the others went on."""
    facts, before, gone_now = story.facts, group.before, {row.member for row in group.rows}
    if before is None:
        it, stayed = ("they", "members") if len(gone_now) > 1 else ("it", "a member")
        fixed = not facts.settings.views and not facts.views
        return [f"membership is fixed, so {it} stayed {stayed}"] if fixed else []
    others = [member for member in before.members if member not in gone_now]
    who = f"the other {number(len(others))}"
    too_few = 2 * len(others) <= len(before.members)
    no_majority = f"{len(others)} of {len(before.members)} is no majority"
    if group.after is not None:
        still = [member for member in group.after.members if member in others]
        at, ended = since_start(facts, group.after.first_ns), ended_at(facts, group.rows[-1])
        helpers = [member for member in group.after.members if member not in before.members]
        if 0 < len(still) < len(others) and 2 * len(still) <= len(before.members):  # the rest was cut off
            who = f"{number(len(still))} of the other {number(len(others))}"
            no_majority, too_few = f"{len(still)} of {len(before.members)} is no majority", True
        if too_few and helpers:
            came = members_named(facts, sorted(story.lanes(helpers)))
            back = f"{came} {'was' if len(helpers) == 1 else 'were'} back{phrases.after(at, ended)}"
            return [f"{who} could not go on ({no_majority}) until {back}"]
        who = who if len(still) == len(others) else f"{number(len(still))} of the other {number(len(others))}"
        if at is not None and ended is not None and at < ended:
            return [f"{who} had gone on without {'them' if len(gone_now) > 1 else 'it'} at {duration(at)}"]
        return [f"{who} went on{phrases.after(at, ended)}"]
    if not others:
        return ["nobody was left"] if len(before.members) > 1 else []
    if too_few:
        return [f"{who} could not go on: {no_majority}"]
    it, its = ("them", "their logs were") if len(gone_now) > 1 else ("it", "its log was")
    if group.cut_short:
        return [f"the others kept {it} in the view: perhaps only {its} cut short (a full disk, a missing file)"]
    return [f"the others installed no view without {it}"]


def _left_behind(rows: Sequence[ProcessRow], *, many: bool | None = None) -> list[str]:
    """Say what was lost with members."""
    if any(row.undelivered is None or row.alone is None for row in rows):
        return []
    many = len(rows) > 1 if many is None else many
    undelivered, alone = sum(row.undelivered or 0 for row in rows), sum(row.alone or 0 for row in rows)
    if undelivered:
        whose = "theirs" if many else "it"
        said = f"{count(undelivered, 'message')} of {whose} {'was' if undelivered == 1 else 'were'} never delivered"
    else:
        said = f"no message of {'theirs' if many else 'it'} was lost"
    return [said, f"what {'they' if many else 'it'} had delivered alone: {alone:,}"]
