"""What nobody said the cause of: who left, joined, came back or was excluded, new keys, clocks, silences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from antiphon.pipeline.results import ProcessRow
from antiphon.report.incidents import phrases
from antiphon.report.incidents.story import Incident, RunStory
from antiphon.report.member_names import lane_of, member_name, members_named
from antiphon.report.timeline import Occurrence, names_in, since_start
from antiphon.wording import duration, listed, number

FLAPPING_MIN: Final = 3  # departures of one member that are told as one story
_WORDS: Final = {
    "exclusion": "was excluded by the others",
    "vanishing": "dropped out of the view",
    "leave": "left",
    "join": "joined",
    "return": "came back",
    "keys": "changed the group's keys",
}


def departures(story: RunStory) -> Iterator[Incident]:
    """Tell all that is left, what belongs together in one sentence."""
    yield from _unread(story)
    yield from _flapping(story)
    yield from _silences(story)
    _leave_out_the_end(story)
    yield from _left_and_came_back(story)
    for kind in _WORDS:
        for places in story.clusters(kind):
            story.told.update(places)
            yield Incident(kind, story.occurred[places[0]].at_ns, _several(story, kind, places))
    yield from _clocks(story)
    for place, one in enumerate(story.occurred):
        if place not in story.told and one.kind not in ("view", "halt"):
            story.told.add(place)
            yield Incident(one.kind, one.at_ns, _single(story, one))


def _several(story: RunStory, kind: str, places: Sequence[int]) -> str:
    """Tell what happened to several members within a short time."""
    instants = [at for place in places if (at := story.occurred[place].at_ns) is not None]
    every = [member for place in places for member in story.occurred[place].members]
    named = sorted(story.lanes(every)) if kind in ("return", "join") else sorted(set(every))
    text = f"{members_named(story.facts, named)} {_WORDS[kind].replace('was ', 'were ')}{phrases.between(instants)}"
    if kind == "vanishing":
        text += " (they crashed, left or were excluded: there are no logs of them)"
    if kind in ("leave", "vanishing"):
        text = "; ".join([text, *_after_leaving(story, every)])
    return text + (_left_behind_by_keys(story, places) if kind == "keys" else "")


def _single(story: RunStory, one: Occurrence) -> str:
    facts = story.facts
    if one.kind in _WORDS:
        before = story.last_view(one.members[0], one.at_ns)
        post = story.post(one.members[0], before) if one.kind == "leave" else ""
        named = members_named(facts, sorted(story.lanes(one.members)) if one.kind == "return" else one.members)
        said = [f"{named}{post} {_WORDS[one.kind]}{phrases.at(one)}"]
        if one.kind == "vanishing":
            said[0] += " (it crashed, left or was excluded: there is no log of it)"
        if one.kind in ("leave", "vanishing"):
            said += _after_leaving(story, one.members)
        row = story.process_of(one) if one.kind in ("leave", "exclusion") else None
        return "; ".join([*said, *(story.returned([row]) if row is not None else [])])
    if one.kind == "outside":
        text = f"{members_named(facts, one.members)} never got into the group: no view lists it "
        return text + "(another key, other settings or no link would do that; inferred from the views)"
    if one.kind == "absent":
        text = f"{members_named(facts, one.members)} never took part: no view lists it, and there is no log of it "
        return text + "(not started, another key, other settings or no link; inferred from the members' names)"
    if one.kind in ("unlogged", "short log"):
        cause = "a file is missing" if one.kind == "unlogged" else "it stopped, or the file is not whole"
        return f"{one.text} (perhaps {cause})"
    source = "its log" if one.kind == "clock" else "the views"
    return phrases.past(one.text) + phrases.at(one) + (f" (inferred from {source})" if one.basis == "inferred" else "")


def _flapping(story: RunStory) -> Iterator[Incident]:
    facts = story.facts
    for name in names_in(facts):
        places = [
            place
            for place in story.untold("exclusion", "return", "join", "silence")
            if lane_of(facts, story.occurred[place].members[0]) == name
        ]
        out = [place for place in places if story.occurred[place].kind == "exclusion"]
        if len(out) >= FLAPPING_MIN:
            story.told.update(places)
            first, last = story.occurred[out[0]], story.occurred[out[-1]]
            back = phrases.times(len(places) - len(out))
            span = f"from {phrases.moment(first.at_ns)} to {phrases.moment(last.at_ns)}"
            text = f"{member_name(facts, name)} was excluded {number(len(out))} times and came back {back}, {span}"
            yield Incident("flapping", first.at_ns, f"{text}: it flaps")


def _unread(story: RunStory) -> Iterator[Incident]:
    """Tell of applications that did not take what was delivered, with who waited for them or went on without them."""
    by_name: dict[int, list[Occurrence]] = {}
    for place in story.untold("unread"):
        story.told.add(place)
        one = story.occurred[place]
        by_name.setdefault(lane_of(story.facts, one.members[0]), []).append(one)
    for name, alike in by_name.items():
        who = member_name(story.facts, name)
        text = f"the application of {who} did not keep up: its inbox was full{phrases.spans(alike)}"
        followed = story.excluded_meanwhile(alike, pronoun="it") or [_waited_for(story, name)]
        back = story.kept_out([row for row in story.facts.processes if row.member in alike[0].members])
        never_back = ["it did not come back"] if back else []
        for each in alike:
            story.consequences(each, ("silence",))
        yield Incident("unread", alike[0].at_ns, "; ".join([text, *followed, *never_back]))


def _waited_for(story: RunStory, name: int) -> str:
    """Say how long the others waited for a member, if their clocks tell."""
    held_back = [] if story.facts.measured is None else story.facts.measured.held_back
    for row in held_back:
        if lane_of(story.facts, row.member) == name and row.longest_ns >= phrases.SLOW_NS_MIN:
            return f"the others {phrases.waited(row)}"
    return "what the others sent meanwhile had to wait"


def _silences(story: RunStory) -> Iterator[Incident]:
    """Tell of members that recorded nothing for long, with who went on without them and whether they came back."""
    for place in story.untold("silence"):
        one = story.occurred[place]
        story.told.add(place)
        length = duration((one.until_ns or 0) - (one.at_ns or 0))
        text = f"{members_named(story.facts, one.members)}{story.post_of(one)} recorded nothing for {length}"
        text += f" from {phrases.moment(one.at_ns)} on (it stood still or was cut off: inferred from its log)"
        yield Incident("silence", one.at_ns, "; ".join([text, *story.excluded_meanwhile([one], pronoun="it")]))


def _leave_out_the_end(story: RunStory) -> None:
    """Count leavings as the end of the run, not as incidents, if all leave when no more messages are sent."""
    facts = story.facts
    if any(row.ending == "end" for row in facts.processes) or not story.views:
        return
    places = story.untold("leave")
    if set(story.views[-1].members) <= {member for place in places for member in story.occurred[place].members}:
        sent = [
            at - (row.clock_off_ns or 0)
            for row in facts.processes
            if (at := since_start(facts, row.sent_at_ns)) is not None
        ]
        last = max(sent, default=0)
        story.told.update(place for place in places if (story.occurred[place].at_ns or 0) >= last)


def _left_and_came_back(story: RunStory) -> Iterator[Incident]:
    """Tell of several members that left, each to come back, as when a group is upgraded member by member."""
    found: list[tuple[int, ProcessRow]] = []
    for place in story.untold("leave"):
        row = story.process_of(story.occurred[place])
        if row is not None and story.next_life(row) is not None:
            found.append((place, row))
    if len(found) < 2:
        return
    lanes = story.lanes([row.member for _, row in found])
    if len(lanes) == 1:
        yield _left_again_and_again(story, [row for _, row in found])
        return
    story.told.update(place for place, _ in found)
    instants = [at for place, _ in found if (at := story.occurred[place].at_ns) is not None]
    text = f"{members_named(story.facts, sorted(lanes))} left one after the other{phrases.from_to(instants)}"
    back = "; ".join(story.returned([row for _, row in found])).replace("all were back after", "each was back within")
    yield Incident("leave", story.occurred[found[0][0]].at_ns, f"{text}; {back}")


def _left_again_and_again(story: RunStory, came_back: Sequence[ProcessRow]) -> Incident:
    """Tell of one member that left and came back several times, and perhaps left once more for good."""
    lane = lane_of(story.facts, came_back[0].member)
    left = [place for place in story.untold("leave") if story.lanes(story.occurred[place].members) == {lane}]
    story.told.update(left)
    instants = [at for place in left if (at := story.occurred[place].at_ns) is not None]
    text = f"{member_name(story.facts, lane)} left {phrases.times(len(left))}{phrases.from_to(instants)}"
    back = story.returned(came_back)[0].split(" back")[-1].replace(" after", ", within")
    each = "each time" if len(came_back) == len(left) else phrases.times(len(came_back))
    return Incident("leave", story.occurred[left[0]].at_ns, f"{text}; it came back {each}{back}")


def _after_leaving(story: RunStory, left: Sequence[int]) -> list[str]:
    """Say whether the others went on when members had left."""
    before = story.last_view(left[-1], None)
    others = [] if before is None else [member for member in before.members if member not in left]
    if not others or not story.facts.settings.views:
        return []
    followed = story.view_without(left[-1:], before) is not None
    return [f"the other {number(len(others))} {'went on' if followed else 'installed no view without it'}"]


def _left_behind_by_keys(story: RunStory, places: Sequence[int]) -> str:
    """Say which members of the view did not change keys when the others did."""
    changed = story.lanes([member for place in places for member in story.occurred[place].members])
    view = story.last_view_of_lane(next(iter(changed)), story.occurred[places[0]].at_ns)
    others = [] if view is None else [one for one in view.members if lane_of(story.facts, one) not in changed]
    return f"; {members_named(story.facts, others)} did not" if others else ""


def _clocks(story: RunStory) -> Iterator[Incident]:
    """Tell of clocks that are off from the others', several in one sentence."""
    facts = story.facts
    off = {row.member: row.clock_off_ns for row in facts.processes if row.clock_off_ns is not None}
    places = [
        place
        for place in story.untold("clock")
        if story.occurred[place].basis == "inferred" and "others'" in story.occurred[place].text
    ]
    if not places:
        return
    story.told.update(places)
    members = sorted(story.occurred[place].members[0] for place in places)
    ahead, behind = ([off[member] for member in members if off[member] * sign > 0] for sign in (1, -1))
    ways = [f"up to {duration(max(ahead))} ahead of"] if ahead else []
    ways += [f"up to {duration(-min(behind))} behind"] if behind else []
    if len(members) == 1:
        text = phrases.past(story.occurred[places[0]].text)
    else:
        text = f"the clocks of {members_named(facts, members)} were {listed(ways)} the others'"
    yield Incident("clock", story.occurred[places[0]].at_ns, f"{text} (inferred from when they installed views)")
