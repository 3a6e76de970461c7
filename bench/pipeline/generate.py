"""Synthetic traces of any size, made fast: rounds in which every member sends one message and delivers everybody's.

    python bench/pipeline/generate.py OUT --events 10_000_000 --members 16 --order total

`total`: all deliver each round in one random order, so all eight guarantees hold. `causal`: each delivers the round in
an order of its own, so total order is violated. Every message depends on the whole round before it: the most direct
predecessors that so many members can have. `--interleave` writes the rows in the order of time instead of by member.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

EVENTS = ["send", "deliver", "stable", "view", "end"]
SEND, DELIVER, STABLE, VIEW, END = range(len(EVENTS))
ROUND_NS = 1_000_000


def member_rows(member: int, members: int, rounds: int, order: np.ndarray) -> dict[str, np.ndarray]:
    """One member's log: install a view, then per round send, deliver all, mark what is two rounds old; and end."""
    width = members + 2
    event = np.full((rounds, width), DELIVER, np.int8)
    sender = np.empty((rounds, width), np.int32)
    seq = np.empty((rounds, width), np.int64)
    number = np.arange(1, rounds + 1)
    event[:, 0], sender[:, 0] = SEND, member
    sender[:, 1:-1] = order
    seq[:] = number[:, None]
    event[:, -1], sender[:, -1] = STABLE, number % members
    seq[:, -1] = np.maximum(number - 2, 1)
    time = number[:, None] * ROUND_NS + np.arange(width) * (ROUND_NS // (2 * width))
    columns = {"event": event.ravel(), "sender": sender.ravel(), "seq": seq.ravel(), "time_ns": time.ravel()}
    keep = np.ones(rounds * width, bool)
    keep[width - 1 : 2 * width : width] = False  # nothing is two rounds old in the first two
    columns = {name: values[keep] for name, values in columns.items()}
    half = (rounds // 2) * width - 2
    for at, kind, time_ns in (
        (len(columns["event"]), END, time[-1, -1] + 1),
        (half, VIEW, time[rounds // 2, 0]),
        (0, VIEW, 0),
    ):
        for name, value in (("event", kind), ("sender", -1), ("seq", -1), ("time_ns", time_ns)):
            columns[name] = np.insert(columns[name], at, value)
    return columns


def table(columns: dict[str, np.ndarray], member: int, members: int) -> pa.Table:
    rows = len(columns["event"])
    nothing = columns["sender"] < 0
    view = np.cumsum(columns["event"] == VIEW)
    lists = [list(range(members)) if kind == VIEW else None for kind in columns["event"]] if rows < 1000 else None
    if lists is None:
        offsets = np.cumsum(np.concatenate(([0], np.where(columns["event"] == VIEW, members, 0)))).astype(np.int32)
        values = np.tile(np.arange(members, dtype=np.int32), int((columns["event"] == VIEW).sum()))
        lists_array = pa.ListArray.from_arrays(
            pa.array(offsets), pa.array(values), mask=pa.array(columns["event"] != VIEW)
        )
    else:
        lists_array = pa.array(lists, pa.list_(pa.int32()))
    return pa.table(
        {
            "run": pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int8)), pa.array(["bench"])),
            "member": pa.array(np.full(rows, member, np.int32)),
            "step": pa.array(np.arange(1, rows + 1, dtype=np.int64)),
            "time_ns": pa.array(columns["time_ns"]),
            "event": pa.DictionaryArray.from_arrays(pa.array(columns["event"]), pa.array(EVENTS)),
            "sender": pa.array(columns["sender"], mask=nothing),
            "seq": pa.array(columns["seq"], mask=nothing),
            "view": pa.array(view),
            "members": lists_array,
        }
    )


# Numbers as differences: a quarter of the bytes of the usual encoding, so that the largest traces fit on a disk.
COMPACT = {
    "use_dictionary": ["run", "member", "event", "sender", "view", "members.list.element"],
    "column_encoding": dict.fromkeys(("step", "time_ns", "seq"), "DELTA_BINARY_PACKED"),
    "compression": "none",
}


def generate(
    out: Path,
    events: int,
    members: int,
    order: str,
    interleave: bool,
    seed: int = 1,
    compact: bool = False,
    cut_short: bool = False,
) -> int:
    """Write a trace of about so many events; return how many."""
    out.mkdir(parents=True, exist_ok=True)
    rounds = max(4, events // (members * (members + 2)))
    rng = np.random.default_rng(seed)
    common = rng.permuted(np.tile(np.arange(members, dtype=np.int32), (rounds, 1)), axis=1)
    (out / "run.json").write_text(
        json.dumps({"ordering": order, "stability": "train", "views": True, "clock": "global", "seed": seed})
    )
    written = 0
    pieces = []
    writer = None
    options: dict[str, Any] = COMPACT if compact else {}
    columns: dict[str, np.ndarray] = {}
    for member in range(members):
        if order == "total" and columns:  # but for who sends, all logs are the same
            columns["sender"] = np.where(columns["event"] == SEND, np.int32(member), columns["sender"])
        else:
            own = common if order == "total" else rng.permuted(common, axis=1)
            columns = member_rows(member, members, rounds, own)
        rows = table(columns, member, members)
        if cut_short and member == members - 1:
            rows = rows.slice(0, rows.num_rows * 3 // 4)
        written += rows.num_rows
        if interleave:
            pieces.append(rows)
            continue
        if writer is None:
            writer = pq.ParquetWriter(out / "events.parquet", rows.schema, **options)
        writer.write_table(rows, row_group_size=1 << 20)
    if interleave:
        whole = pa.concat_tables(pieces)
        in_time = whole.take(np.argsort(whole["time_ns"].to_numpy(), kind="stable"))
        pq.write_table(in_time, out / "events.parquet", **options)
    elif writer is not None:
        writer.close()
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--members", type=int, default=16)
    parser.add_argument("--order", choices=("total", "causal"), default="total")
    parser.add_argument("--interleave", action="store_true")
    parser.add_argument("--compact", action="store_true", help="numbers as differences: the largest fit on a disk")
    parser.add_argument("--cut-short", action="store_true", help="of the last member's log a quarter is missing")
    args = parser.parse_args()
    written = generate(
        args.out, args.events, args.members, args.order, args.interleave, compact=args.compact, cut_short=args.cut_short
    )
    print(written, "events")


if __name__ == "__main__":
    main()
