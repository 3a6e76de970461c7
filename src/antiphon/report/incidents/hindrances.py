"""What a test did to networks and processes that lived on: partitions, cuts, bad links, pauses; and what followed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from antiphon.report.incidents import phrases
from antiphon.report.incidents.story import Incident, RunStory, overlapping
from antiphon.report.member_names import members_named
from antiphon.report.timeline import Occurrence, cut_sides, since_start


def hindrances(story: RunStory) -> Iterator[Incident]:
    """Tell of each, with who was excluded and came back."""
    for kind in ("partition", "cut", "link", "network", "pause"):
        for alike in overlapping(_alike(story, kind)) if kind == "pause" else _alike(story, kind):
            tell = _partition if kind == "partition" else _hindrance
            yield Incident(kind, alike[0].at_ns, tell(story, alike))


def _alike(story: RunStory, kind: str) -> Iterator[list[Occurrence]]:
    """Yield what a test did to the same members again and again, together."""
    groups: dict[tuple[object, ...], list[Occurrence]] = {}
    for place in story.untold(kind):
        one = story.occurred[place]
        if one.basis == "injected":
            story.told.add(place)
            groups.setdefault((one.sides, one.members, one.one_way, one.by), []).append(one)
    yield from groups.values()


def _partition(story: RunStory, alike: Sequence[Occurrence]) -> str:
    facts, one = story.facts, alike[-1]
    parts = " | ".join(members_named(facts, side) for side in one.sides)
    said = [f"the network was cut into {parts}{phrases.spans(alike)}"]
    went_on = {side: view for side in one.sides if (view := story.view_of_side(side, one)) is not None}
    for view in went_on.values():
        after = phrases.after(since_start(facts, view.first_ns), one.at_ns)
        said.append(f"{members_named(facts, sorted(story.lanes(view.members)))} went on{after}")
    excluded = [member for each in alike for member in story.consequences(each, ("exclusion",))]
    if facts.settings.views and not went_on:
        said.append("no side went on by itself" if story.changed_during(one) else "no side changed its view")
    elif facts.settings.views and not excluded:
        said += [f"{members_named(facts, side)} did not" for side in one.sides if side not in went_on]
    # a side that went on by itself yields when the sides meet, which is no harm
    yielded = [member for member in excluded if any(member in view.members for view in went_on.values())]
    left_out = [member for member in excluded if member not in yielded]
    said += [story.excluded(left_out)] if left_out else []
    said += [f"{members_named(facts, sorted(story.lanes(yielded)))} gave way to the others"] if yielded else []
    together = story.together_again(one)
    parted_anew = any(
        other.at_ns is not None
        and one.until_ns is not None
        and one.until_ns <= other.at_ns < (together or other.at_ns + 1)
        for other in story.occurred
        if other.kind == "partition" and other is not one
    )
    if one.until_ns is not None and (went_on or excluded) and not parted_anew:
        healed = f"all were together again{phrases.after(together, one.until_ns)}"
        said.append(healed if together is not None else "they did not all come together again")
    for each in alike:
        story.consequences(each, ("return", "merge", "split", "silence"))
    return "; ".join(said)


def _hindrance(story: RunStory, alike: Sequence[Occurrence]) -> str:
    facts, one = story.facts, alike[0]
    if one.kind == "cut":
        way = cut_sides(facts, one, "to" if one.one_way else "and")
        text = f"nothing got {'from' if one.one_way else 'between'} {way}{phrases.spans(alike)}"
    elif one.kind == "link":
        text = f"the links from {cut_sides(facts, one, 'to')} had {one.by}{phrases.spans(alike)}"
    elif one.kind == "network":
        text = f"the network had {one.by}{phrases.spans(alike)}"
    else:
        span = phrases.within(one) if one.is_several else phrases.spans(alike)
        text = f"{members_named(facts, one.members)}{story.post_of(one)} stood still{span}"
    itself = one.kind == "pause" and len(one.members) == 1
    followed = story.excluded_meanwhile(alike, pronoun="it" if itself else "")
    for each in alike:
        story.consequences(each, ("silence",))
    if followed:
        text = "; ".join([text, *followed])
    elif facts.settings.views and not any(story.changed_during(each) for each in alike):
        text += "; the view stayed"
    return text
