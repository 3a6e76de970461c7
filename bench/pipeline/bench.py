"""Our check beside DuckDB, Polars and Spark SQL on the same trace: events per CPU-second and peak memory.

    pip install duckdb polars
    python bench/pipeline/bench.py TRACE [--engine antiphon --engine duckdb ...] [--check causal ...]

Each (engine, check) runs in a process of its own. CPU seconds are those of the engine's work on the trace: for Antiphon
and Spark SQL the start of Spark is given apart. Memory is the peak of all processes together (proportional set size).
The rivals do less: their `total` compares positions, so it is right only if all deliver the same; their `causal`
compares vectors, so it is right only if fifo holds; and they give a count, where Antiphon gives witnesses.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from generate import generate
from whole_cost import sample

CHECKS = ("fifo", "agreement", "total", "causal", "all")
ENGINES = ("antiphon", "duckdb", "polars", "spark-sql")


class Watch:
    """Sums the memory of all processes of a session while they live."""

    def __init__(self, session: int) -> None:
        self.session = session
        self.peak_mib = 0.0
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self.done.wait(0.2):
            memory = sample(self.session, {})
            self.peak_mib = max(self.peak_mib, memory / 2**20)

    def stop(self) -> None:
        self.done.set()
        self.thread.join()


def cpu_of(process: int) -> float:
    """The CPU seconds that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run_antiphon(trace: Path, check: str) -> dict[str, Any]:
    """Our check on Spark; CPU seconds of the tasks, and of everything."""
    from antiphon.pipeline.checking import CheckOptions, check_layout
    from antiphon.pipeline.ingesting import ingest
    from antiphon.pipeline.session import Session, Work, open_session
    from antiphon.pipeline.store.layout import Totals
    from antiphon.trace.schema import GUARANTEES

    class Measured(Session):
        cpu = 0.0

        def each(self, tasks: int, work: Work, label: str) -> list[bytes]:
            results = super().each(tasks, Timed(work), label)
            self.cpu += sum(json.loads(result[:24]) for result in results)
            return [result[24:] for result in results]

    opened = open_session("local[2]")
    session = Measured(opened.spark, owned=True)
    guarantees = GUARANTEES if check == "all" else ("integrity", "agreement") if check == "agreement" else (check,)
    with tempfile.TemporaryDirectory() as scratch:
        small = Path(scratch) / "small"  # the first trace pays for workers, imports and loading compiled kernels
        generate(small, 300_000, 16, "total", interleave=False)
        ingest(session, str(small), small / "layout")
        check_layout(session, small / "layout", Totals(), small / "s", CheckOptions(guarantees=guarantees))
        session.cpu = 0.0
        before = time.monotonic()
        totals = ingest(session, str(trace), Path(scratch) / "layout")
        checked = check_layout(
            session, Path(scratch) / "layout", totals, Path(scratch) / "s", CheckOptions(guarantees=guarantees)
        )
    wall = time.monotonic() - before
    session.stop()
    found = {name: found.violations for name, found in checked.guarantees.items()}
    return {"events": totals.events, "cpu": session.cpu, "wall": wall, "found": found}


class Timed:
    """A task that says what CPU time it took."""

    def __init__(self, work: Any) -> None:
        self.work = work

    def __call__(self, number: int) -> bytes:
        before = time.process_time()
        result: bytes = self.work(number)
        return json.dumps(time.process_time() - before).ljust(24)[:24].encode() + result


