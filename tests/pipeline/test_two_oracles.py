"""The two checkers share no decision: each is held to the tables of the documentation by itself, cell by cell."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from antiphon.pipeline import verdicts as pipeline_verdicts
from antiphon.pipeline.results import WatchCommit, WatchFinding
from antiphon.trace import naive
from antiphon.trace.event import Event
from antiphon.trace.schema import EVENTS, GUARANTEES
from antiphon.trace.writer import arrow_schema
from pipeline.conftest import Checker
from support.source import imports, modules

PAGE = Path(__file__).parents[2] / "docs" / "trace-guarantees.md"
UNREADABLE = "none of these"
Before = Literal["deliver", "receive"]
Table = dict[str, dict[str, str]]


def table(first_header: str) -> Table:
    """A table of the page with a column a guarantee: row -> guarantee -> what is marked there."""
    lines = iter(PAGE.read_text().splitlines())
    header = next(line for line in lines if line.startswith(f"| {first_header} |"))
    names = [cell.strip() for cell in header.strip("|").split("|")][1:]
    assert tuple(names) == GUARANTEES
    next(lines)
    found: Table = {}
    for line in lines:
        if not line.startswith("|"):
            break
        row, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        found[row.strip("`")] = dict(zip(names, cells, strict=True))
    return found


AFFECTED = table("event of the row")
CUT = table("it ends before")


def marked(row: Mapping[str, str], before: Before) -> set[str]:
    return {name for name, cell in row.items() if cell == "x" or (cell == "with receipts" and before == "receive")}


# --- traces of which all eight are known to hold ----------------------------------------------------------------------


def log(member: int, *rows: tuple[Any, ...]) -> list[Event]:
    """A log from (event, sender, seq) or ("view", number); all three members are in every view."""
    events = []
    for step, (event, *about) in enumerate(rows, 1):
        if event == "view":
            events.append(Event("r", member, step, event, view=about[0], members=(1, 2, 3)))
        else:
            events.append(Event("r", member, step, event, *about))
    return events


def d(sender: int, seq: int) -> list[tuple[Any, ...]]:
    return [("receive", sender, seq), ("deliver", sender, seq)]


FIRST_VIEW = {
    1: [("view", 1), ("send", 1, 1), ("deliver", 1, 1), *d(2, 1), ("stable", 1, 1), ("view", 2)],
    2: [("view", 1), *d(1, 1), ("send", 2, 1), ("deliver", 2, 1), ("stable", 1, 1), ("view", 2)],
    3: [("view", 1), *d(1, 1), *d(2, 1), ("view", 2)],
}
SECOND_VIEW = {
    1: [*d(3, 1), ("send", 1, 2), ("deliver", 1, 2), ("stable", 3, 1), ("stable", 1, 2), ("view", 3), ("end",)],
    2: [*d(3, 1), *d(1, 2), ("view", 3), ("end",)],
    3: [("send", 3, 1), ("deliver", 3, 1), ("receive", 1, 2), ("deliver", 1, 2), ("view", 3), ("end",)],
}
SOUND = [event for member in (1, 2, 3) for event in log(member, *FIRST_VIEW[member], *SECOND_VIEW[member])]
ENDS_BEFORE = dict(zip(CUT, (SECOND_VIEW[3].index(row) for row in SECOND_VIEW[3]), strict=True))


def cut_short(row: str) -> list[Event]:
    """The sound trace, in which member 3's log ends where a row of the table says."""
    kept = [*FIRST_VIEW[3], *SECOND_VIEW[3][: ENDS_BEFORE[row]]]
    return [event for event in SOUND if event.member != 3] + log(3, *kept)


