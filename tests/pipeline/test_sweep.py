"""Sweeps: cells follow from the file alone, a killed sweep goes on, and a failing cell stops nobody."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from antiphon.cli import main
from antiphon.errors import UsageError
from antiphon.pipeline.inline import Inline
from antiphon.pipeline.results import NOT_REPEATABLE, CellValues, SweepResult, read_sweep_table
from antiphon.pipeline.session import Session, Work
from antiphon.pipeline.sweep import ATTEMPTS_MAX, plan, run_sweep
from antiphon.pipeline.sweep import cell as cell_module
from antiphon.pipeline.sweep.plan import CellPlan, load_sweep, prepare
from pipeline.cluster import BRIEF, cluster, in_words

SWEEP = """
seeds = 2

[scenario]
members = 3
messages = 6

[grid]
ordering = ["fifo", "co", "abcast"]
network.loss = [0.0, 0.1]

[[cells]]
members = 2
network.duplicate = 0.5
"""


def write(folder: Path, text: str = SWEEP) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "sweep.toml").write_text(text)
    return folder / "sweep.toml"


def run(path: Path, out: Path, session: Session | None = None, **options: Any) -> SweepResult:
    sweep = load_sweep(path, out)
    prepare(sweep, path)
    return run_sweep(session or Inline(), sweep, **options)


def table(out: Path) -> list[dict[str, Any]]:
    rows = pq.read_table(out / "results.parquet").to_pylist()
    return [{name: value for name, value in row.items() if name not in NOT_REPEATABLE} for row in rows]


def test_grid_cells_and_seeds(tmp_path: Path) -> None:
    sweep = load_sweep(write(tmp_path), tmp_path / "out")
    assert len(sweep.cells) == (3 * 2 + 1) * 2
    assert sweep.cells[2].scenario == {"members": 3, "messages": 6, "ordering": "fifo", "network": {"loss": 0.1}}
    assert sweep.cells[-1].scenario == {"members": 2, "messages": 6, "network": {"duplicate": 0.5}}
    assert sweep.cells[-1].seed == 2
    assert len({cell.name for cell in sweep.cells}) == 14


def test_options_of_one_protocol_are_not_for_another(tmp_path: Path) -> None:
    text = '[scenario]\nordering = {name = "co", x = 1}\n[grid]\nordering = ["fifo"]\nstability.name = ["train"]\n'
    [cell] = load_sweep(write(tmp_path, text), tmp_path / "out").cells
    assert cell.scenario == {"ordering": {"name": "fifo"}, "stability": {"name": "train"}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("seeds = 0", "seeds"),
        ("seeds = [1, 'x']", "seeds"),
        ("[grid]\nmembers = 3", "grid.members"),
        ("[gird]\nmembers = [3]", "gird"),
        ("cells = 3", "cells"),
        ("scenario = 'nowhere.toml'", "nowhere.toml"),
        ("a = [", "not a TOML file"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load_sweep(write(tmp_path, text), tmp_path / "out")


def test_same_file_same_table(tmp_path: Path) -> None:
    path = write(tmp_path)
    outcome = run(path, tmp_path / "one")
    run(path, tmp_path / "two")
    rows = table(tmp_path / "one")
    assert rows == table(tmp_path / "two")
    assert outcome.cells == outcome.done == 14
    assert not outcome.violated
    for row in rows:
        assert row["finished"]
        assert row["broken"] == row["undecided"] == ""
        assert row["delivered"] == row["sent"] * row["members"]
        assert row["delivery_max_ns"] > 0
    by_loss = {row["set.network.loss"]: row["retransmissions"] for row in rows if row["set.ordering"] == "co"}
    assert by_loss[0.0] == 0 < by_loss[0.1]


def test_finished_cells_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path)
    begun = []
    real = cell_module.run_cell

    def counted(cell: CellPlan) -> CellValues:
        begun.append(cell.name)
        if len(begun) == 6:
            raise KeyboardInterrupt
        return real(cell)

    monkeypatch.setattr(cell_module, "run_cell", counted)
    with pytest.raises(KeyboardInterrupt):
        run(path, tmp_path / "out")
    assert not (tmp_path / "out" / "results.parquet").exists()
    outcome = run(path, tmp_path / "out")
    assert outcome.skipped == 5
    assert len(begun) == 14 + 1  # only the one that was under way was begun twice
    run(path, tmp_path / "whole")
    assert table(tmp_path / "out") == table(tmp_path / "whole")


def test_a_failing_cell_is_recorded_and_can_be_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, SWEEP.replace('"co"', '"nonsense"'))
    outcome = run(path, tmp_path / "out")
    assert (outcome.done, outcome.failed) == (10, 4)
    assert "nonsense" in (outcome.failures[0].error or "")
    failed = [row for row in table(tmp_path / "out") if row["status"] == "failed"]
    assert {row["set.ordering"] for row in failed} == {"nonsense"}
    assert run(path, tmp_path / "out").skipped == 14
    [mended] = [cell for cell in read_sweep_table(tmp_path / "out") if cell.values is not None][:1]
    monkeypatch.setattr(cell_module, "run_cell", lambda cell: mended.values)
    assert run(path, tmp_path / "out", retry_failed=True).failed == 0


class Mortal(Inline):
    """A Spark that does not retry, whose worker may die."""

    def each(self, tasks: int, work: Work, label: str) -> list[bytes]:
        try:
            return super().each(tasks, work, label)
        except SystemExit:
            raise UsageError("a Spark task failed: Python worker exited unexpectedly") from None


def test_a_cell_that_kills_its_worker_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path)
    real = cell_module.run_cell
    deaths = []

    def deadly(cell: CellPlan) -> CellValues:
        if cell.seed == 2 and cell.settings.get("ordering") == "co":
            deaths.append(cell.name)
            raise SystemExit(1)
        return real(cell)

    monkeypatch.setattr(cell_module, "run_cell", deadly)
    outcome = run(path, tmp_path / "out", Mortal())
    assert (outcome.done, outcome.failed) == (12, 2)
    assert len(deaths) == 2 * ATTEMPTS_MAX
    assert "its worker died" in (outcome.failures[0].error or "")


class Crowded(Inline):
    """A Spark that begins all tasks before the first ends, and whose job ends with the first death."""

    def each(self, tasks: int, work: Work, label: str) -> list[bytes]:
        done, dead = [], False
        for number in reversed(range(tasks)):
            try:
                done.append(work(number))
            except SystemExit:
                dead = True
        if dead:
            raise UsageError("a Spark task failed: Python worker exited unexpectedly")
        return done


def test_whoever_runs_beside_a_killer_is_not_blamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker's death takes all with it that it runs: each is tried alone before it is given up."""
    path = write(tmp_path)
    real = cell_module.run_cell
    crowd = True

    def deadly(cell: CellPlan) -> CellValues:
        if cell.seed == 2 and cell.settings.get("ordering") == "co" and cell.settings.get("network.loss") == 0.1:
            raise SystemExit(1)
        if crowd and cell.settings.get("ordering") == "co":  # these are always under way when it dies
            alone = len(list((tmp_path / "out" / "started").iterdir())) == 1
            if not alone:
                raise SystemExit(1)
        return real(cell)

    monkeypatch.setattr(cell_module, "run_cell", deadly)
    outcome = run(path, tmp_path / "out", Crowded())
    assert (outcome.done, outcome.failed) == (13, 1)
    [failed] = [cell for cell in read_sweep_table(tmp_path / "out") if cell.status == "failed"]
    assert (failed.seed, failed.settings["network.loss"]) == (2, 0.1)


