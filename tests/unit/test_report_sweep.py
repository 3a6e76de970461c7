"""The page about a sweep: roles of what varies, means with their confidence, and no claim beyond the table."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("matplotlib")

from antiphon.errors import UsageError
from antiphon.report.sources import recognise
from antiphon.report.sweep import METRICS, band, lines, read_sweep
from antiphon.report.sweep_page import headline, sweep_page
from antiphon.trace.schema import GUARANTEES


def cell(ordering: str, members: int, seed: int, **other: Any) -> dict[str, Any]:
    cost = {"fifo": 1, "co": 3, "abcast": 2}[ordering]
    promises = "fifo causal" if ordering == "co" else "fifo total" if ordering == "abcast" else "fifo"
    return {
        "cell": f"{ordering}-{members}-{seed}",
        "seed": seed,
        "status": "done",
        "error": None,
        "set.ordering": ordering,
        "set.members": members,
        "finished": True,
        "members": members,
        "sent": 10,
        "promises": promises,
        "broken": "",
        "undecided": "",
        "delivery_p50_ns": 1_000_000 * cost * members + seed,
        "stable_p50_ns": 2_000_000 * cost * members + 1000 * seed,
        "buffer_peak": cost * members,
        "control_bytes": 100 * cost,
        **{name.replace("-", "_"): "holds" if name in promises else "unknown" for name in GUARANTEES},
        **other,
    }


GRID = [
    cell(ordering, members, seed)
    for ordering in ("fifo", "co", "abcast")
    for members in (3, 8)
    for seed in (1, 2, 3)
]  # fmt: skip


def written(folder: Path, rows: list[dict[str, Any]], toml: str = "") -> Path:
    (folder / "cells").mkdir(parents=True)
    (folder / "sweep.toml").write_text(toml)
    pq.write_table(pa.Table.from_pylist(rows), folder / "results.parquet")
    return folder


def test_a_page_compares_protocols_and_sizes(tmp_path: Path) -> None:
    sweep = read_sweep(written(tmp_path / "sweep", GRID))
    assert (sweep.x, sweep.series, sweep.facets) == ("set.members", ["set.ordering"], [])
    page = sweep_page(sweep)
    assert headline(sweep) == "Every promise held in all 18 cells."
    assert sweep.exit_code() == 0
    assert "With 8 members: Soonest stable: fifo (16 ms). Fewest bytes: fifo (10 a message)." in page
    assert page.count("<svg") == 2
    assert "http" not in page
    # abcast is better than co in all three, but promises no causal order
    assert page.count("<td>no</td>") == 3
    assert len(page) < 300_000


def test_means_have_students_confidence(tmp_path: Path) -> None:
    sweep = read_sweep(written(tmp_path / "sweep", GRID))
    found = lines(sweep, sweep.done, METRICS[1])
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
    assert band(1, [1.0, 3.0] * 50).high == pytest.approx(2 + 1.96 * statistics.stdev([1.0, 3.0] * 50) / 10)


@pytest.mark.parametrize(
    ("change", "said", "code"),
    [
        ({"broken": "fifo", "fifo": "violated"}, "1 of 18 cells broke a promise.", 1),
        ({"undecided": "fifo", "fifo": "unknown"}, "Nothing is broken, but 1 of 18 cells are open.", 3),
        ({"status": "failed", "error": "<b>no</b>"}, "Nothing is broken, but 1 of 18 cells are open.", 3),
    ],
)
def test_troubles_are_said_at_the_top_and_listed(tmp_path: Path, change: dict[str, Any], said: str, code: int) -> None:
    rows = [*GRID[:-1], {**GRID[-1], **change}]
    sweep = read_sweep(written(tmp_path / "sweep", rows))
    page = sweep_page(sweep)
    assert headline(sweep) == said
    assert sweep.exit_code() == code
    assert "Cells to look at" in page
    assert "ordering abcast, members 8" in page
    assert "<b>no</b>" not in page


def test_other_numbers_become_figures_of_their_own(tmp_path: Path) -> None:
    rows = [{**row, "set.network.loss": loss} for row in GRID for loss in (0.0, 0.1)]
    sweep = read_sweep(written(tmp_path / "sweep", rows))
    assert sweep.facets == ["set.network.loss"]
    page = sweep_page(sweep)
    assert "<h3>loss 0</h3>" in page
    assert "<h3>loss 0.1</h3>" in page
    assert page.count("<svg") == 3


def test_without_a_number_that_varies_there_is_a_table(tmp_path: Path) -> None:
    sweep = read_sweep(written(tmp_path / "sweep", [row for row in GRID if row["members"] == 3]))
    assert sweep.x is None
    assert "Side by side" in sweep_page(sweep)


def test_single_cells_take_what_they_leave_open_from_the_scenario(tmp_path: Path) -> None:
    rows = [*GRID, {**cell("co", 20, 1), "set.ordering": None}]
    sweep = read_sweep(written(tmp_path / "sweep", rows, '[scenario]\nordering = "co"\n'))
    assert sweep.name(sweep.rows[-1]) == "co"


def test_one_seed_has_no_bands_and_says_so(tmp_path: Path) -> None:
    sweep = read_sweep(written(tmp_path / "sweep", [row for row in GRID if row["seed"] == 1]))
    assert "Only one seed." in sweep_page(sweep)


def test_nothing_done_claims_nothing(tmp_path: Path) -> None:
    rows = [{**row, "status": "failed", "error": "no"} for row in GRID]
    sweep = read_sweep(written(tmp_path / "sweep", rows))
    assert headline(sweep) == "No cell ran to its end."
    assert sweep.exit_code() == 3
    assert "<svg" not in sweep_page(sweep)


def test_a_sweep_is_known_by_its_folder(tmp_path: Path) -> None:
    folder = written(tmp_path / "sweep", GRID)
    assert recognise([str(folder)]).sweep == folder
    with pytest.raises(UsageError, match="by itself"):
        recognise([str(folder), str(tmp_path)])
    (folder / "results.parquet").unlink()
    with pytest.raises(UsageError, match="not finished"):
        recognise([str(folder)])
