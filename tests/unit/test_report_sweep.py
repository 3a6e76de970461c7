"""The page about a sweep: roles of what varies, means with their confidence, and no claim beyond the table."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("matplotlib")

from antiphon.errors import UsageError
from antiphon.pipeline.results import CellGuarantee, CellLatency, CellValues, SweepCell, cell_row
from antiphon.report.sources import recognise
from antiphon.report.sweep_page import headline, sweep_page
from antiphon.report.sweep_table import TIME_UNTIL_STABLE, band, lines, read_sweep
from antiphon.trace.schema import GUARANTEES
from antiphon.trace.verdict import VerdictName


def cell(ordering: str, members: int, seed: int) -> SweepCell:
    cost = {"fifo": 1, "co": 3, "abcast": 2}[ordering]
    promises = ["fifo", *{"co": ["causal"], "abcast": ["total"], "fifo": []}[ordering]]

    def times(p50_ns: int) -> CellLatency:
        return CellLatency(p50_ns=p50_ns, p99_ns=2 * p50_ns, max_ns=3 * p50_ns)

    values = CellValues(
        finished=True,
        ended_ns=1,
        members=members,
        sent=10,
        delivered=10 * members,
        events=100,
        digest="",
        promises=promises,
        broken=[],
        undecided=[],
        guarantees={name: CellGuarantee("holds" if name in promises else "unknown", 0) for name in GUARANTEES},
        latency={
            "delivery": times(1_000_000 * cost * members + seed),
            "stable": times(2_000_000 * cost * members + 1000 * seed),
        },
        buffer_peak=cost * members,
        overhead=None,
        retransmissions=0,
        duplicates=0,
        control_bytes=100 * cost,
        send_bytes=None,
    )
    name = f"{ordering}-{members}-{seed}"
    settings = {"ordering": ordering, "members": members}
    return SweepCell(cell=name, seed=seed, status="done", settings=settings, values=values)


def failed(one: SweepCell) -> SweepCell:
    return msgspec.structs.replace(one, status="failed", error="<b>no</b>", values=None)


def with_fifo(one: SweepCell, verdict: VerdictName, **change: Any) -> SweepCell:
    assert one.values is not None
    guarantees = {**one.values.guarantees, "fifo": CellGuarantee(verdict, 0)}
    values = msgspec.structs.replace(one.values, guarantees=guarantees, **change)
    return msgspec.structs.replace(one, values=values)


GRID = [
    cell(ordering, members, seed)
    for ordering in ("fifo", "co", "abcast")
    for members in (3, 8)
    for seed in (1, 2, 3)
]  # fmt: skip


def written(folder: Path, cells: list[SweepCell], toml: str = "") -> Path:
    (folder / "cells").mkdir(parents=True)
    (folder / "sweep.toml").write_text(toml)
    pq.write_table(pa.Table.from_pylist([cell_row(one) for one in cells]), folder / "results.parquet")
    return folder


def test_a_page_compares_protocols_and_sizes(tmp_path: Path) -> None:
    sweep = read_sweep(written(tmp_path / "sweep", GRID))
    assert (sweep.x, sweep.series, sweep.facets) == ("members", ["ordering"], [])
    page = sweep_page(sweep)
    assert headline(sweep) == "Every promise held in all 18 cells."
    assert sweep.count().exit_code() == 0
    assert "With 8 members: Soonest stable: fifo (16 ms). Fewest bytes: fifo (10 a message)." in page
    assert page.count("<svg") == 2
    assert "http" not in page
    # abcast is better than co in all three, but promises no causal order
    assert page.count("<td>no</td>") == 3
    assert len(page) < 300_000


def test_means_have_students_confidence(tmp_path: Path) -> None:
    sweep = read_sweep(written(tmp_path / "sweep", GRID))
    found = lines(sweep, sweep.done, TIME_UNTIL_STABLE)
    assert set(found) == {"fifo", "co", "abcast"}
    small, large = found["co"]
    assert (small.x, large.x) == (3, 8)
    values = [18.001, 18.002, 18.003]
    half = 4.303 * statistics.stdev(values) / math.sqrt(3)
    assert small.mean == pytest.approx(18.002)
    assert (small.low, small.high) == pytest.approx((18.002 - half, 18.002 + half))
    alone = band(1, [5.0])
    assert alone.low == alone.high == 5.0
    assert band(1, [0.0, 10.0]).low == 0.0, "nothing measured here is below 0"


@pytest.mark.parametrize(("seeds", "t"), [(2, 12.7062), (31, 2.0423), (32, 2.0395), (42, 2.0195), (100, 1.9842)])
def test_confidence_has_no_step_where_a_table_would_end(seeds: int, t: float) -> None:
    values = [float(number % 7) for number in range(seeds)]
    assert band(1, values).high == pytest.approx(
        statistics.fmean(values) + t * statistics.stdev(values) / math.sqrt(seeds), rel=1e-5
    )


@pytest.mark.parametrize(
    ("change", "said", "code"),
    [
        (lambda one: with_fifo(one, "violated", broken=["fifo"]), "1 of 18 cells broke a promise.", 1),
        (
            lambda one: with_fifo(one, "unknown", undecided=["fifo"]),
            "Nothing is broken, but 1 of 18 cells are open.",
            3,
        ),
        (failed, "Nothing is broken, but 1 of 18 cells are open.", 3),
    ],
)
def test_troubles_are_said_at_the_top_and_listed(
    tmp_path: Path, change: Callable[[SweepCell], SweepCell], said: str, code: int
) -> None:
    sweep = read_sweep(written(tmp_path / "sweep", [*GRID[:-1], change(GRID[-1])]))
    page = sweep_page(sweep)
    assert headline(sweep) == said
    assert sweep.count().exit_code() == code
    assert "Cells to look at" in page
    assert "ordering abcast, members 8" in page
    assert "<b>no</b>" not in page


@pytest.mark.slow
def test_other_numbers_become_figures_of_their_own(tmp_path: Path) -> None:
    cells = [
        msgspec.structs.replace(one, settings={**one.settings, "network.loss": loss})
        for one in GRID
        for loss in (0.0, 0.1)
    ]
    sweep = read_sweep(written(tmp_path / "sweep", cells))
    assert sweep.facets == ["network.loss"]
    page = sweep_page(sweep)
    assert "<h3>loss 0</h3>" in page
    assert "<h3>loss 0.1</h3>" in page
    assert page.count("<svg") == 3


def test_without_a_number_that_varies_there_is_a_table(tmp_path: Path) -> None:
    sweep = read_sweep(written(tmp_path / "sweep", [one for one in GRID if one.settings["members"] == 3]))
    assert sweep.x is None
    assert "Side by side" in sweep_page(sweep)


def test_single_cells_take_what_they_leave_open_from_the_scenario(tmp_path: Path) -> None:
    beside = msgspec.structs.replace(cell("co", 20, 1), settings={"members": 20})
    cells = [*GRID, beside]
    sweep = read_sweep(written(tmp_path / "sweep", cells, '[scenario]\nordering = "co"\n'))
    assert sweep.name(sweep.cells[-1]) == "co"


def test_one_seed_has_no_bands_and_says_so(tmp_path: Path) -> None:
    sweep = read_sweep(written(tmp_path / "sweep", [one for one in GRID if one.seed == 1]))
    assert "Only one seed." in sweep_page(sweep)


def test_nothing_done_claims_nothing(tmp_path: Path) -> None:
    sweep = read_sweep(written(tmp_path / "sweep", list(map(failed, GRID))))
    assert headline(sweep) == "No cell ran to its end."
    assert sweep.count().exit_code() == 3
    assert "<svg" not in sweep_page(sweep)


def test_a_sweep_is_known_by_its_folder(tmp_path: Path) -> None:
    folder = written(tmp_path / "sweep", GRID)
    assert recognise([str(folder)]).sweep == folder
    with pytest.raises(UsageError, match="by itself"):
        recognise([str(folder), str(tmp_path)])
    (folder / "results.parquet").unlink()
    with pytest.raises(UsageError, match="not finished"):
        recognise([str(folder)])
