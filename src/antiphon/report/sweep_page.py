"""The page about a sweep: did the promises hold everywhere, and what does each protocol cost beside the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import Final

from antiphon.report import charts
from antiphon.report.page import asset, escape, page
from antiphon.report.parts import GUARANTEES, Html, figure, html, notice, paragraph, section, table, tiles
from antiphon.report.sweep import METRICS, Row, Sweep, band, label, lines, value
from antiphon.wording import count, duration

SERIES_MAX: Final = 8
FACETS_MAX: Final = 6
LISTED_MAX: Final = 20


def sweep_page(sweep: Sweep) -> str:
    """The whole document."""
    parts = (_head(sweep), _verdicts(sweep), _trade_off(sweep), *_comparisons(sweep), _troubles(sweep), _origin())
    body = "\n".join(html(part) for part in parts if part)
    return page(f"{headline(sweep)} Report on {sweep.folder}", body, style=asset("report.css"))


def headline(sweep: Sweep) -> str:
    """What came out, in one sentence."""
    counted = sweep.count()
    if not counted["done"]:
        return "No cell ran to its end."
    if counted["violated"]:
        return f"{counted['violated']:,} of {count(counted['done'], 'cell')} broke a promise."
    if counted["unknown"] or counted["failed"]:
        return (
            f"Nothing is broken, but {counted['unknown'] + counted['failed']:,} of {counted['cells']:,} cells are open."
        )
    return f"Every promise held in all {count(counted['done'], 'cell')}."


def _head(sweep: Sweep) -> Html:
    counted = sweep.count()
    mood = {0: "good", 1: "bad", 3: "warn"}[sweep.exit_code()]
    varied = [*sweep.series, *([sweep.x] if sweep.x else []), *sweep.facets]
    grid = "; ".join(f"{label(key)}: {', '.join(dict.fromkeys(_sorted_values(sweep, key)))}" for key in varied)
    said = f"Each cell is one simulated group, checked and measured. What varies: {grid or 'only the seed'}."
    notices = ""
    if counted["failed"]:
        text = "They are listed at the end, and are part of no figure."
        notices += notice("warn", f"{count(counted['failed'], 'cell')} failed.", text)
    if counted["unfinished"]:
        text = "Their groups reached the limit of simulated time before everything was delivered and stable."
        notices += notice("warn", f"{count(counted['unfinished'], 'cell')} did not finish.", text)
    if counted["seeds"] < 2:
        notices += notice("warn", "Only one seed.", "The figures have no confidence bands: chance is not told apart.")
    sign = {"good": "✓", "bad": "✗", "warn": "?"}[mood]
    shown = [("cells", counted["cells"]), ("seeds", counted["seeds"]), ("broke a promise", counted["violated"])]
    shown += [("undecided", counted["unknown"]), ("failed", counted["failed"])]
    return Html(
        f'<p class="muted kicker">Report on the sweep <span class="mono">{escape(sweep.folder)}</span></p>'
        f'<h1 class="headline {mood}"><span aria-hidden="true">{sign}</span> {escape(headline(sweep))}</h1>'
        f"{paragraph(said, kind='story')}{notices}{tiles((name, f'{number:,}') for name, number in shown)}"
    )


def _sorted_values(sweep: Sweep, key: str) -> list[str]:
    values = list(dict.fromkeys(row[key] for row in sweep.rows))
    if all(isinstance(one, (int, float)) for one in values):
        values.sort()
    return [f"{one:g}" if isinstance(one, float) else str(one) for one in values]


def _names(sweep: Sweep) -> list[str]:
    return list(dict.fromkeys(sweep.name(row) for row in sweep.done))


def _verdicts(sweep: Sweep) -> Html | None:
    """Guarantees by series: in how many cells each held."""
    names = _names(sweep)
    if not names:
        return None
    rows = []
    for guarantee, words in GUARANTEES.items():
        cells: list[object] = [Html(f'{escape(words.name)} <span class="meaning">{escape(words.meaning)}</span>')]
        for name in names:
            of_series = [row for row in sweep.done if sweep.name(row) == name]
            promised = [row for row in of_series if guarantee in (row["promises"] or "").split()]
            cells.append(_verdict_cell([row[guarantee.replace("-", "_")] for row in promised or of_series], promised))
        rows.append(cells)
    said = "In how many of its cells each guarantee was kept. Grey: not promised by that protocol, only observed."
    whole = table(("Guarantee", *names), rows)
    return section("verdicts", "What was promised, what was kept", paragraph(said), whole)


def _verdict_cell(verdicts: Sequence[str], promised: Sequence[Row]) -> Html:
    counted = Counter(verdicts)
    total = len(verdicts)
    kind = {"violated": "bad", "unknown": "warn", "holds": "good"}
    for word, sign in (("violated", "✗"), ("unknown", "?"), ("holds", "✓")):
        if counted[word]:
            said = f"{sign} {word} in {counted[word]:,} of {total:,}" if counted[word] < total else f"{sign} {word}"
            return Html(f'<span class="verdict {kind[word] if promised else "muted"}">{said}</span>')
    return Html('<span class="muted">–</span>')


# --- costs ------------------------------------------------------------------------------------------------------------


def _trade_off(sweep: Sweep) -> Html | None:
    """Each series once, at the largest group and the last of what else varies: time, bytes, buffer."""
    rows, where = _hardest(sweep)
    found = []
    for number, name in enumerate(_names(sweep)[:SERIES_MAX]):
        of_series = [row for row in rows if sweep.name(row) == name]
        time, cost, held = (
            [measured for row in of_series if (measured := value(row, key)) is not None]
            for key in ("stable_p50_ns", "bytes_per_message", "buffer_peak")
        )
        if time and cost and held:
            found.append(charts.Choice(name, number, fmean(time), fmean(cost), fmean(held), best=True))
    if not found:
        return None
    promises = {sweep.name(row): set((row["promises"] or "").split()) for row in rows}
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


def _hardest(sweep: Sweep) -> tuple[list[Row], str]:
    """The cells at the largest value of all numbers that vary, and what that is."""
    keys = [key for key in (sweep.x, *sweep.facets) if key is not None]
    largest = {key: max(row[key] for row in sweep.done) for key in keys} if sweep.done else {}
    rows = [row for row in sweep.done if all(row[key] == top for key, top in largest.items())]
    said = ", ".join(
        f"{top:g} members" if key == "set.members" else f"{label(key)} {top:g}" for key, top in largest.items()
    )
    return rows, f"With {said}: " if said else ""


def _comparisons(sweep: Sweep) -> list[Html]:
    """A figure for each combination of the numbers that vary besides the axis."""
    if sweep.x is None or not sweep.done:
        return [_by_series(sweep)] if sweep.done else []
    names = _names(sweep)
    by_facet: dict[str, list[Row]] = {}
    for row in sorted(sweep.done, key=lambda row: [row[key] for key in sweep.facets]):
        by_facet.setdefault(sweep.facet(row), []).append(row)
    parts: list[object] = []
    if len(names) > SERIES_MAX:
        parts.append(paragraph(f"{SERIES_MAX} of {len(names)} are drawn; the tables have all.", kind="muted"))
    if len(by_facet) > FACETS_MAX:
        text = f"{FACETS_MAX} of {len(by_facet)} combinations are drawn, from both ends and between."
        parts.append(paragraph(text, kind="muted"))
        step = (len(by_facet) - 1) / (FACETS_MAX - 1)
        keys = list(by_facet)
        by_facet = {keys[round(place * step)]: by_facet[keys[round(place * step)]] for place in range(FACETS_MAX)}
    for facet, rows in by_facet.items():
        parts.append(_comparison(sweep, names, facet, rows))
    said = (
        f"Each point is the mean over {count(sweep.count()['seeds'], 'seed')}, each band its 95% confidence interval."
    )
    return [section("comparison", f"By {label(sweep.x)}", paragraph(said), *parts)]


def _comparison(sweep: Sweep, names: Sequence[str], facet: str, rows: Sequence[Row]) -> Html:
    assert sweep.x is not None
    found = {metric: lines(sweep, rows, metric) for metric in METRICS}
    drawn = [charts.Panel(metric.title, of_metric) for metric, of_metric in found.items() if of_metric]
    title = f"<h3>{escape(facet)}</h3>" if facet else ""
    if not drawn:
        return Html(f"{title}{paragraph('Nothing of this could be measured.', kind='muted')}")
    xs = sorted({row[sweep.x] for row in rows})
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
    return Html(title + figure(drawing, "", Html("".join(behind))))


def _interval(point: charts.Band | None) -> str:
    if point is None:
        return "–"
    half = (point.high - point.low) / 2
    return f"{point.mean:,.4g}" + (f" ± {half:,.2g}" if half else "")


def _by_series(sweep: Sweep) -> Html:
    """Where nothing but names varies: a table."""
    rows = []
    for name in _names(sweep):
        cells: list[object] = [name]
        for metric in METRICS:
            found = [value(row, metric.key) for row in sweep.done if sweep.name(row) == name]
            seeds = [measured / metric.unit for measured in found if measured is not None]
            cells.append(_interval(band(0, seeds)) if seeds else "–")
        rows.append(cells)
    whole = table(("", *(metric.title for metric in METRICS)), rows, numbers=range(1, len(METRICS) + 1))
    return section("comparison", "Side by side", paragraph("Means over the seeds, ± their 95% confidence."), whole)


# --- troubles ---------------------------------------------------------------------------------------------------------


def _troubles(sweep: Sweep) -> Html | None:
    rows = []
    for row in sweep.rows:
        if row["status"] != "done":
            what = f"failed: {row['error']}"
        elif row["broken"]:
            what = f"broken: {', '.join(row['broken'].split())}"
        elif row["undecided"]:
            what = f"undecided: {', '.join(row['undecided'].split())}"
        else:
            continue
        rows.append((what, sweep.setting(row), row["seed"]))
    if not rows:
        return None
    order = {"broken": 0, "failed": 1, "undecided": 2}
    rows.sort(key=lambda row: order[row[0].split(":")[0]])
    more = f"The first {LISTED_MAX} of {len(rows):,}." if len(rows) > LISTED_MAX else ""
    whole = table(("What", "Where", "Seed"), rows[:LISTED_MAX], numbers=(2,))
    return section("troubles", "Cells to look at", paragraph(more) if more else "", whole)


def _origin() -> Html:
    from antiphon import __version__

    return paragraph(f"Reported by antiphon {__version__}. This file needs nothing but itself.", kind="muted origin")
