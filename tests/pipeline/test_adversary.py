"""Awkward traces in awkward files: both checkers and the definitions themselves say the same of them."""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from antiphon.pipeline import ingesting
from antiphon.pipeline.checking import CheckOptions
from antiphon.pipeline.reading import read_batches
from antiphon.pipeline.reading.mapping import Mapping
from antiphon.pipeline.store.files import find_files
from antiphon.sim.cluster import simulate
from antiphon.sim.view_schedules import schedule
from antiphon.trace import naive
from antiphon.trace.event import Event
from antiphon.trace.reader import read
from antiphon.trace.schema import COLUMNS, GUARANTEES, REQUIRED
from pipeline.adversary import Brute, a_group
from pipeline.conftest import Checker
from pipeline.traces import SCHEMA, in_run, write

SEEDS = [*range(100), 1326, 1420, 1892, 2980]  # the last: a log cut short before it has the view that names its member
VARIANTS = [
    CheckOptions(),
    CheckOptions(uniform=True),
    CheckOptions(happened_before="receive"),
    CheckOptions(implied_own_deliveries=True),
]


def test_two_checkers_and_the_definitions_agree(inline: Checker, tmp_path: Path) -> None:
    runs = {f"r{seed}": events for seed in SEEDS if (events := a_group(seed, f"r{seed}"))}
    trace = write([event for events in runs.values() for event in events], tmp_path / "t.parquet")
    seen: Counter[tuple[str, str]] = Counter()
    for options, found in zip(VARIANTS, inline.check_each(trace, *VARIANTS), strict=True):
        for run, events in runs.items():
            expected = naive.check(
                events,
                uniform=options.uniform,
                happened_before=options.happened_before,
                implied_own_deliveries=options.implied_own_deliveries,
            )
            assert found[run] == expected, (run, options)
            if options == CheckOptions():
                by_definition(run, events, expected)
                seen.update((name, verdict.verdict) for name, verdict in expected.items())
    for name in GUARANTEES:
        for verdict in ("holds", "violated", "unknown"):
            assert seen[name, verdict] > 2, (name, verdict)


def by_definition(run: str, events: list[Event], expected: dict[str, Any]) -> None:
    brute = Brute(events)
    if brute.cut_short():
        return
    for name, violations in brute.counts().items():
        assert expected[name].violations == violations, (run, name)
    if not any(event.event == "view" for event in events):
        assert (expected["causal"].verdict == "violated") == brute.causal_is_violated(), run


@pytest.mark.parametrize("partition", ["majority", "each-side"])
def test_simulated_groups_with_views(
    inline: Checker, tmp_path: Path, partition: Literal["majority", "each-side"]
) -> None:
    """Crashes, joins, partitions that heal, and the views in between, as our own simulator writes them."""
    runs = {
        f"{ordering}-{seed}": simulate(schedule(seed, ordering, partition), seed)
        for seed in range(6)
        for ordering in ("fifo", "co", "abcast")
    }
    logs = {name: in_run(run.events, name) for name, run in runs.items()}
    trace = write([event for events in logs.values() for event in events], tmp_path / "t.parquet")
    [found] = inline.check_each(trace, CheckOptions())
    one_number = 0
    for name, events in logs.items():
        assert found[name] == naive.check(events), name
        by_definition(name, events, found[name])
        views = {(event.view, tuple(sorted(event.members or ()))) for event in events if event.event == "view"}
        one_number += len(views) > len({number for number, _ in views})
    assert (one_number > 0) == (partition == "each-side")  # both sides of a partition use one number


# --- files ------------------------------------------------------------------------------------------------------------


def rows_of(events: list[Event]) -> list[dict[str, Any]]:
    return [msgspec.structs.asdict(event) for event in events]


def odd_parquet(rows: list[dict[str, Any]], path: Path, rng: random.Random) -> None:
    """Types that a reader can turn into the contract's without loss."""
    integer: list[pa.DataType] = [pa.int64(), pa.float64()]
    table = pa.Table.from_pylist(rows, SCHEMA)
    for name in rng.sample(table.column_names, 6):
        field = table.schema.get_field_index(name)
        column = table[name]
        if pa.types.is_integer(column.type):
            least, most = pa.compute.min(column).as_py() or 0, pa.compute.max(column).as_py() or 0
            kinds = [pa.int64(), *(integer if max(abs(least), abs(most)) < 2**53 else [])]
            kinds += [pa.uint64()] if least >= 0 else []
            column = column.cast(rng.choice(kinds))
        elif pa.types.is_string(column.type):
            column = rng.choice([column.dictionary_encode(), column.cast(pa.large_string())])
        else:
            column = column.cast(rng.choice([pa.list_(pa.int64()), pa.large_list(pa.int32())]))
        table = table.set_column(field, name, column)
    optional = [name for name in COLUMNS if name not in REQUIRED and table[name].null_count == table.num_rows]
    for name in optional:
        if rng.random() < 0.5:
            table = table.drop_columns([name])
        else:
            table = table.set_column(table.schema.get_field_index(name), name, pa.nulls(table.num_rows))
    table = table.append_column("colour", pa.array(["red"] * table.num_rows))
    pq.write_table(table, path, row_group_size=rng.choice([3, 1000]))


