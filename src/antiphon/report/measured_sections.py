"""What was measured of a trace, a section each: first in words, then drawn, then the numbers behind it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from markupsafe import Markup

from antiphon.pipeline.results import HeldBack, MeasureResult, WaitingRow, WireTraffic
from antiphon.report import charts
from antiphon.report.facts import Facts
from antiphon.report.history_section import moments
from antiphon.report.member_names import after_lives, begin, member_name
from antiphon.report.run_settings import BufferBound, buffer_bound
from antiphon.report.timeline import start_ns
from antiphon.web.elements import bar, element, figure, paragraph, section, table
from antiphon.wording import amount, count, duration, ratio, size

KINDS_MAX: Final = 12  # of messages on the wire, in the table of traffic
TABLE_ROWS: Final = 20  # behind a figure over time
WORST_FIRST_FROM: Final = 8  # members; fewer are drawn in their order


class DurationWords(NamedTuple):
    """One measure of time: what its figure shows, and with what it ends."""

    title: str
    end: str


_DURATIONS: Final = {
    "delivery": DurationWords("From send to delivery, at each member", "a member delivered a message"),
    "everywhere": DurationWords("From send until every member holds it", "the last member held it"),
    "stable": DurationWords(
        "From send until a member knows that all hold it (stable)", "a member knew it to be stable"
    ),
}


def measured_sections(facts: Facts) -> Iterator[Markup | None]:
    """Return all sections; none of a trace that has no events or was not measured."""
    if facts.measured is not None and facts.events:
        for one in (_times, _buffers, _held_back, _traffic, _repairs):
            yield one(facts, facts.measured)


def _unknown(measured: MeasureResult, key: str) -> Markup:
    return paragraph(f"Unknown: {measured.unknown.get(key, 'the trace does not say')}.", kind="muted")


def _times(facts: Facts, measured: MeasureResult) -> Markup | None:
    shown = {name: found for name in _DURATIONS if (found := measured.latency.get(name)) is not None}
    title = "How long it took"
    if not shown:
        return section("times", title, _unknown(measured, "delivery"))
    said = "; ".join(
        f"{_DURATIONS[name].end} after {duration(found.p50_ns)}, 99 times of 100 within {duration(found.p99_ns)}"
        for name, found in shown.items()
    )
    said = f"Typically (median), {said}."
    rows = [
        charts.Durations(
            _DURATIONS[name].title,
            [(row.low_ns, row.high_ns, row.count) for row in facts.histogram if row.measure == name],
            found.p50_ns,
            found.p99_ns,
        )
        for name, found in shown.items()
    ]
    behind = table(
        ("From the send until", "Counted", "half", "90%", "99%", "99.9%", "all"),
        [
            (_DURATIONS[name].end, f"{found.count:,}", *map(duration, msgspec.structs.astuple(found)[1:]))
            for name, found in shown.items()
        ],
        numbers=range(1, 7),
        caption="how long it took at most for this share of the messages",
    )
    caption = "How often each duration occurred; the axis is logarithmic, each step to the right takes much longer."
    drawing = charts.durations(rows, f"Histograms of durations. {said}") if facts.histogram else ""
    return section("times", title, paragraph(said), figure(drawing, caption, behind) if drawing else behind)


def _buffers(facts: Facts, measured: MeasureResult) -> Markup | None:
    title = "How full the buffers were"
    peak = measured.buffer
    if peak is None:
        return section("buffers", title, _unknown(measured, "buffer"))
    bound = buffer_bound(facts.settings, facts.members if facts.run is None else facts.run.members)
    most, who = peak.peak, f"{begin(facts, member_name(facts, peak.member))} held the most at once: {peak.peak:,}."
    if facts.runs > 1 and facts.occupancy and facts.run is not None:  # the bound is that of the run that is drawn
        most = max(row.peak for row in facts.occupancy)
        who = f"In the run {facts.run.run} one held at most {most:,} at once."
    said = f"A member keeps a copy of each message until all are known to hold it. {who} {_bound_words(bound, most)}"
    said = after_lives(said)
    if not facts.occupancy:
        return section("buffers", title, paragraph(said))
    if any(row.clock_off_ns for row in facts.processes):
        apart = "The members' clocks are too far apart to draw it over time."
        return section("buffers", title, paragraph(said), paragraph(apart, kind="muted"))
    levels = [charts.Level(row.start_ns, row.end_ns, row.mean, row.peak) for row in facts.occupancy]
    first, most_allowed = start_ns(facts), bound.messages if bound else None
    drawing = charts.occupancy(levels, most_allowed, f"Messages held over time. {said}", moments(facts), first)
    step = max(1, -(-len(levels) // TABLE_ROWS))
    rows = [
        (
            duration(levels[at].start_ns - first),
            f"{sum(level.mean for level in part) / len(part):,.1f}",
            f"{max(level.peak for level in part):,}",
        )
        for at in range(0, len(levels), step)
        for part in [levels[at : at + step]]
    ]
    behind = table(("From", "Mean of the members", "The fullest"), rows, numbers=(1, 2))
    caption = "Messages that a member held and did not yet know to be stable."
    return section("buffers", title, paragraph(said), figure(drawing, caption, behind))


def _bound_words(bound: BufferBound | None, peak: int) -> str:
    if bound is None:
        return "How much room there was, the trace does not say."
    if peak > bound.messages:
        return f"That is more than the bound of {bound.messages:,} ({bound.why})."
    share = 100 * peak / bound.messages
    return f"That is {share:.{0 if share >= 1 else 2}f}% of the bound of {bound.messages:,} ({bound.why})."


def _held_back(facts: Facts, measured: MeasureResult) -> Markup | None:
    title = "Who held stability back"
    worst = measured.held_back
    if not worst:
        return section("held-back", title, _unknown(measured, "held_back"))
    if not worst[0].waited_ns and not worst[0].lacked:
        said = "A message can become stable when its last member holds it. Nobody was waited for alone."
        return section("held-back", title, paragraph(said))
    said = _held_back_words(facts, worst[0])
    behind = _held_back_table(facts, worst)
    shown = _waiting_over_time(facts, said, behind) if facts.waiting else behind
    return section("held-back", title, paragraph(after_lives(said), _spread_words(worst)), shown)


def _held_back_words(facts: Facts, first: HeldBack) -> str:
    """Who was waited for most."""
    where = f" of run {first.run}" if facts.runs > 1 else ""
    who = begin(facts, member_name(facts, first.member))
    said = f"A message can become stable when its last member holds it. {who}{where} was waited for "
    said += f"most: it was the last to hold {count(first.last, 'message')}"
    said += f" and never held {first.lacked:,} that nobody could call stable" if first.lacked else ""
    said += f"; the others waited up to {duration(first.longest_ns)} for it alone, "
    return said + f"{duration(first.waited_ns)} summed over these messages."


def _held_back_table(facts: Facts, worst: Sequence[HeldBack]) -> Markup:
    rows = [
        (
            begin(facts, member_name(facts, row.member)) + (f" ({row.run})" if facts.runs > 1 else ""),
            f"{row.last:,}",
            f"{row.lacked:,}",
            duration(row.waited_ns),
            duration(row.longest_ns),
        )
        for row in worst
    ]
    return table(
        ("Member", "Last to hold", "Never held", "Waited for alone, sum over messages", "At most"),
        rows,
        numbers=range(1, 5),
        caption="those that were waited for most",
    )


def _waiting_over_time(facts: Facts, said: str, behind: Markup) -> Markup:
    """For whom how many messages waited, over the run."""
    by_member: dict[int | None, list[WaitingRow]] = {}
    for row in facts.waiting:
        by_member.setdefault(row.member, []).append(row)
    if len(by_member) > WORST_FIRST_FROM:  # the worst first, what is summed up last
        waited = {member: sum(row.messages for row in rows) for member, rows in by_member.items()}
        by_member = dict(sorted(by_member.items(), key=lambda item: (item[0] is None, -waited[item[0]])))
    one = next(iter(by_member.values()))
    edges = [one[0].start_ns, *(row.end_ns for row in one)]
    others = (0 if facts.run is None else facts.run.members) - len(by_member) + 1
    values = [
        [row.messages / (max(others, 1) if member is None else 1) for row in rows] for member, rows in by_member.items()
    ]
    names = [f"the other {others:,}, mean" if member is None else member_name(facts, member) for member in by_member]
    label = f"Members by time, darker where more messages waited. {said}"
    rest = names.index(names[-1]) if None in by_member else None
    drawing = charts.heat_map(names, edges, values, label, moments(facts), start_ns(facts), rest=rest)
    caption = "Each row is a member. The stronger the colour, the more messages everyone else held and it did not yet."
    if rest is not None:
        most = max(values[rest], default=0)
        caption += f" The last row is the mean of all others, on a scale of its own: up to {amount(most)} for each."
    return figure(drawing, caption, behind)


def _spread_words(worst: Sequence[HeldBack]) -> str:
    """Whether the first stands out from the next."""
    waits = [row.waited_ns for row in worst]
    if len(waits) > 1 and waits[0] >= 3 * max(waits[1], 1):
        return "Nobody else comes near it."
    if len(waits) > 1 and waits[0] < 1.5 * waits[1]:
        return "Others were waited for nearly as long: no single member is slow."
    return ""


def _traffic(facts: Facts, measured: MeasureResult) -> Markup | None:
    kinds = {name: found for name, found in measured.traffic.items() if name != "receive"}
    if not kinds:
        return None
    known = any(found.bytes is not None for found in kinds.values())

    def weight(found: WireTraffic) -> int:
        return (found.bytes or 0) if known else found.count

    ordered = sorted(kinds.items(), key=lambda item: -weight(item[1]))
    if len(ordered) > KINDS_MAX:
        rest = [found for _, found in ordered[KINDS_MAX - 1 :]]
        added = WireTraffic(sum(found.count for found in rest), sum(found.bytes or 0 for found in rest))
        ordered = [*ordered[: KINDS_MAX - 1], (f"{len(rest)} other kinds", added)]
    total = sum(weight(found) for _, found in ordered) or 1
    names = {
        "send": "messages themselves (send)",
        "repair": "messages sent again (repair)",
        "null": "messages without a payload (null)",
    }
    rows = [
        (
            names.get(kind, kind),
            f"{found.count:,}",
            size(found.bytes),
            f"{weight(found) / total:.1%}",
            bar(weight(found) / total),
        )
        for kind, found in ordered
    ]
    overhead = measured.overhead
    said = (
        f"For each byte of the messages themselves, {ratio(overhead)} bytes of control messages and repairs were sent."
        if overhead is not None
        else "How many bytes control messages took, the trace does not say."
    )
    what = f"Share of the {'bytes' if known else 'number'}"
    whole = table(("Kind", "How many", "Bytes", what, ""), rows, numbers=(1, 2, 3))
    return section("traffic", "What went over the wire", paragraph(said), whole)


def _repairs(facts: Facts, measured: MeasureResult) -> Markup | None:
    title = "What was lost and repaired"
    again, double = measured.retransmissions, measured.duplicates
    if again is None:
        return section("repairs", title, _unknown(measured, "retransmissions"))
    if not again:
        return section("repairs", title, paragraph("Nothing had to be sent again."))
    said = f"{count(again, 'message')} had to be sent again."
    if double:
        said += f" {count(double, 'copy', 'copies')} came to members that had the message already."
    if not facts.repair_matrix:
        return section("repairs", title, paragraph(said))
    cells: dict[tuple[str, str], int] = {}
    for row in facts.repair_matrix:
        cells[row.repairer, row.target] = row.count
    by_repairer, by_target = (_sums(cells, side) for side in (0, 1))
    repairers, targets = list(by_repairer), list(by_target)
    if targets == ["everybody"]:
        said += " Repairs went to everybody, so the trace does not say who had lost what."
    for sums, what in ((by_target, "needed it"), (by_repairer, "repaired")):
        most = max(filter(_is_number, sums), key=lambda who: sums[who], default=None)
        said += f" {begin(facts, _name(facts, most))} {what} most, {sums[most]:,} times." if most is not None else ""
    said = after_lives(said)
    top = max((number for pair, number in cells.items() if "others" not in pair), default=1)
    rows = [
        (
            begin(facts, _name(facts, one)),
            *(_cell(cells, one, target, top) for target in targets),
            f"{by_repairer[one]:,}",
        )
        for one in repairers
    ]
    if len(repairers) > 1:
        rows.append(("together", *(f"{by_target[target]:,}" for target in targets), f"{sum(by_target.values()):,}"))
    where = f", in run {facts.run.run}" if facts.runs > 1 and facts.run else ""
    whole = table(
        ("Repaired by", *(_name(facts, target).removeprefix("member ") for target in targets), "together"),
        rows,
        numbers=range(1, len(targets) + 2),
        caption=f"rows: who sent again; columns: the member that had lost it{where}",
    )
    return section("repairs", title, paragraph(said), element("div", whole, {"class": "matrix"}))


def _sums(cells: Mapping[tuple[str, str], int], side: int) -> dict[str, int]:
    """Return how many repairs each member of one side has: in a large group, of which some stand apart, most first."""
    sums = Counter[str]()
    for pair, number in cells.items():
        sums[pair[side]] += number
    is_large = any("others" in pair for pair in cells)

    def place(who: str) -> tuple[bool, int]:
        return (False, -sums[who] if is_large else int(who)) if _is_number(who) else (True, 0)

    return {who: sums[who] for who in sorted(sums, key=place)}


def _is_number(who: str) -> bool:
    return who.lstrip("-").isdigit()


def _name(facts: Facts, who: str) -> str:
    return member_name(facts, int(who)) if _is_number(who) else who


def _cell(cells: Mapping[tuple[str, str], int], repairer: str, target: str, top: int) -> Markup | str:
    """Return a number on a background that is stronger the larger the number; sums over others have none."""
    number = cells.get((repairer, target), 0)
    if not number:
        return element("span", "·", {"class": "muted"})
    if "others" in (repairer, target):
        return f"{number:,}"
    return element("span", f"{number:,}", {"class": "heat", "style": f"--heat:{number / top:.2f}"})
