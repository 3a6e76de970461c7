"""The unit of a foreign log's times: said, named or guessed, the same for records in bulk and one by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from antiphon.pipeline.columns import NULL_TIME
from antiphon.pipeline.ingesting import ingest
from antiphon.pipeline.inline import Inline
from antiphon.pipeline.reading.mapping import Mapping, make_mapping
from antiphon.pipeline.reading.time_units import (
    TimeReading,
    guess_unit,
    nanoseconds,
    times_as_nanoseconds,
    unit_named,
)
from antiphon.pipeline.store.layout import Totals, TraceLayout
from antiphon.trace.reader import read as naive_read

SECOND = 1_000_000_000
DATE = 1_763_000_000


@pytest.mark.parametrize(
    ("key", "unit"),
    [
        ("time_ns", "ns"), ("sent_ms", "ms"), ("startTimeUnixNano", "ns"), ("timestampMillis", "ms"),
        ("event-us", "us"), ("at_seconds", "s"), ("headers.time_us", "us"), ("time", ""),
        ("ts", ""), ("timestamp", ""), ("s", ""), ("", ""),
    ],
)  # fmt: skip
def test_a_key_may_name_its_unit(key: str, unit: str) -> None:
    assert unit_named(key) == unit


@pytest.mark.parametrize(
    ("times", "unit"),
    [
        ([DATE, DATE + 7], "s size"), ([DATE * 1e3, DATE * 1e3 + 7, 0], "ms size"), ([DATE * 1e9], "ns size"),
        ([0.25, 0.5, 2.0], "s"),
        ([0, 3, 3, 5, 9], "ms"), ([1, 1, 1, 2, 2], "ms"),
        ([0, 1_500, 2_700, 90_000], "us"),
        ([0, 2_000_000, 2_100_000, 9_000_000_000], "ns"),
        ([5], ""), ([], ""),
    ],
)  # fmt: skip
def test_small_times_are_judged_by_how_close_they_are(times: list[float], unit: str) -> None:
    word, _, by = unit.partition(" ")
    assert guess_unit(times) == TimeReading(word, by or ("closeness" if word else ""))  # type: ignore[arg-type]


@pytest.mark.parametrize("unit", ["", "s", "ms", "us", "ns"])
def test_columns_and_single_values_say_the_same(unit: Any) -> None:
    whole = [0, 7, DATE, DATE * 1_000, DATE * 10**6, DATE * 10**9, 5 * 10**13, 2 * 10**10, -5, None]
    for values in (whole, [None if one is None else str(one) for one in whole], [0.5, 1.25, DATE + 0.5, None]):
        column = times_as_nanoseconds(pa.array(values), unit)
        assert column is not None
        assert column.to_pylist() == [nanoseconds(value, unit) for value in values]
    assert times_as_nanoseconds(pa.array([True]), unit) is None


def read(folder: Path, records: list[dict[str, Any]], mapping: Mapping | None) -> tuple[Totals, list[int]]:
    (folder / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    totals = ingest(Inline(), str(folder / "log.jsonl"), folder / "layout", mapping)
    layout = TraceLayout(folder / "layout")
    times = [time for unit in layout.units_of(0) for time in layout.read(unit, ("time_ns",))["time_ns"].tolist()]
    return totals, sorted(times)


def records(key: str, times: list[float], member: object = "till") -> list[dict[str, Any]]:
    return [
        {"run": "r", "member": member, "step": at, "event": "send", "sender": member, "seq": at, key: time}
        for at, time in enumerate(times, 1)
    ]


def test_a_guess_is_said_and_a_mapping_says_otherwise(tmp_path: Path) -> None:
    log = records("at", [0, 2_000_000, 5_000_000])
    columns = {"columns": {"time_ns": "at"}}
    totals, times = read(tmp_path, log, make_mapping(columns, "here"))
    assert (totals.times, times) == (TimeReading("ns", "closeness"), [0, 2_000_000, 5_000_000])
    (tmp_path / "said").mkdir()
    totals, times = read(tmp_path / "said", log, make_mapping({**columns, "time_unit": "us"}, "here"))
    assert (totals.times, times) == (TimeReading("us", "mapping"), [0, 2 * SECOND, 5 * SECOND])


def test_the_name_of_a_key_is_believed(tmp_path: Path) -> None:
    totals, times = read(tmp_path, records("time_ns", [1, 2, 3]), None)
    assert (totals.times, times) == (TimeReading(), [1, 2, 3])


@pytest.mark.parametrize(("key", "said"), [("at_ms", {}), ("at", {"time_unit": "ms"})])
def test_a_log_with_numbers_for_names_is_read_alike(tmp_path: Path, key: str, said: dict[str, str]) -> None:
    mapping = make_mapping({"columns": {"time_ns": key}, **said}, "here")
    totals, times = read(tmp_path, records(key, [1, 2.5, 4], member=3), mapping)
    assert (totals.quarantined, times) == ({}, [1_000_000, 2_500_000, 4_000_000])


def test_histories_are_in_nanoseconds(tmp_path: Path) -> None:
    (tmp_path / "history.edn").write_text(
        "{:process 0, :type :invoke, :f :enqueue, :value 7, :time 12}\n"
        "{:process 1, :type :ok, :f :dequeue, :value 7, :time 3000000}\n"
    )
    totals = ingest(Inline(), str(tmp_path / "history.edn"), tmp_path / "layout", Mapping(preset="jepsen"))
    layout = TraceLayout(tmp_path / "layout")
    times = {time for unit in layout.units_of(0) for time in layout.read(unit, ("time_ns",))["time_ns"].tolist()}
    assert times == {12, 3_000_000}
    assert totals.times == TimeReading("ns", "preset")


@pytest.mark.parametrize("member", ["till", 3])
@pytest.mark.parametrize(
    ("stamps", "said", "expected"),
    [
        ([1, 4, 9], TimeReading("ms", "closeness"), [1_000_000, 4_000_000, 9_000_000]),
        ([DATE * 1_000, DATE * 1_000 + 7], TimeReading("ms", "size"), [DATE * SECOND, DATE * SECOND + 7_000_000]),
        (
            ["2026-11-18T09:22:14.123456789+01:00", "2026-11-18 08:22:15"],
            TimeReading(),
            [1_794_990_134_123_456_789, 1_794_990_135_000_000_000],
        ),
    ],
)
def test_what_members_are_called_does_not_decide_how_times_are_read(
    tmp_path: Path, member: object, stamps: list[Any], said: TimeReading, expected: list[int]
) -> None:
    totals, times = read(tmp_path, records("at", stamps, member), make_mapping({"columns": {"time_ns": "at"}}, "here"))
    assert (totals.times, totals.quarantined, times) == (said, {}, expected)
    assert bool(totals.times.words()) == bool(said.by)


@pytest.mark.parametrize(
    ("suffix", "kind"),
    [("csv", "text"), ("jsonl", "text"), *(("parquet", kind) for kind in ("text", "s", "ms", "us", "ns", "us UTC"))],
)
def test_moments_are_times_to_both_checkers(tmp_path: Path, suffix: str, kind: str) -> None:
    texts = ["2026-11-18T08:22:14", "2026-11-18T08:22:15Z", "2026-11-18 10:22:16.5+0200", None, "9999-12-31T00:00:00Z"]
    if kind != "text":
        unit, _, zone = kind.partition(" ")
        whole = pa.array([1_794_990_134, 1_794_990_135, 1_794_990_136, None, 253_402_214_400])
        scale = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1}[unit]
        stamps: pa.Array = pc.multiply(whole, scale).cast(pa.timestamp(unit, zone or None))
    else:
        stamps = pa.array(texts)
    table = pa.table(
        {
            "run": ["r"] * 5, "member": [1] * 5, "step": [1, 2, 3, 4, 5], "event": ["send"] * 5, "sender": [1] * 5,
            "seq": [1, 2, 3, 4, 5], "time_ns": stamps,
        }
    )  # fmt: skip
    file = tmp_path / f"t.{suffix}"
    if suffix == "csv":
        pa.csv.write_csv(table, file)
    elif suffix == "jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    else:
        pq.write_table(table, file)
    totals = ingest(Inline(), str(file), tmp_path / "layout")
    found = naive_read(file)
    layout = TraceLayout(tmp_path / "layout")
    times = layout.read(layout.units_of(0)[0], ("time_ns",))["time_ns"].tolist()
    assert [NULL_TIME if event.time_ns is None else event.time_ns for event in found.events] == times
    assert sum(totals.quarantined.values()) == len(found.unreadable) == (kind != "ns")  # the year 9999 is too far
    if kind == "text":
        first = 1_794_990_134 * SECOND
        assert times == [first, first + SECOND, first + 5 * SECOND // 2, NULL_TIME]