def odd_csv(rows: list[dict[str, Any]], path: Path, rng: random.Random) -> None:
    columns = rng.sample([*COLUMNS, "colour"], len(COLUMNS) + 1)
    with io.StringIO(newline="") as out:
        writer = csv.writer(out, quoting=rng.choice([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]))
        writer.writerow(columns)
        for row in rows:
            writer.writerow([odd_field(row.get(name), rng) for name in columns])
        put(path, out.getvalue())


def odd_field(value: Any, rng: random.Random) -> Any:
    if isinstance(value, (list, tuple)):
        return rng.choice([" ", ", ", ";"]).join(map(str, value))
    return f"{value}.0" if isinstance(value, int) and rng.random() < 0.2 else value


def odd_json(rows: list[dict[str, Any]], path: Path, rng: random.Random) -> None:
    text = ""
    for row in rows:
        given = {name: value for name, value in row.items() if value is not None or rng.random() < 0.5}
        if rng.random() < 0.1:
            given["step"] = str(row["step"])
        text += json.dumps(given) + rng.choice(["\n", "\n", "\n\n"])
    put(path, text)


def put(path: Path, text: str) -> None:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


WRITERS: dict[str, Callable[[list[dict[str, Any]], Path, random.Random], None]] = {
    "events.parquet": odd_parquet,
    "events.csv": odd_csv,
    "events.jsonl": odd_json,
    "events.csv.gz": odd_csv,
    "events.ndjson.gz": odd_json,
}


def test_many_runs_in_files_of_all_kinds(inline: Checker, tmp_path: Path) -> None:
    """A tree of folders, a run or two in each, each folder with files of several formats and its own run.json."""
    rng = random.Random(5)
    runs: dict[str, list[Event]] = {}
    clocks = set()
    for number in range(40):
        folder = tmp_path / "trace" / "/".join(rng.choices("abc", k=number % 3)) / str(number)
        folder.mkdir(parents=True)
        clock = rng.random() < 0.3
        (folder / "run.json").write_text(json.dumps({"ordering": "fifo", "clock": "global" if clock else "own"}))
        events: list[Event] = []
        for part in range(rng.choice([1, 2])):
            name = f"{number}/{part}"
            runs[name] = a_group(1000 + 2 * number + part, name)
            events += runs[name]
            clocks |= {name} if clock else set()
        rng.shuffle(events)
        names = rng.sample(list(WRITERS), 3)
        for at, name in enumerate(names):
            WRITERS[name](rows_of(events[at::3]), folder / name, rng)
        (folder / "_bookkeeping.csv").write_text("no,trace\n")
        (folder / "notes.txt").write_text("no trace either")
    [found] = inline.check_each(tmp_path / "trace", CheckOptions())
    assert set(found) == {run for run, events in runs.items() if events}
    for run, verdicts in found.items():
        assert verdicts == naive.check(runs[run], global_clock=run in clocks), run
    totals, _ = inline.check(tmp_path / "trace")
    assert totals.events == sum(map(len, runs.values()))
    assert not totals.quarantined
    assert totals.promises == ["agreement", "fifo", "integrity", "validity"]


def test_five_percent_rubbish(inline: Checker, tmp_path: Path) -> None:
    """What is left is judged as if nothing had been there; what the rubbish could have changed is unknown."""
    rng = random.Random(6)
    events = [event for seed in range(40) for event in a_group(seed, f"r{seed}")]
    rows = rows_of(events)
    spoilt = 0
    for row in rows:
        if rng.random() < 0.05:
            row["seq" if row["event"] == "deliver" else "member"] = rng.choice(["x", None, 10**30, "1.5"])
            spoilt += 1
    path = tmp_path / "events.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    trace = read(path)
    totals, found = inline.check(path)
    assert sum(totals.quarantined.values()) == len(trace.unreadable) == spoilt > 20
    expected = naive.check(trace.events, unreadable=[row.event for row in trace.unreadable])
    assert found == expected
    assert found["agreement"].verdict == "unknown"


