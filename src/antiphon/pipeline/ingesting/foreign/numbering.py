"""Names and ids become numbers: a member by its name, a message by its author's first `send` of it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antiphon.pipeline.checking.brokers import covers
from antiphon.pipeline.columns import DELIVER, RECEIVE, SEND, Array
from antiphon.pipeline.ingesting.foreign.form import FROM_NOW, IF_SENT, LogForm
from antiphon.pipeline.kernels import number_by_owner
from antiphon.trace.schema import ACKNOWLEDGED, BROKER_COLUMNS, EVENTS, SUBSCRIBED, SUBSCRIBED_LATE

UNKNOWN_AUTHOR = "(unknown author)"
ROW_BITS = 40  # of a place: below the number of its file
CODED = ["run", "member", "event", "sender", "detail", "topic", "partition", "group"]  # columns with few distinct texts
_TEXT_CODE = pa.dictionary(pa.int32(), pa.string())
FOREIGN_SCHEMA = pa.schema(
    [
        ("run", _TEXT_CODE),
        ("member", _TEXT_CODE),
        ("event", _TEXT_CODE),
        ("sender", _TEXT_CODE),
        ("id", pa.string()),
        ("step", pa.int64()),
        ("time_ns", pa.int64()),
        ("view", pa.int64()),
        ("bytes", pa.int64()),
        ("members", pa.list_(pa.string())),
        ("detail", _TEXT_CODE),
        ("topic", _TEXT_CODE),
        ("partition", _TEXT_CODE),
        ("group", _TEXT_CODE),
        ("redelivered", pa.bool_()),
        ("partition_offset", pa.int64()),
        ("span", pa.string()),  # the operation's own id
        ("about", pa.string()),  # the operation that a message is known by
        ("channel", _TEXT_CODE),  # over which it was published
        ("tag", pa.int64()),  # its number there, or that which an acknowledgment names
        ("place", pa.int64()),  # file and row
    ]
)


def log_name(topic: str | None, partition: str | None) -> str:
    """Name the log itself, where it stands for a sender that nobody knows."""
    where = topic or "log"
    return where if partition is None else f"{where}/{partition}"


def number_names(names: Collection[str], given: dict[str, int]) -> dict[str, int]:
    """Give every name a number: those that are numbers keep theirs if all are, others go by their order from 1 on."""
    if all(number_said(name) is not None for name in names) and not given:
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


def number_said(name: str) -> int | None:
    """Return the number that a name is, None if it is none."""
    return int(name) if name.lstrip("-").isdigit() and -(1 << 31) <= int(name) < 1 << 31 else None


def number_run(given: list[pa.Table], form: LogForm, names: dict[str, int]) -> pa.Table:
    """Return one run's rows with the trace's columns, in order of (member, step); the list of one is emptied.

    A large run fills much of a task's memory, so that nobody is to keep the rows as they were.
    """
    rows = _in_order(given, form, names)
    rows = _with_ids(rows)
    rows = _with_acknowledgments(_with_beginnings(rows))
    event, ranked = _deliveries(rows, form), RankedNames(names)
    about = pc.is_valid(rows["id"]).to_numpy(zero_copy_only=False)
    sender, seq = np.zeros(len(about), np.int32), np.zeros(len(about), np.int64)
    if about.all():
        sender, seq = _messages(rows, event == SEND, form, ranked)
    elif about.any():
        part, sends = rows.filter(pa.array(about)).combine_chunks(), event[about] == SEND
        sender[about], seq[about] = _messages(part, sends, form, ranked)
    columns: dict[str, Any] = {
        "run": rows["run"],
        "member": pa.array(ranked.numbers[ranked.of(rows["member"])]),
        "step": rows["step"],
        "time_ns": rows["time_ns"],
        "event": pa.DictionaryArray.from_arrays(pa.array(event), pa.array(EVENTS, pa.string())),
        "sender": pa.array(sender, mask=~about),
        "seq": pa.array(seq, mask=~about),
        "view": rows["view"],
        "bytes": rows["bytes"],
        "members": _member_lists(rows["members"], names),
        "detail": rows["detail"],
    }
    return pa.table(columns | {name: rows[name] for name in BROKER_COLUMNS})


def _deliveries(rows: pa.Table, form: LogForm) -> Array:
    """Return the events as codes; where nobody logs deliveries apart from receipts, a receipt is a delivery."""
    code, words = _codes(rows["event"])
    event: Array = np.array([EVENTS.index(word) for word in words.to_pylist()], np.int8)[code]
    received = event == RECEIVE
    if not received.any():
        return event
    who = _codes(rows["member"])[0] if form.receipts == "member" else np.zeros(len(event), np.int32)
    delivers = np.zeros(int(who.max()) + 1, bool)
    delivers[who[event == DELIVER]] = True
    event[received & ~delivers[who]] = DELIVER
    return event


def _in_order(given: list[pa.Table], form: LogForm, names: dict[str, int]) -> pa.Table:
    """Put rows in order of (member, step); steps are as logged if each row has one, else positions."""
    rows = given[0]
    who = RankedNames(names).of(rows["member"])
    stepped = rows["step"].null_count == 0
    if stepped:
        order = np.lexsort((rows["step"].to_numpy(), who))
    else:
        place = rows["place"].to_numpy()
        if (place[1:] > place[:-1]).all():
            order = np.argsort(who, kind="stable")
        else:
            order = np.argsort(place, kind="stable")
            order = order[np.argsort(who[order], kind="stable")]
        if form.order == "time":
            time = pc.fill_null(rows["time_ns"], np.iinfo(np.int64).max).to_numpy()[order]
            _sort_stretches(order, who[order], time)
    dropped = {"place", "channel", "tag"} | (
        {"span"} if rows["about"].null_count == len(rows) else set()
    )  # nobody refers to a span
    del rows
    columns = _taken(given, pa.array(order), dropped)
    if not stepped:
        columns["step"] = pa.array(np.arange(1, len(order) + 1))
    return pa.table(columns)


def _taken(given: list[pa.Table], order: pa.Array, dropped: set[str]) -> dict[str, pa.Array]:
    """Take the columns of a table in an order, letting go of each as soon as it is done."""
    table = given.pop()
    columns = {}
    for name in table.column_names:
        column = table[name]
        table = table.drop_columns([name])
        if name in dropped or column.null_count == len(column):
            columns[name] = pa.nulls(len(column), column.type)
            continue
        if name == "id":  # while what is about one message still stands close together
            column = column.dictionary_encode()
        columns[name] = column.combine_chunks().take(order)
    return columns


def _sort_stretches(order: Array, who: Array, time: Array) -> None:
    """Put each member's part of an order in order of time; most logs are already."""
    late = np.flatnonzero((time[1:] < time[:-1]) & (who[1:] == who[:-1]))
    for one in np.unique(who[late]).tolist():
        part = slice(*np.searchsorted(who, [one, one + 1]).tolist())
        order[part] = order[part][np.argsort(time[part], kind="stable")]


