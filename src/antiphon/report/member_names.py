"""What members are called on a page: by the names that people gave them, and which of their lives it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from antiphon.protocol.membership.views import name_of
from antiphon.report.facts import Facts
from antiphon.report.run_settings import count_lives
from antiphon.wording import count, listed

LISTED_MAX: Final = 6  # members that a sentence names; more are counted
NEIGHBOURS_MIN: Final = 6  # consecutive numbers from which on a range is said: "members 14 to 19"


def member_name(facts: Facts, member: int) -> str:
    """Name a member as people do: by its name, and by its life if it has started more than once."""
    given = facts.settings.name_of(member) or f"member {lane_of(facts, member)}"
    return given + facts.settings.life_of(member, _lives(facts))


def _lives(facts: Facts) -> dict[int, int]:
    """Return which of its name's lives each process is that took part, counted once."""
    if facts.lives is None:
        in_views = [member for view in facts.views for member in view.members]
        facts.lives = count_lives(in_views or [row.member for row in facts.processes])
    return facts.lives


def lane_of(facts: Facts, member: int) -> int:
    """Return what all lives of a member have in common: its row in a picture."""
    return name_of(member) if facts.settings.views else member


def group_size(facts: Facts) -> str:
    """Say how many members there are: names, and how many lives they had where that is more."""
    known = {row.member for row in facts.processes} | {member for view in facts.views for member in view.members}
    if facts.runs > 1 or not facts.settings.views or len(known) < facts.members:
        return count(facts.members, "member")
    names = {name_of(row.member) for row in facts.processes}  # but for those of whom only a view tells
    names |= {name_of(member) for member in known} if len(facts.processes) < facts.members else set()
    size = count(len(names), "member")
    lives = len(_lives(facts))  # a start that never got into a view is none
    return size if lives <= len(names) else f"{size}, {count(lives, 'life', 'lives')}"


def members_named(facts: Facts, members: Sequence[int]) -> str:
    """Name some members in a sentence; many are counted."""
    named = [member_name(facts, member) for member in members]
    if len(named) > 1 and all(name.startswith("member ") and name[7:].isdecimal() for name in named):
        stretches = _neighbours([int(name[7:]) for name in named])
        if len(stretches) <= LISTED_MAX:
            return f"members {listed(stretches)}"
    if len(members) > LISTED_MAX:
        return count(len(members), "member")
    return listed(named) if named else "nobody"


def _neighbours(numbers: Sequence[int]) -> list[str]:
    """Return numbers as texts, many that follow each other as one: 0 to 13."""
    stretches: list[list[int]] = []
    for one in numbers:
        if stretches and one == stretches[-1][-1] + 1:
            stretches[-1].append(one)
        else:
            stretches.append([one])
    long = [len(stretch) >= NEIGHBOURS_MIN for stretch in stretches]
    return [
        text
        for stretch, is_long in zip(stretches, long, strict=True)
        for text in ([f"{stretch[0]} to {stretch[-1]}"] if is_long else map(str, stretch))
    ]


def with_names(facts: Facts, text: str) -> str:
    """Return a sentence of a checker, which speaks of members by number, with their names."""
    return put_names(text, lambda member: member_name(facts, member))


def put_names(text: str, called: Callable[[int], str]) -> str:
    """Return a sentence of a checker with what members are called, those too whose messages it speaks of."""
    said = re.sub(r"\bmember (-?\d+)\b", lambda found: called(int(found[1])), text)
    said = re.sub(r"\b(message \d+ of) (-?\d+)\b", lambda found: f"{found[1]} {called(int(found[2]))}", said)
    return after_lives(said)


def after_lives(text: str) -> str:
    """Return a sentence with the comma that closes what is put in: "member 1, 2nd life, was killed"."""
    return re.sub(r"(, \d+(?:st|nd|rd|th) life) (?=[a-z])", r"\1, ", text)


def begin(facts: Facts, text: str) -> str:
    """Begin a sentence with a capital, unless it begins with a name that somebody gave."""
    given = facts.settings.names.values()
    return text if text.startswith(tuple(given)) and given else text[:1].upper() + text[1:]
