"""The page about a sweep: did the promises hold everywhere, and what does each protocol cost beside the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import Final

from markupsafe import Markup

from antiphon.report import charts
from antiphon.report.guarantee_words import GUARANTEES, verdict
from antiphon.report.sweep_table import (
    BUFFER_PEAK,
    BYTES_PER_MESSAGE,
    METRICS,
    TIME_UNTIL_STABLE,
    DoneCell,
    SweepTable,
    band,
    label,
    lines,
    measured,
)
from antiphon.trace import schema
from antiphon.trace.verdict import HOLDS, INCONCLUSIVE, VIOLATED, VerdictName
from antiphon.web import elements
from antiphon.web.elements import (
    element,
    figure,
    joined,
    notice,
    paragraph,
    section,
    table,
    tiles,
)
from antiphon.web.page import asset, page
from antiphon.wording import count, duration

SERIES_MAX: Final = 8
FACETS_MAX: Final = 6
LISTED_MAX: Final = 20


def sweep_page(sweep: SweepTable) -> str:
    """Return the whole document."""
    parts = (
        _head(sweep),
        _verdicts(sweep),
        _trade_off(sweep),
        *_comparisons(sweep),
        _troubles(sweep),
        elements.origin(),
    )
    return page(f"{headline(sweep)} Report on {sweep.folder}", joined(parts, "\n"), style=asset("report.css"))


def headline(sweep: SweepTable) -> str:
    """Say what came out, in one sentence."""
    counted = sweep.count()
    if not counted.done:
        return "No cell ran to its end."
    if counted.violated:
        return f"{counted.violated:,} of {count(counted.done, 'cell')} broke a promise."
    if counted.unknown or counted.failed:
        return f"Nothing is broken, but {counted.unknown + counted.failed:,} of {counted.cells:,} cells are open."
    return f"Every promise held in all {count(counted.done, 'cell')}."


def _head(sweep: SweepTable) -> Markup:
    counted = sweep.count()
    mood = {HOLDS: "good", VIOLATED: "bad", INCONCLUSIVE: "warn"}[counted.exit_code()]
    varied = [*sweep.series, *([sweep.x] if sweep.x else []), *sweep.facets]
    grid = "; ".join(f"{label(key)}: {', '.join(_sorted_values(sweep, key))}" for key in varied)
    said = f"Each cell is one simulated group, checked and measured. What varies: {grid or 'only the seed'}."
    notices = []
    if counted.failed:
        text = "They are listed at the end, and are part of no figure."
        notices.append(notice("warn", f"{count(counted.failed, 'cell')} failed.", text))
    if counted.unfinished:
        text = "Their groups reached the limit of simulated time before everything was delivered and stable."
        notices.append(notice("warn", f"{count(counted.unfinished, 'cell')} did not finish.", text))
    if counted.seeds < 2:
        text = "The figures have no confidence bands: chance is not told apart."
        notices.append(notice("warn", "Only one seed.", text))
    shown = [("cells", counted.cells), ("seeds", counted.seeds), ("broke a promise", counted.violated)]
    shown += [("undecided", counted.unknown), ("failed", counted.failed)]
    top = elements.headline("Report on the sweep", sweep.folder, mood, headline(sweep))
    numbers = tiles((name, f"{number:,}") for name, number in shown)
    return joined((top, paragraph(said, kind="story"), *notices, numbers))


def _sorted_values(sweep: SweepTable, key: str) -> list[str]:
    values = list(dict.fromkeys(cell.settings[key] for cell in sweep.cells))
    if all(isinstance(one, (int, float)) for one in values):
        values.sort()
    return list(dict.fromkeys(f"{one:g}" if isinstance(one, float) else str(one) for one in values))


def _names(sweep: SweepTable) -> list[str]:
    return list(dict.fromkeys(sweep.name(one.cell) for one in sweep.done))


def _of_series(sweep: SweepTable, cells: Sequence[DoneCell], name: str) -> list[DoneCell]:
    return [one for one in cells if sweep.name(one.cell) == name]


def _verdicts(sweep: SweepTable) -> Markup | None:
    """Return guarantees by series: in how many cells each held."""
    names = _names(sweep)
    if not names:
        return None
    rows = []
    for guarantee in schema.GUARANTEES:
        words = GUARANTEES[guarantee]
        head = Markup('{} <span class="meaning">{}</span>').format(words.name, words.meaning)
        cells: list[object] = [head]
        for name in names:
            every = [one.values for one in _of_series(sweep, sweep.done, name)]
            promised = [one for one in every if guarantee in one.promises]
            verdicts = [one.guarantees[guarantee].verdict for one in promised or every]
            cells.append(_verdict_cell(verdicts, promised=bool(promised)))
        rows.append(cells)
    said = "In how many of its cells each guarantee was kept. Grey: not promised by that protocol, only observed."
    whole = table(("Guarantee", *names), rows)
    return section("verdicts", "What was promised, what was kept", paragraph(said), whole)


def _verdict_cell(verdicts: Sequence[VerdictName], *, promised: bool) -> Markup:
    counted, total = Counter(verdicts), len(verdicts)
    worst: Sequence[VerdictName] = ("violated", "unknown", "holds")
    for word in worst:
        if counted[word]:
            where = f" in {counted[word]:,} of {total:,}" if counted[word] < total else ""
            return verdict(word, decides=promised, where=where)
    return element("span", "–", {"class": "muted"})


# --- costs ------------------------------------------------------------------------------------------------------------


def _trade_off(sweep: SweepTable) -> Markup | None:
    """Each series once, at the largest group and the last of what else varies: time, bytes, buffer."""
    cells, where = _hardest(sweep)
    found = []
    for number, name in enumerate(_names(sweep)[:SERIES_MAX]):
        of_series = _of_series(sweep, cells, name)
        time, cost, held = (
            measured(of_series, metric) for metric in (TIME_UNTIL_STABLE, BYTES_PER_MESSAGE, BUFFER_PEAK)
        )
        if time and cost and held:
            time_ns = fmean(time) * TIME_UNTIL_STABLE.unit
            found.append(charts.Choice(name, number, time_ns, fmean(cost), fmean(held), best=True))
    if not found:
        return None
    promises = {sweep.name(one.cell): set(one.values.promises) for one in cells}
    choices = [
        one._replace(
            best=not any(_better(other, one) and promises[other.name] >= promises[one.name] for other in found)
        )
        for one in found
    ]
    soonest = min(choices, key=lambda one: one.time_ns)
    cheapest, smallest = min(choices, key=lambda one: one.size_bytes), min(choices, key=lambda one: one.buffer)
    said = f"{where}Soonest stable: {soonest.name} ({duration(soonest.time_ns)}). Fewest bytes: {cheapest.name} "
    said += (
        f"({cheapest.size_bytes:,.0f} a message). Smallest buffer: {smallest.name} ({smallest.buffer:,.0f} messages)."
    )
    behind = table(
        ("", "Median until stable", "Bytes per message", "Most held", "Beaten in all three"),
        [
            (
                one.name,
                duration(one.time_ns),
                f"{one.size_bytes:,.1f}",
                f"{one.buffer:,.1f}",
                "no" if one.best else "yes",
            )
            for one in choices
        ],
        numbers=(1, 2, 3),
    )
    caption = (
        "Bytes besides the messages themselves (acknowledgments, repairs) against the time until stable; the larger, "
        f"the more messages a member held at most, here {smallest.buffer:,.0f} to "
        f"{max(one.buffer for one in choices):,.0f}. Hollow: another that promises as much is better in all three."
    )
    drawing = charts.trade_off(choices, f"Bytes, time until stable and buffer of each protocol. {said}")
    return section("trade-off", "What you get for what", paragraph(said), figure(drawing, caption, behind))


def _better(one: charts.Choice, other: charts.Choice) -> bool:
    pairs = list(zip(one[2:5], other[2:5], strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def _hardest(sweep: SweepTable) -> tuple[list[DoneCell], str]:
    """Return the cells at the largest value of all numbers that vary, and say what that is."""
    keys = [key for key in (sweep.x, *sweep.facets) if key is not None]
    largest = {key: max(one.cell.settings[key] for one in sweep.done) for key in keys} if sweep.done else {}
    cells = [one for one in sweep.done if all(one.cell.settings[key] == top for key, top in largest.items())]
    words = [f"{top:g} members" if key == "members" else f"{label(key)} {top:g}" for key, top in largest.items()]
    said = ", ".join(words)
    return cells, f"With {said}: " if said else ""


def _comparisons(sweep: SweepTable) -> list[Markup]:
    """Return a figure for each combination of the numbers that vary besides the axis."""
    if sweep.x is None or not sweep.done:
        return [_by_series(sweep)] if sweep.done else []
    names = _names(sweep)
    by_facet: dict[str, list[DoneCell]] = {}
    for one in sorted(sweep.done, key=lambda one: [one.cell.settings[key] for key in sweep.facets]):
        by_facet.setdefault(sweep.facet(one.cell), []).append(one)
    parts: list[Markup] = []
    if len(names) > SERIES_MAX:
        parts.append(paragraph(f"{SERIES_MAX} of {len(names)} are drawn; the tables have all.", kind="muted"))
    if len(by_facet) > FACETS_MAX:
        text = f"{FACETS_MAX} of {len(by_facet)} combinations are drawn, from both ends and between."
        parts.append(paragraph(text, kind="muted"))
        step = (len(by_facet) - 1) / (FACETS_MAX - 1)
        keys = list(by_facet)
        by_facet = {keys[round(index * step)]: by_facet[keys[round(index * step)]] for index in range(FACETS_MAX)}
    for facet, cells in by_facet.items():
        parts.append(_comparison(sweep, names, facet, cells))
    seeds = count(sweep.count().seeds, "seed")
    said = f"Each point is the mean over {seeds}, each band its 95% confidence interval."
    return [section("comparison", f"By {label(sweep.x)}", paragraph(said), *parts)]


def _comparison(sweep: SweepTable, names: Sequence[str], facet: str, cells: Sequence[DoneCell]) -> Markup:
    assert sweep.x is not None
    found = {metric: lines(sweep, cells, metric) for metric in METRICS}
    drawn = [charts.Panel(metric.title, of_metric) for metric, of_metric in found.items() if of_metric]
    title = element("h3", facet) if facet else Markup()
    if not drawn:
        return title + paragraph("Nothing of this could be measured.", kind="muted")
    xs = sorted({one.cell.settings[sweep.x] for one in cells})
    behind = [
        table(
            (metric.title, *(f"{label(sweep.x)} {x:g}" for x in xs)),
            [
                (name, *(_interval(next((p for p in of_metric[name] if p.x == x), None)) for x in xs))
                for name in names
                if name in of_metric
            ],
            numbers=range(1, len(xs) + 1),
        )
        for metric, of_metric in found.items()
        if of_metric
    ]
    words = f"{', '.join(panel.title for panel in drawn)} by {label(sweep.x)}, for {', '.join(names)}. {facet}"
    drawing = charts.panels(drawn, names[:SERIES_MAX], label(sweep.x), words)
    return title + figure(drawing, "", joined(behind))


def _interval(point: charts.Band | None) -> str:
    if point is None:
        return "–"
    half = (point.high - point.low) / 2
    return f"{point.mean:,.4g}" + (f" ± {half:,.2g}" if half else "")


def _by_series(sweep: SweepTable) -> Markup:
    """Return a table, where nothing but names varies."""
    rows = []
    for name in _names(sweep):
        found = [measured(_of_series(sweep, sweep.done, name), metric) for metric in METRICS]
        rows.append([name, *(_interval(band(0, seeds)) if seeds else "–" for seeds in found)])
    whole = table(("", *(metric.title for metric in METRICS)), rows, numbers=range(1, len(METRICS) + 1))
    return section("comparison", "Side by side", paragraph("Means over the seeds, ± their 95% confidence."), whole)


# --- troubles ---------------------------------------------------------------------------------------------------------


def _troubles(sweep: SweepTable) -> Markup | None:
    rows = []
    for cell in sweep.cells:
        if cell.values is None:
            trouble, what = 1, f"failed: {cell.error}"
        elif cell.values.broken:
            trouble, what = 0, f"broken: {', '.join(cell.values.broken)}"
        elif cell.values.undecided:
            trouble, what = 2, f"undecided: {', '.join(cell.values.undecided)}"
        else:
            continue
        rows.append((trouble, (what, sweep.setting(cell), cell.seed)))
    if not rows:
        return None
    rows.sort(key=lambda row: row[0])
    more = f"The first {LISTED_MAX} of {len(rows):,}." if len(rows) > LISTED_MAX else ""
    whole = table(("What", "Where", "Seed"), [row for _, row in rows[:LISTED_MAX]], numbers=(2,))
    return section("troubles", "Cells to look at", paragraph(more) if more else None, whole)
