"""What happened to the group, on the page: told in sentences, drawn over time, and listed with how it is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from markupsafe import Markup

from antiphon.report import charts
from antiphon.report.facts import Facts
from antiphon.report.incidents import TOLD_MAX, beyond_headline
from antiphon.report.incidents.story import Incident
from antiphon.report.member_names import group_size, lane_of, member_name
from antiphon.report.timeline import BASIS_WORDS, Occurrence, began_at, ended_at, names_in, timeline
from antiphon.web.elements import element, figure, joined, section, table
from antiphon.wording import count, duration

LANES_MAX: Final = 40
LANES_FEW: Final = 12  # of a larger group, where nothing happened to more
LISTED_MAX: Final = 100
_MARKED: Final = ("crash", "silent end", "exclusion", "vanishing", "leave", "stop", "clock", "merge", "split")
_SHADED: Final = ("partition", "cut", "pause", "silence", "unread", "network", "halt")


def told(found: Sequence[Incident]) -> Markup | None:
    """Return what the headline has no room for as a list of sentences; None where it says all."""
    others = beyond_headline(found)
    if not others:
        return None
    lines = [element("li", f"{one.text}.") for one in others[:TOLD_MAX]]
    if len(others) > TOLD_MAX:
        lines.append(element("li", f"And {count(len(others) - TOLD_MAX, 'more thing')}: see the timeline below."))
    return element("ul", joined(lines), {"class": "told"})


def history(facts: Facts) -> Markup | None:
    """Return the section; None where nothing happened to the group."""
    happened = timeline(facts)
    if not happened:
        return None
    rows = [
        ("" if one.at_ns is None else duration(one.at_ns), one.text, BASIS_WORDS[one.basis])
        for one in happened[:LISTED_MAX]
    ]
    more = f"The first {LISTED_MAX} of {len(happened)}." if len(happened) > LISTED_MAX else ""
    listing = table(("After", "What", "How it is known"), rows, caption=more, numbers=(0,), row_head=None)
    title = "What happened to the group"
    drawn = _drawn(facts, happened)
    if not drawn:
        return section("history", title, listing)
    caption = (
        "Each row is a member, each bar one of its lives; upright lines are views, a cross is a crash or a log "
        "that ends without a word, an open circle is leaving or exclusion. "
        "Grey: cut off, standing still, silent or not reading."
    )
    if facts.measured is not None and facts.measured.clock != "global":
        caption += " Times are by each member's own clock."
    return section("history", title, figure(drawn, caption, listing))


def moments(facts: Facts) -> list[charts.Moment]:
    """Return the timeline as every chart over time carries it."""
    found = []
    for one in timeline(facts):
        if one.at_ns is None:
            continue
        if one.kind == "view":
            found.append(charts.Moment(one.at_ns, None, one.text.split(" of ")[0], "view"))
        elif one.kind == "keys":
            found.append(charts.Moment(one.at_ns, None, "keys", "view"))
        elif one.kind in _MARKED and one.basis != "injected":
            found.append(charts.Moment(one.at_ns, None, one.kind, "bad"))
        elif one.kind in _SHADED:
            found.append(charts.Moment(one.at_ns, one.until_ns, one.kind, "shade"))
    return found


def _drawn(facts: Facts, happened: Sequence[Occurrence]) -> str:
    run, rows = facts.run, facts.processes
    every = names_in(facts)
    concerned = {lane_of(facts, member) for one in happened if one.kind != "view" for member in one.members}
    most = LANES_MAX if len(every) <= LANES_MAX else min(max(len(concerned), LANES_FEW), LANES_MAX)
    names = sorted(sorted(every, key=lambda name: (name not in concerned, name))[:most])
    last = max((at for row in rows if (at := ended_at(facts, row)) is not None), default=None)
    if run is None or last is None or last <= 0 or not names:
        return ""
    lanes = {name: index for index, name in enumerate(names)}
    lives = [
        charts.IncarnationBar(lanes[lane_of(facts, row.member)], began, ended, row.ending or "stopped")
        for row in rows
        if lane_of(facts, row.member) in lanes
        and (began := began_at(facts, row)) is not None
        and (ended := ended_at(facts, row)) is not None
    ]
    label = f"{group_size(facts)} over time: when each came and went, and {count(len(facts.views), 'view')}."
    shown = [member_name(facts, name) for name in names]
    if len(every) > len(names):
        rest = ", to whom nothing happened" if concerned and concerned <= set(names) else ""
        shown.append(f"and {len(every) - len(names):,} more{rest}")
    views = [one for one in moments(facts) if one.kind == "view"]
    return charts.timeline(shown, lives, views, list(_shades(facts, happened, lanes, last)), last, label)


def _shades(facts: Facts, happened: Sequence[Occurrence], lanes: dict[int, int], end: int) -> Iterator[charts.Shade]:
    """Yield who was cut off from the largest side, stood still or was silent, and when."""
    for one in happened:
        if one.kind in _SHADED and one.at_ns is not None:
            for member in one.members:
                lane = lanes.get(lane_of(facts, member))
                if lane is not None:
                    yield charts.Shade(lane, one.at_ns, end if one.until_ns is None else one.until_ns)
