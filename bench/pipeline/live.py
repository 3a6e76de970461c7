"""How many events a second `watch` judges and `measure` measures, and what `watch` keeps, on Spark.

    python bench/pipeline/live.py OUT --events 4_000_000 --members 16 --files 32

The trace is that of `generate.py`, cut into the small files that members write as they go; with `--batches` the watch
reads them in so many batches. Every message depends on the whole round before it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parent))
from generate import generate


def cut(trace: Path, live: Path, files: int) -> int:
    """Cut every member's log into so many files, all members' first ones before all second ones."""
    source = pq.ParquetFile(trace / "events.parquet")
    logs = {}
    for group in range(source.num_row_groups):
        rows = source.read_row_group(group)
        logs.setdefault(rows["member"][0].as_py(), []).append(rows)
    live.mkdir(parents=True)
    moment = 1_600_000_000
    for number in range(files):
        for member, groups in logs.items():
            rows = groups[0]
            first, last = rows.num_rows * number // files, rows.num_rows * (number + 1) // files
            path = live / f"{member}-{number:06}.parquet"
            pq.write_table(rows.slice(first, last - first), path)
            moment += 1
            os.utime(path, (moment, moment))
    return len(logs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--events", type=int, default=4_000_000)
    parser.add_argument("--members", type=int, default=16)
    parser.add_argument("--files", type=int, default=8, help="of each member")
    parser.add_argument("--batches", type=int, default=4)
    args = parser.parse_args()
    shutil.rmtree(args.out, ignore_errors=True)

    from antiphon.pipeline.ingesting import ingest
    from antiphon.pipeline.measuring import measure_layout
    from antiphon.pipeline.results import WatchCommit
    from antiphon.pipeline.session import open_session
    from antiphon.pipeline.watch import DirectoryWatch

    # one member's log must fit into one row group, so that it can be cut
    assert args.events // args.members < 1 << 20, "fewer events or more members, please"
    events = generate(args.out / "trace", args.events, args.members, "total", interleave=False)
    cut(args.out / "trace", args.out / "live", args.files)
    session = open_session("local[2]")
    told: list[tuple[WatchCommit, float]] = []
    for name in ("warm", "watch"):  # the first time the workers start and load what was compiled
        told.clear()
        watcher = DirectoryWatch(
            session,
            str(args.out / "live"),
            str(args.out / name),
            lambda now, alarms, seconds, files: told.append((now, seconds)),
            files_max=args.members * args.files // args.batches,
        )
        watcher.run(once=True)
        final = watcher.conclude()
    assert set(final.verdicts().values()) == {"holds"}, final.verdicts()
    assert final.events == events
    print(f"watch: {events:,} events, n = {args.members}, {len(told)} batches")
    for now, seconds in told:
        print(f"  batch {now.batch}: {now.events_per_s:,.0f} events/s ({seconds:.2f} s), {now.live:,} messages kept")
    state = sum(file.stat().st_size for file in (args.out / "watch" / "state").iterdir())
    print(f"  over all: {events / sum(seconds for _, seconds in told):,.0f} events/s; state {state / 1024:,.0f} KiB")
    begun = time.monotonic()
    totals = ingest(session, str(args.out / "trace"), args.out / "layout")
    surveyed = time.monotonic()
    measure_layout(session, args.out / "layout", totals, args.out / "tables", args.out / "work")
    ended = time.monotonic()
    print(f"measure: survey {surveyed - begun:.1f} s, measure {ended - surveyed:.1f} s", end="")
    print(f" ({events / (ended - begun):,.0f} events/s)")
    session.stop()


if __name__ == "__main__":
    main()
