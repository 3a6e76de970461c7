"""What happened to the group, told in sentences: each cause with what followed from it, the gravest first in rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from antiphon.report.facts import Facts
from antiphon.report.incidents.crashes import crashes
from antiphon.report.incidents.departures import departures
from antiphon.report.incidents.hindrances import hindrances
from antiphon.report.incidents.measured import measured_incidents, with_halts
from antiphon.report.incidents.story import Incident, RunStory
from antiphon.report.member_names import after_lives, begin
from antiphon.wording import count

HEADLINE_MAX: Final = 2  # incidents that the headline tells; the others are told below it
TOLD_MAX: Final = 8  # below it


def headline_of(found: Sequence[Incident]) -> list[str]:
    """Tell the gravest, in order of time, and how many more there are; a sentence each."""
    later = beyond_headline(found)
    said = [f"{one.text}." for one in found if one not in later]
    more = [one for one in later if not (one.kind == "crash" and _is_series(found))]  # those are part of what is said
    return [*said, *([f"And {count(len(more), 'more thing')} happened."] if more else [])]


def _is_series(found: Sequence[Incident]) -> bool:
    return any(one.kind == "crashes" for one in found)


def beyond_headline(found: Sequence[Incident]) -> list[Incident]:
    """Return what is left to be told below the headline."""
    summed = _is_series(found)  # then each crash is told below
    first = sorted((one for one in found if not (summed and one.kind == "crash")), key=lambda one: one.rank)
    first = first[:HEADLINE_MAX]
    return [one for one in found if one not in first]


def incidents(facts: Facts) -> list[Incident]:
    """Return what happened, in order of time; told once, with the cause if it is known."""
    story = RunStory(facts)
    tellers = (crashes, hindrances, departures, measured_incidents)  # causes before what only followed
    found = with_halts(story, [one for tell in tellers for one in tell(story)])
    found = [msgspec.structs.replace(one, text=begin(facts, after_lives(one.text))) for one in found]
    return sorted(found, key=lambda one: (one.at_ns is None, one.at_ns or 0, one.rank))