def test_other_code_makes_other_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path)
    before = {cell.name for cell in load_sweep(path, tmp_path / "out").cells}
    assert before == {cell.name for cell in load_sweep(path, tmp_path / "out").cells}
    monkeypatch.setattr(plan, "code_fingerprint", lambda: "changed")
    assert not before & {cell.name for cell in load_sweep(path, tmp_path / "out").cells}


def test_foreign_folders_are_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("dear")
    assert main(["sweep", str(path), "--out", str(tmp_path / "full")]) == 2
    assert "choose another --out" in capsys.readouterr().err
    assert main(["sweep", str(tmp_path / "none.toml")]) == 2


def test_on_spark_as_inline(spark_session: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, SWEEP.replace('"co"', '"nonsense"'))
    assert main(["sweep", str(path), "--out", str(tmp_path / "spark"), "--json"]) == 3
    result = json.loads(capsys.readouterr().out)
    assert (result["done"], result["failed"]) == (10, 4)
    run(path, tmp_path / "inline")
    assert table(tmp_path / "spark") == table(tmp_path / "inline")


@pytest.mark.slow
def test_kill_9_and_resume(tmp_path: Path) -> None:
    path = write(tmp_path, SWEEP.replace("messages = 6", "messages = 60"))
    command = [
        sys.executable,
        "-m",
        "antiphon.cli",
        "sweep",
        str(path),
        "--out",
        str(tmp_path / "out"),
        "--master",
        "local[2]",
    ]
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)
    cells = tmp_path / "out" / "cells"
    deadline = time.monotonic() + 120
    while len(list(cells.glob("*.json")) if cells.is_dir() else []) < 4 and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    finished = {file.name: file.stat().st_mtime_ns for file in cells.glob("*.json")}
    assert 4 <= len(finished) < 14
    assert not (tmp_path / "out" / "results.parquet").exists()
    outcome = run(path, tmp_path / "out")
    assert outcome.skipped == len(finished)
    assert all((cells / name).stat().st_mtime_ns == when for name, when in finished.items())
    run(path, tmp_path / "whole")
    assert table(tmp_path / "out") == table(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.spark
def test_on_a_cluster_that_loses_a_worker(tmp_path: Path) -> None:
    path = write(tmp_path, SWEEP.replace("messages = 6", "messages = 30"))
    with cluster(tmp_path) as on:
        command = [sys.executable, "-m", "antiphon.cli", "sweep", str(path), "--out", str(tmp_path / "out"), "--json"]
        process = subprocess.Popen([*command, "--master", on.url, *in_words(BRIEF)], stdout=subprocess.PIPE, text=True)
        while process.poll() is None and len(list((tmp_path / "out" / "cells").glob("*.json"))) < 3:
            time.sleep(0.05)
        on.kill(2)
        printed, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    result = json.loads(printed)
    assert (result["done"], result["failed"]) == (14, 0)
    run(path, tmp_path / "inline")
    assert table(tmp_path / "out") == table(tmp_path / "inline")