def _with_ids(rows: pa.Table) -> pa.Table:
    """Let an operation that refers to another be about its message: one that sends, or one that refers to such."""
    if rows["about"].null_count == len(rows):
        return rows
    rows = rows.set_column(rows.schema.get_field_index("id"), "id", rows["id"].cast(pa.string()))
    ids, about, sends = rows["id"], rows["about"], pc.equal(rows["event"].cast(pa.string()), "send")
    for chosen in (sends, pc.invert(sends)):  # an operation on what was received refers to the receipt
        known = rows.filter(pc.and_(chosen, pc.is_valid(rows["span"])))
        at = pc.index_in(about, known["span"].combine_chunks())
        ids = pc.coalesce(known["id"].combine_chunks().take(at.combine_chunks()), ids) if len(known) else ids
        rows = rows.set_column(
            rows.schema.get_field_index("id"), "id", pc.if_else(pc.is_valid(rows["id"]), ids, rows["id"])
        )
    return rows


def _with_beginnings(rows: pa.Table) -> pa.Table:
    """Say of subscriptions to what comes from now on whether anything came before: only then do they begin late."""
    code, known = _codes(rows["detail"])
    now = code == (known.to_pylist().index(FROM_NOW) if FROM_NOW in known.to_pylist() else -2)
    if not now.any():
        return rows
    words = rows["detail"].cast(pa.string())
    events, topics = rows["event"].cast(pa.string()), rows["topic"].cast(pa.string())
    sends = pa.table({"topic": topics, "time_ns": rows["time_ns"]}).filter(
        pc.and_(pc.equal(events, "send"), pc.is_valid(topics))
    )
    first = sends.group_by("topic").aggregate([("time_ns", "min")]).to_pylist()
    said = words.to_pylist()
    for at in np.flatnonzero(now).tolist():
        topic, time = topics[at].as_py(), rows["time_ns"][at].as_py()
        before = (one["time_ns_min"] for one in first if topic is not None and covers(topic, one["topic"]))
        late = any(time is not None and sent is not None and sent < time for sent in before)
        said[at] = SUBSCRIBED_LATE if late else SUBSCRIBED
    return rows.set_column(rows.schema.get_field_index("detail"), "detail", pa.array(said, pa.string()))


def _with_acknowledgments(rows: pa.Table) -> pa.Table:
    """Let what a member says of its own messages be the broker's acknowledgments, and leave out what others say so."""
    code, known = _codes(rows["detail"])
    words = known.to_pylist()
    if IF_SENT not in words:
        return rows
    said = code == words.index(IF_SENT)
    who, ids = _codes(rows["member"])[0].astype(np.int64), _codes(rows["id"])[0]
    pair = who * (int(ids.max(initial=0)) + 1) + ids
    sends = pc.equal(rows["event"].cast(pa.string()), "send").to_numpy(zero_copy_only=False)
    kept = ~said | np.isin(pair, pair[sends])
    words = [ACKNOWLEDGED if word == IF_SENT else word for word in words]
    detail = pa.array([*words, None], pa.string()).take(pa.array(np.where(code < 0, len(words), code)))
    rows = rows.set_column(rows.schema.get_field_index("detail"), "detail", detail)
    return rows.filter(pa.array(kept)).combine_chunks()