ODD_VALUES: dict[str, list[Any]] = {
    "run": ["r", "r2", "", " ", "é\u2028x", None, 7, True],
    "member": [
        1,
        2,
        "1",
        " 2 ",
        "3.0",
        "3.",
        "3.5",
        "+4",
        "0x10",
        "1e3",
        "1_000",
        2.0,
        2.5,
        True,
        "nan",
        "",
        [1],
        {"a": 1},
    ],
    "sender": [1, 2, None, "1", "", "2.0", 2**31 - 1, -(2**31), 2**31, "x", 1.0, False],
    "step": [1, 2, "9", 2**63 - 1, -(2**63), 2**63, "9223372036854775808", None, "1.0", 7.0, 1e18],
    "event": ["send", "deliver", "leave", "view", "end", "Send", " send", "", None, "bogus", 5],
    "seq": [1, 2, "4", 0, -1, None, "1.0", "1.5", 2**62, "", True],
    "time_ns": [None, 5, "6", "1.5", "x", 2**64],
    "view": [0, 1, "2", None, "", 1.0, "x"],
    "bytes": [None, 10, "11", "x"],
    "members": [None, [1, 2], "1 2", "[1, 2]", [], "", ["1"], [1.0], "1 x", [2**31], [None, 1], [1.5]],
    "detail": [None, "d", "", 7],
}


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_both_readers_agree_on_odd_values(tmp_path: Path, suffix: str) -> None:
    rng = random.Random(7)
    for number in range(60):
        rows = [{name: values[0] for name, values in ODD_VALUES.items()}]
        for _ in range(20):
            spoilt = set(rng.choices(list(ODD_VALUES), k=rng.choice([0, 1, 3])))
            rows.append(
                {name: rng.choice(values if name in spoilt else values[:2]) for name, values in ODD_VALUES.items()}
            )
        for step, row in enumerate(rows):
            row["step"] = row["step"] if rng.random() < 0.1 else 1000 + step
        path = tmp_path / f"{number}{suffix}"
        (odd_csv if suffix == ".csv" else odd_json)(rows, path, rng)
        trace = read(path)
        batches = [batch for file in find_files(str(path)) for batch in read_batches(file, None, Mapping())]
        good = [row for batch in batches for row in batch.good.to_pylist()]
        bad = [row for batch in batches for row in batch.bad]
        repeated = len(good) - len({(row["run"], row["member"], row["step"]) for row in good})
        assert len(trace.events) == len(good) - repeated
        assert len(trace.unreadable) == len(bad) + repeated
        plain = {(row["run"], row["member"], row["step"], row["view"] or 0, row["time_ns"]) for row in good}
        assert plain >= {(e.run, e.member, e.step, e.view, e.time_ns) for e in trace.events}


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_a_large_text_is_read_in_parts(
    inline: Checker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    """Wherever it is cut, also in the middle of a line, of a quoted line break, or of rubbish."""
    rng = random.Random(8)
    rows = [row for seed in range(8) for row in rows_of(a_group(seed, f"r{seed}"))]
    for row in rows:
        row["detail"] = rng.choice([None, 'two\nlines, "quoted"', "é" * 9])
        row["seq"] = row["seq"] if rng.random() < 0.95 else "x"
    path = tmp_path / f"events{suffix}"
    (odd_csv if suffix == ".csv" else odd_json)(rows, path, rng)

    def checked() -> tuple[Any, Any]:
        totals, found = inline.check(path)
        if suffix == ".csv":  # its rows are counted by lines once it is cut
            totals.examples = {why: re.sub(r" row \d+:", "", row) for why, row in totals.examples.items()}
        return totals, found

    whole = checked()
    batches = list(read_batches(str(path), None, Mapping()))
    for split_bytes in (1001, 199):
        monkeypatch.setattr(ingesting, "FILE_PART_BYTES", split_bytes)
        if split_bytes > 1000:
            assert checked() == whole
        spans = ingesting._cut_texts(inline.session, [str(path)])[str(path)]
        parts = [batch for span in spans for batch in read_batches(str(path), None, Mapping(), span)]
        in_parts = [row for batch in parts for row in batch.good.to_pylist()]
        assert in_parts == [row for batch in batches for row in batch.good.to_pylist()]
        if suffix == ".jsonl":  # rows of a CSV file are counted by lines once it is cut
            assert [bad for batch in parts for bad in batch.bad] == [bad for batch in batches for bad in batch.bad]
