"""Traces of many small runs, or of one run with many views: how fast `check` goes through them, all eight guarantees.

    python -m bench.pipeline.many OUT runs --count 10_000
    python -m bench.pipeline.many OUT views --count 4_000 --members 16

A small run has 12 events: two members install a view, each sends a message, both deliver both, mark one and end. With
`views`, everyone sends a message in each view and delivers everybody's, then a member leaves the view or comes back.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

NAMES = ("run", "member", "step", "time_ns", "event", "sender", "seq", "view", "members")
SCHEMA = pa.schema(
    [
        ("run", pa.string()),
        ("member", pa.int32()),
        ("step", pa.int64()),
        ("time_ns", pa.int64()),
        ("event", pa.string()),
        ("sender", pa.int32()),
        ("seq", pa.int64()),
        ("view", pa.int64()),
        ("members", pa.list_(pa.int32())),
    ]
)
Row = tuple[str, int, int, int, str, int | None, int | None, int, list[int] | None]


def small_runs(count: int) -> Iterator[Row]:
    """So many runs of 12 events."""
    for number in range(count):
        run = f"r{number:06}"
        for member in (1, 2):
            yield run, member, 1, 0, "view", None, None, 1, [1, 2]
            yield run, member, 2, 1, "send", member, 1, 1, None
            yield run, member, 3, 2, "deliver", 1, 1, 1, None
            yield run, member, 4, 3, "deliver", 2, 1, 1, None
            yield run, member, 5, 4, "stable", 1, 1, 1, None
            yield run, member, 6, 5, "end", None, None, 1, None


def many_views(count: int, members: int) -> Iterator[Row]:
    """One run with so many views: in every second one a member is missing, each in its turn."""
    logs: dict[int, list[Row]] = {member: [] for member in range(members)}
    seq = dict.fromkeys(logs, 0)
    for view in range(1, count + 1):
        away = (view // 2) % members if view % 2 == 0 else -1
        there = [member for member in logs if member != away]
        for member in there:
            seq[member] += 1
        for member in there:
            log, now = logs[member], view * 1000
            log.append(("views", member, len(log), now, "view", None, None, view, there))
            log.append(("views", member, len(log), now + 1, "send", member, seq[member], view, None))
            first = len(log)
            log.extend(
                ("views", member, first + at, now + 2 + at, "deliver", sender, seq[sender], view, None)
                for at, sender in enumerate(there)
            )
            log.append(("views", member, len(log), now + 100, "stable", there[0], seq[there[0]], view, None))
    for member, log in logs.items():
        log.append(("views", member, len(log), (count + 1) * 1000, "end", None, None, count, None))
        yield from log


def write(rows: Iterator[Row], folder: Path) -> int:
    """Write a trace."""
    folder.mkdir(parents=True)
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), SCHEMA, strict=True)]
    pq.write_table(pa.Table.from_arrays(columns, schema=SCHEMA), folder / "events.parquet")
    (folder / "run.json").write_text(json.dumps({"ordering": "abcast", "views": True, "clock": "global"}))
    return len(columns[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("what", choices=("runs", "views"))
    parser.add_argument("--count", type=int, default=4_000)
    parser.add_argument("--members", type=int, default=16)
    args = parser.parse_args()
    shutil.rmtree(args.out, ignore_errors=True)
    rows = small_runs(args.count) if args.what == "runs" else many_views(args.count, args.members)
    events = write(rows, args.out / "trace")

    from antiphon.pipeline.checking import CheckOptions, check_layout
    from antiphon.pipeline.ingesting import ingest
    from antiphon.pipeline.inline import Inline

    for attempt in ("cold", "warm"):  # the first time what was compiled is loaded
        out = args.out / attempt
        begun, clock = time.process_time(), time.monotonic()
        totals = ingest(Inline(2), str(args.out / "trace"), out / "layout")
        ingested = time.process_time()
        result = check_layout(Inline(2), out / "layout", totals, out / "scratch", CheckOptions())
        took = time.process_time() - begun
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{attempt}: {events:,} events in {took:.2f} CPU-s ({events / took / 1e6:.2f} M events per CPU-s; ingest "
            f"{ingested - begun:.2f}), {time.monotonic() - clock:.1f} s, {memory:,.0f} MiB"
        )
    print({name: (found.verdict, found.examined) for name, found in result.guarantees.items()})


if __name__ == "__main__":
    main()