def _member_lists(lists: pa.ChunkedArray, names: dict[str, int]) -> pa.Array:
    if lists.null_count == len(lists):
        return pa.nulls(len(lists), pa.list_(pa.int32()))
    found = [None if one is None else [names[name] for name in one] for one in lists.to_pylist()]
    return pa.array(found, pa.list_(pa.int32()))


def _codes(column: pa.ChunkedArray) -> tuple[Array, pa.Array]:
    """Texts as codes, -1 where there is none, and the texts in order of their first appearance."""
    encoded = column.combine_chunks().dictionary_encode()
    encoded = encoded.chunk(0) if isinstance(encoded, pa.ChunkedArray) else encoded
    codes: Array = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return codes, encoded.dictionary


class RankedNames:
    """The numbers of all names, in order: rows name one by its rank, as few ranks take few bits and sort faster."""

    def __init__(self, names: dict[str, int]) -> None:
        self.names = names
        self.numbers = np.array(sorted({*names.values()}), np.int32)
        self._kind = np.uint16 if len(self.numbers) < 1 << 16 else np.int32

    def of(self, column: pa.ChunkedArray) -> Array:
        """Return the rank of each row's name; 0 where there is none."""
        codes, texts = _codes(column)
        numbers = [self.names.get(name, 0) for name in texts.to_pylist()]  # a text may be one that no row has any more
        ranks = np.searchsorted(self.numbers, numbers)
        found: Array = np.append(ranks, 0).astype(self._kind)[codes]
        return found


def _messages(rows: pa.Table, sends: Array, form: LogForm, ranked: RankedNames) -> tuple[Array, Array]:
    """Return the sender and the number of each row's message.

    Numbers go by each author's first sendings, in order; then come those that nobody sent, as far as the log says.
    """
    numbers = ranked.numbers
    if form.sends == "unrecorded":
        return _of_logs(rows, rows["id"].to_pylist(), form, ranked.names)
    said, known = ranked.of(rows["sender"]), pc.is_valid(rows["sender"]).to_numpy(zero_copy_only=False)
    if known.all() and form.ids == "message" and (counts := _counts(rows["id"])) is not None:
        return numbers[said], counts + 1 - form.numbers_from
    code, texts = _codes(_within_logs(rows) if form.ids == "log" else rows["id"])
    sent = np.flatnonzero(sends)
    sender = ranked.of(rows["member"])[sent]
    unknown = np.searchsorted(numbers, ranked.names[UNKNOWN_AUTHOR])
    author_of = np.full(len(texts), unknown, said.dtype)
    author_of[code[sent][::-1]] = sender[::-1]  # of several who send one id the first
    author = author_of[code]
    author[known] = said[known]
    seq = np.empty(len(code), np.int64)
    if not number_by_owner(code, author, code[sent], sender, len(texts), len(numbers), seq):
        seq = _number_pairs(code, author, code[sent], sender, len(texts))
    return numbers[author], seq


def _number_pairs(code: Array, owner: Array, sent: Array, sender: Array, texts: int) -> Array:
    """Number the ids of each owner where some id has several: first what was sent, then the others as they come."""
    key = np.concatenate((sender, owner)).astype(np.int64) * texts + np.concatenate((sent, code))
    encoded = pa.array(key).dictionary_encode()  # by first appearance
    of_key = encoded.dictionary.to_numpy() // max(1, texts)
    by_owner = np.argsort(of_key, kind="stable")
    number = np.empty(len(of_key), np.int64)
    first = np.searchsorted(of_key[by_owner], of_key[by_owner])
    number[by_owner] = np.arange(len(of_key)) - first + 1
    seq: Array = number[encoded.indices.to_numpy()[len(sent) :]]
    return seq


def _within_logs(rows: pa.Table) -> pa.ChunkedArray:
    """Return ids that are told apart by their topic and partition."""
    topics, partitions = (rows[name].cast(pa.string()) for name in ("topic", "partition"))
    partition = pc.if_else(
        pc.is_valid(partitions), pc.binary_join_element_wise("/", pc.fill_null(partitions, ""), ""), ""
    )
    ids = rows["id"].cast(pa.string())
    return pc.binary_join_element_wise(pc.fill_null(topics, "log"), partition, ids, "/")


def _counts(ids: pa.ChunkedArray) -> Array | None:
    """Return ids as numbers, if all are."""
    code, texts = _codes(ids)
    if not pc.all(pc.match_substring_regex(texts, r"^[0-9]{1,18}$")).as_py():
        return None
    found: Array = texts.cast(pa.int64()).to_numpy()[code]
    return found


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
