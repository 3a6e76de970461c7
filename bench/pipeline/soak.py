"""A watch through thousands of restarts: what it keeps, what a batch costs, and whether it says what `check` says.

    python -m bench.pipeline.soak OUT --restarts 10_000 --silent 1_000
    python -m bench.pipeline.soak OUT --clients --restarts 10_000

Members die one after the other and come back as new incarnations; some die silently, and the last rows of their logs
are lost. With `--clients`, clients of a broker come, take some messages and leave. The watch reads one batch after the
other, in one process without Spark; then all of it is checked at once.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import sys
import time
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from antiphon.pipeline.checking import CheckOptions, check_layout
from antiphon.pipeline.ingesting import ingest
from antiphon.pipeline.inline import Inline
from antiphon.pipeline.results import WATCHED_GUARANTEES
from antiphon.pipeline.watch import DirectoryWatch
from antiphon.trace.event import Event
from antiphon.trace.schema import BROKER_GUARANTEES
from bench.pipeline.churn import Churn, Clients

COLUMNS = ("run", "member", "step", "time_ns", "event", "sender", "seq", "view", "members")
OF_BROKERS = ("detail", "topic", "group")
TYPES = {"members": pa.list_(pa.int32()), "member": pa.int32(), "sender": pa.int32()}
TYPES |= dict.fromkeys(OF_BROKERS, pa.string())
MESSAGES = 500  # of a batch of clients


def write(events: list[Event], path: Path, names: tuple[str, ...] = COLUMNS) -> None:
    """Write one batch as one file."""
    columns = {name: pa.array([getattr(event, name) for event in events], TYPES.get(name)) for name in names}
    pq.write_table(pa.table(columns), path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--restarts", type=int, default=10_000)
    parser.add_argument("--silent", type=int, default=1_000, help="deaths of which no log says anything")
    parser.add_argument("--members", type=int, default=6)
    parser.add_argument("--batch", type=int, default=50, help="restarts in a batch")
    parser.add_argument("--wrong", type=float, default=0.0, help="share of deliveries of a view that go wrong")
    parser.add_argument("--clients", action="store_true", help="clients of a broker that come and go")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    shutil.rmtree(args.out, ignore_errors=True)
    (args.out / "live").mkdir(parents=True)
    group = Churn(members=args.members, silent=1.1 * args.silent / args.restarts, wrong=args.wrong, seed=args.seed)
    clients = Clients(stay=20, lost=args.wrong, seed=args.seed)
    judged, columns = WATCHED_GUARANTEES, COLUMNS
    if args.clients:
        judged, columns = (*judged, *BROKER_GUARANTEES), (*columns, *OF_BROKERS)
    watch = DirectoryWatch(Inline(), str(args.out / "live"), str(args.out / "watch"), lambda *_: None, patience_s=2.0)
    watched = 0.0
    print(f"{'restarts':>8} {'silent':>6} {'events':>10} {'state':>9} {'live':>6} {'CPU-s a batch':>14}")
    for number in itertools.count():
        if (clients.gone if args.clients else group.deaths) >= args.restarts:
            break
        events = (
            clients.messages(MESSAGES) if args.clients else [row for rows in group.views(args.batch) for row in rows]
        )
        file = args.out / "live" / f"{number:06}.parquet"
        write(events, file, columns)
        begun = time.process_time()
        watch.batch([str(file)])
        took = time.process_time() - begun
        watched += took
        if number < 3 or number % 20 == 19:
            gone = clients.gone or group.deaths
            state = max((args.out / "watch" / "state").iterdir()).stat().st_size
            print(
                f"{gone:8,} {group.silent_deaths:6,} {watch.sum.events:10,} {state / 1024:7,.0f} K "
                f"{watch.sum.live:6,} {took:14.3f}",
                flush=True,
            )
    final = watch.conclude()
    print(f"watch: {watched:.1f} CPU-s; {final.verdicts()}")
    begun = time.process_time()
    totals = ingest(Inline(), str(args.out / "live"), args.out / "layout")
    options = CheckOptions(guarantees=judged, witnesses=0)
    whole = check_layout(Inline(), args.out / "layout", totals, args.out / "scratch", options)
    print(f"check: {time.process_time() - begun:.1f} CPU-s")
    equal = True
    for name, found in final.findings.items():
        seen = (final.verdicts()[name], found.examined, found.violations)
        expected = (whole.guarantees[name].verdict, whole.guarantees[name].examined, whole.guarantees[name].violations)
        equal = equal and seen == expected
        print(f"  {name}: {seen}{'' if seen == expected else f', but check says {expected}'}")
    print(
        msgspec.json.encode(
            {"restarts": clients.gone or group.deaths, "silent": group.silent_deaths, "equal": equal}
        ).decode()
    )
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