def write(events: list[Event], folder: Path, *bad: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    rows = [msgspec.structs.asdict(event) | {"time_ns": event.time_ns or 0} for event in events]
    schema = pa.schema([field.with_nullable(True) for field in arrow_schema()])
    pq.write_table(pa.Table.from_pylist([*rows, *bad], schema), folder / "events.parquet")
    return folder


# --- the two checkers, each by itself ---------------------------------------------------------------------------------


def by_naive(events: list[Event], before: Before, unreadable: str | None = None) -> dict[str, str]:
    aside = [] if unreadable is None else [None if unreadable == UNREADABLE else unreadable]
    found = naive.check(events, happened_before=before, unreadable=aside)
    return {name: verdict.verdict for name, verdict in found.items()}


def by_pipeline(
    inline: Checker, folder: Path, events: list[Event], before: Before, unreadable: str | None = None
) -> dict[str, str]:
    bad = [] if unreadable is None else [{"run": "r", "step": 99, "event": unreadable}]  # a row of no member
    _, found = inline.check(write(events, folder / "trace", *bad), happened_before=before)
    return {name: verdict.verdict for name, verdict in found.items()}


def expected(row: Mapping[str, str], before: Before = "deliver") -> dict[str, str]:
    return {name: "unknown" if name in marked(row, before) else "holds" for name in GUARANTEES}


def test_the_table_has_every_event() -> None:
    assert set(AFFECTED) == {*EVENTS, UNREADABLE}


@pytest.mark.parametrize("before", ["deliver", "receive"])
def test_all_eight_hold_of_the_sound_trace(inline: Checker, tmp_path: Path, before: Before) -> None:
    holds = dict.fromkeys(GUARANTEES, "holds")
    assert by_naive(SOUND, before) == holds
    assert by_pipeline(inline, tmp_path, SOUND, before) == holds


@pytest.mark.parametrize("before", ["deliver", "receive"])
@pytest.mark.parametrize("event", AFFECTED)
class TestUnreadableRows:
    def test_naive(self, event: str, before: Before) -> None:
        assert by_naive(SOUND, before, event) == expected(AFFECTED[event], before)

    def test_pipeline(self, inline: Checker, tmp_path: Path, event: str, before: Before) -> None:
        assert by_pipeline(inline, tmp_path, SOUND, before, event) == expected(AFFECTED[event], before)


@pytest.mark.parametrize("event", AFFECTED)
def test_watch_leaves_open_what_the_table_says(event: str) -> None:
    commit = WatchCommit(quarantined={"" if event == UNREADABLE else event: 1})
    commit.findings = {name: WatchFinding(examined=5) for name in commit.findings}
    wanted = expected(AFFECTED[event])
    assert commit.verdicts() == {name: wanted[name] for name in commit.findings}


@pytest.mark.parametrize("row", CUT)
class TestCutShort:
    def test_naive(self, row: str) -> None:
        assert by_naive(cut_short(row), "deliver") == expected(CUT[row])

    def test_pipeline(self, inline: Checker, tmp_path: Path, row: str) -> None:
        assert by_pipeline(inline, tmp_path, cut_short(row), "deliver") == expected(CUT[row])


# --- that the tests above would notice --------------------------------------------------------------------------------


def cells() -> Iterator[tuple[str, str]]:
    for event in EVENTS:
        for name in sorted(marked(AFFECTED[event], "receive")):
            yield event, name


@pytest.mark.parametrize(("event", "guarantee"), list(cells()))
def test_an_emptied_cell_is_noticed(
    inline: Checker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, event: str, guarantee: str
) -> None:
    wanted = expected(AFFECTED[event], "receive")
    with monkeypatch.context() as patched:
        patched.setitem(naive.AFFECTED_BY, event, naive.AFFECTED_BY[event] - {guarantee})
        assert by_naive(SOUND, "receive", event) != wanted
        assert by_pipeline(inline, tmp_path, SOUND, "receive", event) == wanted  # it has a table of its own
    with monkeypatch.context() as patched:
        patched.setitem(pipeline_verdicts.OPEN_TO, guarantee, pipeline_verdicts.OPEN_TO[guarantee] - {event})
        assert by_pipeline(inline, tmp_path, SOUND, "receive", event) != wanted
        assert by_naive(SOUND, "receive", event) == wanted


SHARED = {"errors", "trace.event", "trace.schema", "trace.verdict"}  # what a row, a guarantee and a verdict look like


def reached_from(start: str) -> set[str]:
    """The modules that a module imports, and those that they import."""
    found: set[str] = set()
    left = {start}
    while left:
        name = left.pop()
        found.add(name)
        left |= imported()[name] - found
    return found


@cache
def imported() -> dict[str, set[str]]:
    """By module, what it imports."""
    return {module.name: {found.imported for found in imports(module)} for module in modules()}


def test_neither_checker_imports_the_other() -> None:
    """Not by way of a third module either, wherever the import stands."""
    assert imported()["trace.naive"] <= SHARED
    for name in imported():
        if name.split(".")[0] == "pipeline":
            assert "trace.naive" not in reached_from(name), name


def test_what_both_import_decides_nothing() -> None:
    """The form of a row and of a verdict is shared; nothing of it reaches a verdict or words one."""
    functions = {
        node.name
        for module in modules()
        if module.name in SHARED - {"errors"}
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef)
    }
    assert functions == {"deciding", "exit_code"}  # which verdicts count for an exit code: a command's matter
