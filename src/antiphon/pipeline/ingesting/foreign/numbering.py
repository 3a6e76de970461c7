"""Names and ids become numbers: a member by its name, a message by its author's first `send` of it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antiphon.pipeline.columns import Array
from antiphon.pipeline.ingesting.foreign.form import LogForm

UNKNOWN_AUTHOR = "(unknown author)"
FOREIGN_SCHEMA = pa.schema(
    [
        ("run", pa.string()),
        ("member", pa.string()),
        ("event", pa.string()),
        ("sender", pa.string()),
        ("id", pa.string()),
        ("step", pa.int64()),
        ("time_ns", pa.int64()),
        ("view", pa.int64()),
        ("bytes", pa.int64()),
        ("members", pa.list_(pa.string())),
        ("detail", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.string()),
        ("group", pa.string()),
        ("redelivered", pa.bool_()),
        ("place", pa.int64()),  # file and row
    ]
)


def log_name(topic: str | None, partition: str | None) -> str:
    """Name the log itself, where it stands for a sender that nobody knows."""
    where = topic or "log"
    return where if partition is None else f"{where}/{partition}"


def number_names(names: Collection[str], given: dict[str, int]) -> dict[str, int]:
    """Give every name a number: those that are numbers keep theirs if all are, others go by their order from 1 on."""
    if all(_is_number(name) for name in names) and not given:
        return {name: int(name) for name in names}
    numbers = dict(given)
    taken = {*given.values()}
    fresh = 0
    for name in sorted(names):
        if name not in numbers:
            fresh += 1
            while fresh in taken:
                fresh += 1
            numbers[name] = fresh
    return numbers


def _is_number(name: str) -> bool:
    return name.lstrip("-").isdigit() and -(1 << 31) <= int(name) < 1 << 31


def number_run(rows: pa.Table, form: LogForm, names: dict[str, int]) -> pa.Table:
    """Return one run's rows with the trace's columns."""
    rows = _in_order(rows, form)
    events = _with_deliveries(rows["event"].to_pylist())
    member = _numbers(rows["member"], names)
    about = pc.is_valid(rows["id"]).to_numpy(zero_copy_only=False)
    sender, seq = np.zeros(len(events), np.int64), np.zeros(len(events), np.int64)
    if about.any():
        where = np.flatnonzero(about)
        part = rows.take(pa.array(where))
        kinds = np.array(events, object)[where]
        sender[where], seq[where] = _messages(part, kinds, member[where], form, names)
    members = [None if one is None else [names[name] for name in one] for one in rows["members"].to_pylist()]
    columns: dict[str, Any] = {
        "run": rows["run"],
        "member": pa.array(member, pa.int32()),
        "step": rows["step"],
        "time_ns": rows["time_ns"],
        "event": pa.array(events, pa.string()),
        "sender": pa.array(sender, pa.int32(), mask=~about),
        "seq": pa.array(seq, pa.int64(), mask=~about),
        "view": rows["view"],
        "bytes": rows["bytes"],
        "members": pa.array(members, pa.list_(pa.int32())),
        "detail": rows["detail"],
        "message_id": rows["id"],
    }
    return pa.table(columns | {name: rows[name] for name in ("topic", "partition", "group", "redelivered")})


def _with_deliveries(events: list[str]) -> list[str]:
    """Where nobody logs deliveries apart from receipts, a receipt is a delivery."""
    if "receive" in events and "deliver" not in events:
        return ["deliver" if event == "receive" else event for event in events]
    return events


def _in_order(rows: pa.Table, form: LogForm) -> pa.Table:
    """Put each member's rows in order; their steps are as logged if each has one, else their positions."""
    if rows["step"].null_count == 0:
        return rows
    keys = ["member", "time_ns", "place"] if form.order == "time" else ["member", "place"]
    rows = rows.sort_by([(key, "ascending") for key in keys]).combine_chunks()
    return rows.set_column(rows.schema.get_field_index("step"), "step", pa.array(np.arange(1, len(rows) + 1)))


def _numbers(column: pa.ChunkedArray, names: dict[str, int]) -> Array:
    encoded = column.combine_chunks().dictionary_encode()
    encoded = encoded.chunk(0) if isinstance(encoded, pa.ChunkedArray) else encoded
    table = np.array([*(names[name] for name in encoded.dictionary.to_pylist()), 0], np.int64)
    found: Array = table[encoded.indices.fill_null(len(table) - 1).to_numpy(zero_copy_only=False)]
    return found


def _messages(rows: pa.Table, kinds: Array, member: Array, form: LogForm, names: dict[str, int]) -> tuple[Array, Array]:
    """Return the sender and the number of each row's message."""
    ids = rows["id"].to_pylist()
    if form.sends == "unrecorded":
        return _of_logs(rows, ids, form, names)
    said = _numbers(rows["sender"], names)
    if rows["sender"].null_count == 0 and form.ids == "message" and all(_is_count(one) for one in ids):
        return said, np.array([int(one) + 1 - form.numbers_from for one in ids], np.int64)
    if form.ids == "log":
        logs = zip(rows["topic"].to_pylist(), rows["partition"].to_pylist(), ids, strict=True)
        ids = [f"{log_name(topic, partition)}/{one}" for topic, partition, one in logs]
    step = rows["step"].to_numpy()
    known = pc.is_valid(rows["sender"]).to_numpy(zero_copy_only=False)
    sends = np.flatnonzero(kinds == "send")
    sends = sends[np.lexsort((step[sends], member[sends]))]
    by_author: dict[tuple[int, str], int] = {}
    author_of: dict[str, int] = {}
    count: dict[int, int] = {}
    for at in sends.tolist():
        author = int(member[at])
        if (author, ids[at]) not in by_author:
            count[author] = by_author[author, ids[at]] = count.get(author, 0) + 1
            author_of.setdefault(ids[at], author)
    stranger = names[UNKNOWN_AUTHOR]
    sender, seq = np.zeros(len(ids), np.int64), np.zeros(len(ids), np.int64)
    for at in np.lexsort((step, member)).tolist():
        one = ids[at]
        author = int(said[at]) if known[at] else author_of.get(one, stranger)
        if (author, one) not in by_author:  # never sent, as far as the log says
            count[author] = by_author[author, one] = count.get(author, 0) + 1
        sender[at], seq[at] = author, by_author[author, one]
    return sender, seq


def _is_count(text: str) -> bool:
    return text.isdigit() and len(text) < 19


def _of_logs(rows: pa.Table, ids: list[str], form: LogForm, names: dict[str, int]) -> tuple[Array, Array]:
    """Let each log, a topic or a partition of it, be the sender of what is read from it, in the order of its ids."""
    logs = [
        log_name(topic, partition)
        for topic, partition in zip(rows["topic"].to_pylist(), rows["partition"].to_pylist(), strict=True)
    ]
    sender = np.array([names[name] for name in logs], np.int64)
    if all(_is_count(one) for one in ids):
        return sender, np.array([int(one) + 1 - form.numbers_from for one in ids], np.int64)
    by_log: dict[str, dict[str, int]] = {}
    for name, one in zip(logs, ids, strict=True):
        by_log.setdefault(name, {}).setdefault(one, 0)
    for of_log in by_log.values():
        if all(part.isdigit() for one in of_log for part in one.split("-")):
            in_order = sorted(of_log, key=lambda one: [int(part) for part in one.split("-")])  # as Redis numbers them
        else:
            in_order = list(of_log)
        of_log.update({one: number for number, one in enumerate(in_order, 1)})
    return sender, np.array([by_log[name][one] for name, one in zip(logs, ids, strict=True)], np.int64)