def sql(check: str, members: int) -> str:
    """The check as SQL that DuckDB and Spark both take."""
    if check == "fifo":
        return """
            select count(*) from (select seq, max(seq) over (partition by member, sender order by step
                rows between unbounded preceding and 1 preceding) as highest from events where event = 'deliver')
            where seq < highest"""
    if check == "agreement":  # with integrity
        return f"""
            select count(*) from (select sender, seq, count(*) as n, count(distinct member) as m from events
                where event = 'deliver' group by sender, seq) d
            full join (select sender as s, seq as q, count(*) as k from events where event = 'send' group by 1, 2) s
            on d.sender = s.s and d.seq = s.q
            where n is null or k is null or n <> m or k <> 1 or m <> {members}"""
    if check == "total":
        return """
            select count(*) from (select place from (select sender, seq,
                row_number() over (partition by member order by step) as place from events where event = 'deliver')
                group by place having min(sender) <> max(sender) or min(seq) <> max(seq))"""
    # where each member delivers a message, side by side; a message waits for what its sender delivered since its
    # previous send, and of each sender only the last such message
    places = ", ".join(f"max(case when member = {i} then place end) as p{i}" for i in range(members))
    latest = ", ".join(f"max(p{i}) as x{i}" for i in range(members))
    late = " + ".join(f"(case when x{i} > p{i} then 1 else 0 end)" for i in range(members))
    return f"""
        with e as (select member, step, event, sender, seq from events where event in ('send', 'deliver')),
        n as (select member, event, sender, seq, row_number() over (partition by member order by step) as place,
            count(case when event = 'send' then 1 end) over (partition by member order by step
                rows between unbounded preceding and current row) as k from e),
        waits as (select s.member as ms, s.seq as mq, d.sender as ps, max(d.seq) as pq from n d
            join n s on s.member = d.member and s.event = 'send' and s.k = d.k + 1 where d.event = 'deliver'
            group by s.member, s.seq, d.sender),
        p as (select sender, seq, {places} from n where event = 'deliver' group by sender, seq),
        need as (select ms, mq, {latest} from waits join p on ps = sender and pq = seq group by ms, mq)
        select sum({late}) from need join p on ms = sender and mq = seq"""


def members_of(trace: Path) -> int:
    import pyarrow.parquet as pq

    return len(pq.ParquetFile(trace / "events.parquet").read_row_group(0, ["members"])["members"][0].as_py())


def rows_of(trace: Path) -> int:
    import pyarrow.parquet as pq

    return int(pq.ParquetFile(trace / "events.parquet").metadata.num_rows)


def run_duckdb(trace: Path, check: str) -> dict[str, Any]:
    import duckdb

    spill = tempfile.TemporaryDirectory(prefix="duckdb-")  # not in the present folder, where a kill would leave it
    connection = duckdb.connect(config={"threads": 2, "memory_limit": "8GB", "temp_directory": spill.name})
    connection.execute(f"create view events as select * from '{trace}/events.parquet'")
    before, cpu = time.monotonic(), time.process_time()
    found = connection.execute(sql(check, members_of(trace))).fetchone()
    return {
        "events": rows_of(trace),
        "cpu": time.process_time() - cpu,
        "wall": time.monotonic() - before,
        "found": found and found[0],
    }


