"""What happened to the group: views, crashes, exclusions, partitions and pauses; drawn over time, and listed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from markupsafe import Markup

from antiphon.errors import UsageError
from antiphon.pipeline.results import ViewRow
from antiphon.protocol.membership.views import incarnation_of, name_of
from antiphon.report import charts
from antiphon.report.facts import Facts
from antiphon.report.run_settings import ScenarioFault
from antiphon.sim.distributions import duration as parsed
from antiphon.web.elements import figure, notice, section, table
from antiphon.wording import count, duration, listed

LANES_MAX: Final = 40
LISTED_MAX: Final = 100
_ENDINGS: Final = {
    "crash": ("crashed", "crashed"),
    "excluded": ("was excluded by the others", "were excluded by the others"),
    "leave": ("left", "left"),
    None: ("stopped without a word", "stopped without a word"),  # killed, or its log was cut short
}


class Happening(NamedTuple):
    """Something that happened to the group; `at_ns` is None where no clock says."""

    at_ns: int | None
    text: str


def member_name(facts: Facts, member: int) -> str:
    """Name a member as people do: by its name, and by its incarnation if it has started more than once."""
    if not facts.settings.views:
        return f"member {member}"
    again = incarnation_of(member)
    return f"member {name_of(member)}" + (f" (incarnation {again})" if again > 1 else "")


def group_size(facts: Facts) -> str:
    """Say how many members there are: names, and how often they started where that is more."""
    names = {name_of(row.member) for row in facts.processes} if facts.settings.views else set()
    if facts.runs > 1 or not names or len(facts.processes) < facts.members:
        return count(facts.members, "member")
    size = count(len(names), "member")
    return size if len(names) == facts.members else f"{size}, {count(facts.members, 'incarnation')}"


def history_notice(facts: Facts) -> Markup | None:
    """Return what must be known at the top: who did not stay to the end, and what the scenario let go wrong."""
    said = [*_departures(facts), *_faults_in_short(facts)]
    changes = len(facts.views) - 1
    title = f"The view changed {count(changes, 'time')}." if changes > 0 else "The group did not stay as it was."
    return notice("info", title, f"{'; '.join(said)}.".capitalize() if said else "") if said or changes > 0 else None


def _departures(facts: Facts) -> Iterator[str]:
    for ending, (one, many) in _ENDINGS.items():
        gone = [member_name(facts, row.member) for row in facts.processes if row.ending == ending]
        if gone:
            yield f"{listed(gone) if len(gone) <= 5 else f'{len(gone)} members'} {one if len(gone) == 1 else many}"


def _faults(facts: Facts) -> list[ScenarioFault]:
    return [] if facts.settings.parameters is None else facts.settings.parameters.faults


def _faults_in_short(facts: Facts) -> list[str]:
    kinds = [fault.kind for fault in _faults(facts) if fault.kind in ("partition", "cut", "pause")]
    return [count(kinds.count(kind), kind) for kind in dict.fromkeys(kinds)]


def history(facts: Facts) -> Markup | None:
    """Return the section; None where nothing happened to the group."""
    happened = sorted(_happenings(facts), key=lambda one: (one.at_ns is None, one.at_ns or 0))
    if not happened:
        return None
    start = 0 if facts.run is None or facts.run.first_ns is None else facts.run.first_ns
    rows = [("" if one.at_ns is None else duration(one.at_ns - start), one.text) for one in happened[:LISTED_MAX]]
    more = f"The first {LISTED_MAX} of {len(happened)}." if len(happened) > LISTED_MAX else ""
    listing = table(("After", "What"), rows, caption=more, numbers=(0,), row_head=None)
    title = "What happened to the group"
    drawn = _timeline(facts, start) if facts.measured is not None and facts.measured.clock == "global" else ""
    if not drawn:
        return section("history", title, listing)
    caption = (
        "Each row is a member, each bar one of its incarnations; upright lines are views, a cross is a crash or a log "
        "that ends without a word, an open circle is leaving or exclusion. Grey: cut off or paused by the scenario."
    )
    return section("history", title, figure(drawn, caption, listing))


def _happenings(facts: Facts) -> Iterator[Happening]:
    before: ViewRow | None = None
    for view in facts.views:
        yield Happening(view.first_ns, _view_words(facts, before, view))
        before = view
    for row in facts.processes:
        if row.ending != "end":
            yield Happening(row.last_ns, f"{member_name(facts, row.member)} {_ENDINGS[row.ending][0]}")
    for fault in _faults(facts):
        if fault.kind in ("partition", "cut", "pause"):
            yield Happening(_instant(fault.at), _fault_words(fault))


def _view_words(facts: Facts, before: ViewRow | None, view: ViewRow) -> str:
    said = f"view {view.view} of {count(len(view.members), 'member')}"
    if view.installed < len(view.members):
        said += f", installed by {view.installed}"
    if before is None:
        return said
    came = [member_name(facts, member) for member in view.members if member not in before.members]
    went = [member_name(facts, member) for member in before.members if member not in view.members]
    said += f"; with {listed(came)}" if came else ""
    return said + (f"; without {listed(went)}" if went else "")


def _fault_words(fault: ScenarioFault) -> str:
    until = f" until {fault.until}" if fault.until else ", for good"
    match fault.kind:
        case "pause":
            return f"member {fault.member} is paused{until}"
        case "cut":
            return f"nothing gets from {_numbers(fault.source)} to {_numbers(fault.target)}{until}"
    sides = " | ".join(_numbers(group) for group in fault.groups or [])
    return f"the network is cut into {sides}{until}"


def _numbers(members: list[int] | None) -> str:
    return ", ".join(map(str, members or [])) or "the others"


def _instant(text: str | None) -> int | None:
    try:
        return None if text is None else parsed(text, "at")
    except UsageError:
        return None


def _timeline(facts: Facts, start: int) -> str:
    run, rows = facts.run, facts.processes
    names = sorted({_lane(facts, row.member) for row in rows})[:LANES_MAX]
    if run is None or run.last_ns is None or not names:
        return ""
    lanes = {name: index for index, name in enumerate(names)}
    lives = [
        charts.IncarnationBar(
            lanes[_lane(facts, row.member)], row.first_ns - start, row.last_ns - start, row.ending or "stopped"
        )
        for row in rows
        if _lane(facts, row.member) in lanes and row.first_ns is not None and row.last_ns is not None
    ]
    views = [(view.first_ns - start, str(view.view)) for view in facts.views if view.first_ns is not None]
    label = f"{group_size(facts)} over time: when each came and went, and {count(len(views), 'view')}."
    return charts.timeline(
        [str(name) for name in names], lives, views, list(_shades(facts, lanes, start)), run.last_ns - start, label
    )


def _lane(facts: Facts, member: int) -> int:
    return name_of(member) if facts.settings.views else member


def _shades(facts: Facts, lanes: dict[int, int], start: int) -> Iterator[charts.Shade]:
    """Yield who was cut off from the largest side or paused, and when; as the scenario says."""
    end = 0 if facts.run is None or facts.run.last_ns is None else facts.run.last_ns
    for fault in _faults(facts):
        at, until = _instant(fault.at), _instant(fault.until)
        concerned: list[int] = []
        if fault.kind == "pause" and fault.member is not None:
            concerned = [fault.member]
        elif fault.kind == "partition":
            named = {member for group in fault.groups or [] for member in group}
            sides = [*(fault.groups or []), [name for name in lanes if name not in named]]
            concerned = [member for side in sorted(sides, key=len)[:-1] for member in side]
        elif fault.kind == "cut":
            concerned = fault.source or []
        for member in concerned:
            if at is not None and member in lanes:
                yield charts.Shade(lanes[member], at - start, (end if until is None else until) - start)
