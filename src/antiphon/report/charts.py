"""The charts of a report: durations, occupancy, a heat map, lines with confidence bands, and a trade-off."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from antiphon.report.figures import COLOURS, drawing, inline_svg, log_time_axis, look
from antiphon.wording import amount, duration, time_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# how a text is set off from lines that go through it
OVER_LINES: Final = {"facecolor": COLOURS["paper"], "edgecolor": "none", "alpha": 0.85, "pad": 1.5}


class Durations(NamedTuple):
    """A row of the chart of durations: its label, its histogram as (low, high, count), and what is marked on it."""

    label: str
    buckets: Sequence[tuple[int, int, int]]
    p50_ns: int
    p99_ns: int


INSTANT_NS: Final = 1_000  # what took less is drawn as taking no time: a logarithmic axis has no 0


def durations(rows: Sequence[Durations], label: str) -> str:
    """Histograms of durations over one logarithmic axis of time, with their medians and 99th percentiles."""
    edges = _log_edges([bucket for row in rows for bucket in row.buckets])
    step = edges[1] / edges[0]
    left = edges[0] / step**4  # where what took no time is drawn
    with drawing(len(rows), height_in=0.45 + 1.35 * len(rows), sharex=True) as (figure, every):
        for number, (row, axes) in enumerate(zip(rows, every, strict=True)):
            seen = look(number)
            counts, instant = _binned(row.buckets, edges)
            total = sum(counts) + instant
            shares = [100 * count / total for count in counts]
            axes.stairs(shares, edges, fill=True, color=seen.colour, alpha=0.3)
            axes.stairs(shares, edges, color=seen.colour, linewidth=1.3)
            top = max([*shares, 1e-9])
            if instant:
                share = 100 * instant / total
                early = any(low < 0 for low, _, _ in row.buckets)  # received before it was sent, by clocks that differ
                axes.bar(
                    left, min(share, top), left * (step**2 - 1), align="edge", fill=False, hatch="////",
                    edgecolor=seen.colour, linewidth=1,
                )  # fmt: skip
                axes.annotate(
                    f"{share:.0f}% {'at once or earlier, by the clocks' if early else 'at once'}",
                    (left, min(share, top)),
                    (0, 3),
                    textcoords="offset points",
                    fontsize=9,
                )
            for value, name, height in ((row.p50_ns, "half within", 1.55), (row.p99_ns, "99% within", 1.3)):
                at = max(value, left)
                on_the_left = math.log(at / left) > 0.8 * math.log(edges[-1] / left)  # there is no room on its right
                axes.plot([at, at], [0, top * (height - 0.02)], color=COLOURS["ink"], linewidth=1)
                axes.annotate(
                    f"{name} {duration(value)}", (at, top * height), (-3 if on_the_left else 3, -8),
                    textcoords="offset points", fontsize=9.5, ha="right" if on_the_left else "left",
                )  # fmt: skip
            axes.set_title(row.label)
            axes.set_ylim(0, top * 1.65)
            axes.set_yticks([])
            axes.grid(axis="y", visible=False)
            axes.spines["left"].set_visible(False)
            log_time_axis(axes, left / step, edges[-1] * step)
        return inline_svg(figure, label)


def _log_edges(buckets: Sequence[tuple[int, int, int]], bins: int = 72) -> list[float]:
    positive = [bucket for bucket in buckets if bucket[0] >= INSTANT_NS]
    low = min((bucket[0] for bucket in positive), default=INSTANT_NS)
    high = max((bucket[1] for bucket in positive), default=10 * INSTANT_NS)
    ratio = max(high / low, 1.5)
    return [low * ratio ** (number / bins) for number in range(bins + 1)]


def _binned(buckets: Sequence[tuple[int, int, int]], edges: Sequence[float]) -> tuple[list[float], int]:
    """Counts by bin (a bucket over several bins is shared out evenly on the axis), and of what took no time."""
    counts, instant = [0.0] * (len(edges) - 1), 0
    scale = (len(edges) - 1) / math.log(edges[-1] / edges[0])
    for low, high, count in buckets:
        if low < INSTANT_NS:
            instant += count
            continue
        start = math.log(low / edges[0]) * scale
        stop = max(math.log(high / edges[0]) * scale, start + 1e-9)
        for number in range(int(start), min(len(counts), math.ceil(stop))):
            counts[number] += count * (min(stop, number + 1) - max(start, number)) / (stop - start)
    return counts, instant


class Moment(NamedTuple):
    """Something on the timeline that charts carry: a view, something bad, or (shade) a stretch of trouble."""

    at_ns: int  # since the start
    until_ns: int | None
    label: str
    kind: Literal["view", "bad", "shade"]


def _carry(axes: Axes, moments: Sequence[Moment], size: int, end_ns: float) -> None:
    """Draw the timeline behind what a chart shows: views and troubles as upright lines, stretches of trouble grey."""
    for one in moments:
        if one.kind == "shade":
            until = end_ns if one.until_ns is None else min(one.until_ns, end_ns)
            axes.axvspan(max(one.at_ns, 0) / size, until / size, facecolor=COLOURS["line"], alpha=0.55, linewidth=0)
    room = -math.inf
    for one in sorted(moments):
        if one.kind == "shade" or not 0 <= one.at_ns <= end_ns:
            continue
        bad = one.kind == "bad"
        axes.axvline(
            one.at_ns / size, color=COLOURS["bad" if bad else "ink"], linewidth=1,
            linestyle=(0, (1, 1.2)) if bad else (0, (3, 2)),
        )  # fmt: skip
        if one.at_ns >= room:
            text = one.label.removeprefix("view ") if one.kind == "view" and room >= 0 else one.label
            axes.annotate(
                text, (one.at_ns / size, 1), (2, 3), xycoords=("data", "axes fraction"), textcoords="offset points",
                fontsize=9, color=COLOURS["bad" if bad else "ink"], annotation_clip=False,
            )  # fmt: skip
            room = one.at_ns + end_ns * (len(text) + 2) / 110


class Level(NamedTuple):
    """Something that is filled over time: from when, until when, on average over the members, and at the fullest."""

    start_ns: int
    end_ns: int
    mean: float
    peak: float


BOUND_SHOWN: Final = 0.4  # a level that stays below this share of its bound is drawn large, with the bound above it


def occupancy(
    levels: Sequence[Level], bound: int | None, label: str, moments: Sequence[Moment] = (), first: int | None = None
) -> str:
    """How full buffers were over time, on average and the fullest, and the bound that they must not pass.

    Times are shown since `first`, by default the beginning of the first level.
    """
    first = levels[0].start_ns if first is None else first
    name, size = time_unit(levels[-1].end_ns - first)
    edges = [(level.start_ns - first) / size for level in levels] + [(levels[-1].end_ns - first) / size]
    peak = max(max(level.peak for level in levels), 1)
    with drawing(height_in=3.1) as (figure, [axes]):
        mean, fullest = look(0), look(1)
        _carry(axes, moments, size, levels[-1].end_ns - first)
        axes.stairs([level.mean for level in levels], edges, fill=True, color=mean.colour, alpha=0.3)
        axes.stairs(
            [level.mean for level in levels], edges, color=mean.colour, linewidth=1.4, label="mean of the members"
        )
        axes.stairs(
            [level.peak for level in levels], edges, color=fullest.colour, linewidth=1.2, linestyle=fullest.dash,
            label="the fullest member",
        )  # fmt: skip
        axes.set_xlim(edges[0], edges[-1])
        axes.set_ylim(0, peak * 1.25)
        if bound is not None:
            if peak >= BOUND_SHOWN * bound:
                axes.set_ylim(0, max(peak, bound) * 1.15)
                axes.axhline(bound, color=COLOURS["ink"], linewidth=1.4, linestyle=(0, (1, 1.5)))
                axes.annotate(
                    f"bound {bound:,}", (1, bound), (-4, 4), xycoords=("axes fraction", "data"),
                    textcoords="offset points", ha="right",
                )  # fmt: skip
            else:
                axes.annotate(
                    f"↑ the bound, {bound:,}, lies far above", (1, 1), (-4, -4), xycoords="axes fraction",
                    textcoords="offset points", ha="right", va="top", bbox=OVER_LINES,
                )  # fmt: skip
        axes.set_ylabel("messages held")
        axes.set_xlabel(f"time since the start, {name}")
        axes.legend(
            loc="upper left", facecolor=COLOURS["paper"], edgecolor="none", framealpha=0.85, labelcolor=COLOURS["ink"],
            ncols=2,
        )  # fmt: skip
        return inline_svg(figure, label)


class IncarnationBar(NamedTuple):
    """One incarnation of a member: its lane, from when until when, and how it ended."""

    lane: int
    start_ns: int
    end_ns: int
    ending: str


class Shade(NamedTuple):
    """A time in which a lane was cut off or paused."""

    lane: int
    start_ns: int
    end_ns: int


def timeline(
    names: Sequence[str],
    lives: Sequence[IncarnationBar],
    views: Sequence[Moment],
    shades: Sequence[Shade],
    end_ns: int,
    label: str,
) -> str:
    """Members by time: when each was there, the views as upright lines, crashes and leavings as marks."""
    unit, size = time_unit(end_ns)
    with drawing(height_in=1.1 + 0.26 * len(names)) as (figure, [axes]):
        for shade in shades:
            start, stop = shade.start_ns / size, min(shade.end_ns, end_ns) / size
            axes.broken_barh([(start, stop - start)], (shade.lane - 0.46, 0.92), facecolor=COLOURS["line"], linewidth=0)
        for life in lives:
            start, stop = life.start_ns / size, life.end_ns / size
            axes.broken_barh(
                [(start, stop - start)], (life.lane - 0.22, 0.44), facecolor=COLOURS["series-1"], alpha=0.6, linewidth=0
            )
            marker = {"crash": "X", "stopped": "X", "leave": "o", "excluded": "o"}.get(life.ending)
            if marker:
                inside = COLOURS["bad"] if marker == "X" else COLOURS["paper"]
                axes.plot(
                    [stop], [life.lane], marker=marker, markersize=8, color=inside, markeredgecolor=COLOURS["bad"]
                )
        _carry(axes, views, size, end_ns)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_yticks(range(len(names)), names)
        axes.tick_params(axis="y", length=0)
        axes.set_xlim(0, end_ns / size * 1.01)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(f"time since the start, {unit}")
        return inline_svg(figure, label)


LEVELS: Final = (0.12, 0.3, 0.5, 0.72, 1.0)  # opacities of a heat map
USUAL_SHARE: Final = 0.95  # of its values; what is above has the strongest colour too


def heat_map(
    names: Sequence[str],
    edges_ns: Sequence[int],
    values: Sequence[Sequence[float]],
    label: str,
    moments: Sequence[Moment] = (),
    first: int | None = None,
    *,
    rest: int | None = None,
) -> str:
    """Members by time, darker where more messages waited for them; one hue, so that only its strength speaks.

    The row `rest` sums up many members, and has a scale of its own.
    """
    first = edges_ns[0] if first is None else first
    unit, size = time_unit(edges_ns[-1] - first)
    edges = [(edge - first) / size for edge in edges_ns]
    seen = sorted(value for index, row in enumerate(values) for value in row if value > 0 and index != rest)
    most = seen[-1] if seen else 0.0
    usual = seen[int(USUAL_SHARE * (len(seen) - 1))] if seen else 0.0  # a few extremes must not make all the rest pale
    step = _round_step(usual / len(LEVELS))
    with drawing(height_in=1.35 + 0.24 * len(names)) as (figure, [axes]):
        _carry(axes, moments, size, edges_ns[-1] - first)
        for index, row in enumerate(values):
            own = _round_step(max([*row, 0.0]) / len(LEVELS)) if index == rest else step
            for level, opacity in enumerate(LEVELS):
                bars = _stretches(row, edges, level, own)
                axes.broken_barh(bars, (index - 0.44, 0.88), facecolor=COLOURS["series-2"], alpha=opacity, linewidth=0)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_yticks(range(len(names)), names)
        axes.tick_params(axis="y", length=0)
        axes.set_xlim(edges[0], edges[-1])
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(f"time since the start, {unit}")
        from matplotlib.patches import Patch

        keys = [
            Patch(facecolor=COLOURS["series-2"], alpha=opacity, label=f"up to {amount(min(most, step * (level + 1)))}")
            for level, opacity in enumerate(LEVELS[:-1])
        ]
        keys += [
            Patch(
                facecolor=COLOURS["series-2"], alpha=LEVELS[-1], label=f"up to {amount(max(most, step * len(LEVELS)))}"
            )
        ]
        axes.legend(
            handles=keys, loc="lower left", bbox_to_anchor=(0, 1 + 0.9 / len(names) * bool(moments)),
            ncols=5, frameon=False, fontsize=9,
            labelcolor=COLOURS["ink"], title="messages waiting for it alone", alignment="left", title_fontsize=9.5,
            handlelength=1.4, columnspacing=1.2, borderaxespad=0.2,
        )  # fmt: skip
        return inline_svg(figure, label)


def _round_step(least: float) -> float:
    """The smallest round number that is at least this."""
    if least <= 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(least))
    return next(size * lead for lead in (1, 2, 2.5, 5, 10) if size * lead >= least)


def _stretches(row: Sequence[float], edges: Sequence[float], level: int, step: float) -> list[tuple[float, float]]:
    """The stretches (start, length) of a row whose values are of one level; 0 is of none."""
    found: list[tuple[float, float]] = []
    for number, value in enumerate(row):
        if value > 0 and min(len(LEVELS) - 1, math.ceil(value / step) - 1) == level:
            start, stop = edges[number], edges[number + 1]
            if found and abs(sum(found[-1]) - start) < 1e-12:
                start = found.pop()[0]
            found.append((start, stop - start))
    return found


class Band(NamedTuple):
    """A point of a line with its confidence interval; low = high where there is none."""

    x: float
    mean: float
    low: float
    high: float


class Panel(NamedTuple):
    """One chart of several: its title, and a line for each series that has points in it."""

    title: str
    lines: dict[str, list[Band]]
    log: bool = False


def panels(charts: Sequence[Panel], series: Sequence[str], x_label: str, label: str, *, columns: int = 2) -> str:
    """Small charts side by side over one axis, each a line for every series, with its confidence band."""
    rows = -(-len(charts) // columns)
    with drawing(rows, columns, height_in=0.5 + 2.7 * rows) as (figure, every):
        for axes in every[len(charts) :]:
            axes.set_visible(False)
        ticks = sorted({point.x for chart in charts for line in chart.lines.values() for point in line})
        for chart, axes in zip(charts, every, strict=False):
            for number, name in enumerate(series):
                points = chart.lines.get(name, [])
                seen = look(number)
                at = [point.x for point in points]
                axes.fill_between(
                    at, [p.low for p in points], [p.high for p in points], color=seen.colour, alpha=0.2, linewidth=0
                )
                axes.plot(
                    at, [p.mean for p in points], color=seen.colour, linestyle=seen.dash, marker=seen.marker,
                    markersize=5, linewidth=1.6, label=name,
                )  # fmt: skip
            axes.set_title(chart.title)
            axes.set_xlabel(x_label)
            if chart.log:
                axes.set_yscale("log")
            else:
                axes.set_ylim(bottom=0)
            _few_ticks(axes, ticks)
        handles, labels = every[0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside upper left", ncols=min(4, len(series)), frameon=False,
            labelcolor=COLOURS["ink"], handlelength=3.5,
        )  # fmt: skip
        return inline_svg(figure, label)


def _few_ticks(axes: Axes, ticks: Sequence[float]) -> None:
    """Ticks where the points are, if there are few; a logarithmic axis where they stretch far."""
    if min(ticks) > 0 and max(ticks) / min(ticks) >= 16:
        axes.set_xscale("log")
        axes.minorticks_off()
    if len(ticks) <= 8:
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])


class Choice(NamedTuple):
    """A point of the trade-off: how long, how many bytes, how much buffer; `best`: no other is better in all three."""

    name: str
    series: int
    time_ns: float
    size_bytes: float
    buffer: float
    best: bool


def trade_off(choices: Sequence[Choice], label: str) -> str:
    """Bytes against time to stable, with the buffer as area; hollow where another choice is better in everything."""
    from matplotlib.ticker import FuncFormatter

    with drawing(height_in=4.6) as (figure, [axes]):
        largest = max(choice.buffer for choice in choices) or 1
        areas = [60 + 900 * choice.buffer / largest for choice in choices]
        for area, choice in sorted(zip(areas, choices, strict=True), reverse=True):
            seen = look(choice.series)
            axes.scatter(
                [choice.time_ns], [choice.size_bytes], s=area, marker=seen.marker, alpha=0.75, linewidth=1.6,
                facecolor=seen.colour if choice.best else "none", edgecolor=seen.colour,
            )  # fmt: skip
        times, sizes = [choice.time_ns for choice in choices], [choice.size_bytes for choice in choices]
        log_time_axis(axes, min(times) / 1.5, max(times) * 2)
        if min(sizes) > 0 and max(sizes) / min(sizes) > 8:
            axes.set_yscale("log")
            axes.set_ylim(min(sizes) / 1.6, max(sizes) * 1.8)
        else:
            axes.set_ylim(0, max(sizes) * 1.2 or 1)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.set_xlabel("time until stable, median: further left is sooner")
        axes.set_ylabel("bytes besides the messages,\nper message: lower is cheaper")
        _name_points(figure, axes, choices, [math.sqrt(area) / 2 for area in areas])
        return inline_svg(figure, label)


_FONT_PT: Final = 9.5


def _name_points(figure: Figure, axes: Axes, choices: Sequence[Choice], radii: Sequence[float]) -> None:
    """Write each point's name beside it, where it covers no other name and no point if it can."""
    figure.draw_without_rendering()  # only then it is known where the points are
    points = axes.transData.transform([(choice.time_ns, choice.size_bytes) for choice in choices]) * 72 / figure.dpi
    taken = [(x - r, y - r, x + r, y + r) for (x, y), r in zip(points, radii, strict=True)]
    for (x, y), radius, choice in zip(points, radii, choices, strict=True):
        width, near = 0.58 * _FONT_PT * len(choice.name), 0.75 * radius + 2
        offsets = [
            (dx, dy)
            for dy in (near, -near - _FONT_PT, near + _FONT_PT, -near - 2 * _FONT_PT, near + 2 * _FONT_PT)
            for dx in (near, -near - width, -width / 2)
        ]
        boxes = [(x + dx, y + dy, x + dx + width, y + dy + _FONT_PT) for dx, dy in offsets]
        best = min(range(len(boxes)), key=lambda at: (sum(_overlap(boxes[at], other) for other in taken), at))
        taken.append(boxes[best])
        axes.annotate(
            choice.name, (choice.time_ns, choice.size_bytes), offsets[best], textcoords="offset points",
            fontsize=_FONT_PT,
        )  # fmt: skip


def _overlap(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