def run_polars(trace: Path, check: str) -> dict[str, Any]:
    os.environ["POLARS_MAX_THREADS"] = "2"
    import polars as pl

    events = pl.scan_parquet(trace / "events.parquet").with_columns(pl.col("event").cast(pl.String))
    before, cpu = time.monotonic(), time.process_time()
    delivered = events.filter(pl.col("event") == "deliver").select("member", "sender", "seq")
    members = members_of(trace)
    if check == "fifo":  # the file is sorted by member and step
        late = delivered.select(pl.col("seq") < pl.col("seq").cum_max().over("member", "sender"))
        found = late.sum().collect().item()
    elif check == "agreement":
        counts = delivered.group_by("sender", "seq").agg(pl.len().alias("n"), pl.col("member").n_unique().alias("m"))
        sends = events.filter(pl.col("event") == "send").group_by("sender", "seq").agg(pl.len().alias("k"))
        joined = counts.join(sends, on=["sender", "seq"], how="full")
        wrong = pl.any_horizontal(
            pl.col("n").is_null(), pl.col("k").is_null(), pl.col("n") != pl.col("m"), pl.col("k") != 1
        )
        found = joined.filter(wrong | (pl.col("m") != members)).select(pl.len()).collect().item()
    elif check == "total":
        placed = delivered.with_columns(pl.int_range(pl.len()).over("member").alias("place"))
        spread = placed.group_by("place").agg(
            (pl.col("sender").min() != pl.col("sender").max()) | (pl.col("seq").min() != pl.col("seq").max())
        )
        found = spread.select(pl.col("sender").sum()).collect().item()
    else:
        seen = [
            pl.when((pl.col("event") == "deliver") & (pl.col("sender") == i))
            .then("seq")
            .otherwise(0)
            .cum_max()
            .over("member")
            .alias(f"v{i}")
            for i in range(members)
        ]
        vectors = events.filter(pl.col("event").is_in(["send", "deliver"])).select(
            "member", "event", "sender", "seq", *seen
        )
        joined = vectors.filter(pl.col("event") == "deliver").join(
            vectors.filter(pl.col("event") == "send"), on=["sender", "seq"], suffix="_sent"
        )
        late = pl.any_horizontal(pl.col(f"v{i}") < pl.col(f"v{i}_sent") for i in range(members))
        found = joined.filter(late).select(pl.len()).collect().item()
    return {
        "events": rows_of(trace),
        "cpu": time.process_time() - cpu,
        "wall": time.monotonic() - before,
        "found": found,
    }


def run_spark_sql(trace: Path, check: str) -> dict[str, Any]:
    """The SQL on Spark; the CPU is the JVM's, from before to after the query."""
    from antiphon.pipeline.session import open_session

    opened = open_session("local[2]", ["spark.driver.memory=6g"])
    spark = opened.spark
    spark.read.parquet(f"{trace}/events.parquet").createOrReplaceTempView("events")
    spark.sql("select count(*) from events").collect()
    jvm = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    before, cpu = time.monotonic(), cpu_of(jvm)
    found = spark.sql(sql(check, members_of(trace))).collect()[0][0]
    result = {
        "events": rows_of(trace),
        "cpu": cpu_of(jvm) - cpu,
        "wall": time.monotonic() - before,
        "found": found,
    }
    opened.stop()
    return result


RUN = {"antiphon": run_antiphon, "duckdb": run_duckdb, "polars": run_polars, "spark-sql": run_spark_sql}


def measured(trace: Path, engine: str, check: str, timeout: float) -> dict[str, Any]:
    """Run one check in a process of its own and watch it."""
    command = [sys.executable, __file__, str(trace), "--engine", engine, "--check", check, "--inside"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    watch = Watch(process.pid)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        watch.stop()
        return {"failed": f"more than {timeout:.0f} s", "peak_mib": watch.peak_mib}
    watch.stop()
    if process.returncode:
        return {"failed": err.decode().strip().splitlines()[-1][:100], "peak_mib": watch.peak_mib}
    return {**json.loads(out), "peak_mib": watch.peak_mib}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--engine", action="append", choices=ENGINES)
    parser.add_argument("--check", action="append", choices=CHECKS)
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        print(json.dumps(RUN[args.engine[0]](args.trace, args.check[0])))
        return
    print(f"| check | engine | M events / CPU-s | CPU s | wall s | peak MiB | found |\n|{'---|' * 7}")
    for check in args.check or CHECKS:
        for engine in args.engine or ENGINES:
            if check == "all" and engine != "antiphon":
                continue
            found = measured(args.trace, engine, check, args.timeout)
            if "failed" in found:
                print(f"| {check} | {engine} | - | - | - | {found['peak_mib']:.0f} | {found['failed']} |", flush=True)
                continue
            rate = found["events"] / found["cpu"] / 1e6
            numbers = f"{rate:.2f} | {found['cpu']:.2f} | {found['wall']:.1f} | {found['peak_mib']:.0f}"
            print(f"| {check} | {engine} | {numbers} | {found['found']} |", flush=True)


if __name__ == "__main__":
    main()
