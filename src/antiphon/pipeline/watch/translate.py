"""The rows of another system's log, as they come: names and ids become numbers, also where a send comes later.

A message gets its number from its author's first send of it. What is delivered before its send was read has a
provisional number, and its row waits, as any delivery does; when the send comes, the row is given the number.
"""

from __future__ import annotations

import hashlib
import itertools
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from antiphon.pipeline.checking.brokers import covers
from antiphon.pipeline.columns import CODES, NO_OFFSET, NULL_TIME
from antiphon.pipeline.ingesting.foreign.form import FROM_NOW, IF_SENT, LogForm, offset_of
from antiphon.pipeline.ingesting.foreign.numbering import UNKNOWN_AUTHOR, log_name
from antiphon.pipeline.ingesting.foreign.settle import REPEATABLE, put_aside_again, settle
from antiphon.pipeline.reading.rows import UnreadableRow
from antiphon.pipeline.watch.consumers import BrokerWords
from antiphon.pipeline.watch.intake import NO_ONE, NewRows
from antiphon.pipeline.watch.spans import span_of
from antiphon.pipeline.watch.state import PROVISIONAL, Message, Translation, WatchedRun, WatchedView
from antiphon.trace.schema import ACKNOWLEDGED, BROKER_KINDS, SUBSCRIBED, SUBSCRIBED_LATE

RECENT_MAX: Final = 10_000  # records of a run that are known again if they are written twice
IDS_MAX: Final = 100_000  # of messages that are over; a delivery of one that came before these leaves integrity open


class Translated(NamedTuple):
    """What comes of a foreign log's rows."""

    rows: NewRows
    found: dict[Message, Message]  # messages that rows wait for, as they are known now
    bad: list[UnreadableRow]


def translate(run: WatchedRun, rows: pa.Table, form: LogForm, names: dict[str, int]) -> Translated:
    """Return a foreign log's rows as rows of a run."""
    known = run.translation
    rows, again = _without_recent(known, rows.sort_by("place"))
    rows, bad = settle(rows, known.tags if "tag" in form.columns else None)
    rows = _with_acknowledgments(run, rows.sort_by("place"), names)
    column: dict[str, list[Any]] = {name: rows[name].to_pylist() for name in rows.column_names}
    if known.stepped is None:
        known.stepped = rows["step"].null_count == 0
    column["event"] = _with_deliveries(run, column, form)
    _with_beginnings(run, column)
    member = [names[name] for name in column["member"]]
    messages, found = _messages(run, column, member, form, names)
    views: list[WatchedView] = []
    said: dict[BrokerWords, int] = {}
    fresh = NewRows(
        member=np.array(member, np.int64),
        step=_steps(run, column, member),
        code=np.array([CODES[event] for event in column["event"]], np.int64),
        sender=np.array([message[0] for message in messages], np.int64),
        seq=np.array([message[1] for message in messages], np.int64),
        time=np.array([NULL_TIME if time is None else time for time in column["time_ns"]], np.int64),
        view=np.array([_view(column, at, names, views) for at in range(len(member))], np.int64),
        words=np.array([_words(column, at, said) for at in range(len(member))], np.int64),
        offset=np.array([NO_OFFSET if one is None else one for one in column["partition_offset"]], np.int64),
        views=views,
        said=list(said),
    )
    _forget_ids(run)
    return Translated(fresh, found, again + bad)


def _without_recent(known: Translation, rows: pa.Table) -> tuple[pa.Table, list[UnreadableRow]]:
    """Leave out what an earlier batch has, word for word and with the same time; `settle` sees it within a batch."""
    if rows["time_ns"].null_count == len(rows) or not rows["step"].null_count:
        return rows, []
    before = set(known.recent)
    said = rows.drop_columns(["place"]).to_pylist()
    digests = [_digest(row) if row["time_ns"] is not None and row["event"] in REPEATABLE else None for row in said]
    again = pa.array([digest in before for digest in digests])
    known.recent = [*known.recent, *(one for one in digests if one is not None and one not in before)][-RECENT_MAX:]
    if not any(again.to_pylist()):
        return rows, []
    return rows.filter(pc.invert(again)), put_aside_again(rows.filter(again))


def _digest(row: dict[str, Any]) -> bytes:
    return hashlib.blake2b(msgspec.msgpack.encode([*row.values()]), digest_size=8).digest()


def _with_acknowledgments(run: WatchedRun, rows: pa.Table, names: dict[str, int]) -> pa.Table:
    """Let what a member says of its own messages be the broker's acknowledgments, and leave out what others say so."""
    details = rows["detail"].to_pylist()
    if IF_SENT not in details:
        return rows
    who, ids, events = (rows[name].to_pylist() for name in ("member", "id", "event"))
    sent = {(name, one) for name, one, event in zip(who, ids, events, strict=True) if event == "send"}
    known = run.translation.ids
    kept = [
        detail != IF_SENT
        or (name, one) in sent
        or known.get(one, (None, 0))[0] == names[name]
        or f"{names[name]}\0{one}" in known
        for detail, name, one in zip(details, who, ids, strict=True)
    ]
    told = pa.array([ACKNOWLEDGED if detail == IF_SENT else detail for detail in details], rows["detail"].type)
    return rows.set_column(rows.schema.get_field_index("detail"), "detail", told).filter(pa.array(kept))


def _steps(run: WatchedRun, column: dict[str, list[Any]], member: list[int]) -> Any:
    """Steps as they were logged; where rows have none, each member's go on from its last."""
    if run.translation.stepped:
        return np.array([0 if step is None else step for step in column["step"]], np.int64)
    last = dict(zip(run.ids, run.actors["last_step"].tolist(), strict=True))
    counters = {one: itertools.count(max(0, last.get(one, 0)) + 1) for one in set(member)}
    return np.array([next(counters[one]) for one in member], np.int64)


def _with_deliveries(run: WatchedRun, column: dict[str, list[Any]], form: LogForm) -> list[str]:
    """Where nobody (or the member) logs deliveries apart from receipts, a receipt is a delivery."""
    known, events = run.translation.delivers, column["event"]
    who = column["member"] if form.receipts == "member" else [""] * len(events)
    delivers = {one for one, event in zip(who, events, strict=True) if event == "deliver"}
    delivers |= {one for one, was in known.items() if was}
    for one in delivers:
        if known.get(one) is False:
            run.leave_open()  # its receipts were taken for deliveries
        known[one] = True
    result = []
    for one, event in zip(who, events, strict=True):
        if event == "receive" and one not in delivers:
            known[one] = False
            event = "deliver"
        result.append(event)
    return result


def _with_beginnings(run: WatchedRun, column: dict[str, list[Any]]) -> None:
    """Say of subscriptions to what comes from now on whether anything came before: only then do they begin late."""
    known = run.translation
    for event, topic, time in zip(column["event"], column["topic"], column["time_ns"], strict=True):
        if event != "send" or topic is None or time is None or time >= known.first_sent.get(topic, time + 1):
            continue
        known.first_sent[topic] = time
        if any(time < when and covers(pattern, topic) for pattern, when in known.subscribed):
            run.leave_open()  # it was thought that nothing had been sent before
    for at, detail in enumerate(column["detail"]):
        if detail == FROM_NOW:
            topic, time = column["topic"][at], column["time_ns"][at]
            sent = [when for name, when in known.first_sent.items() if topic is not None and covers(topic, name)]
            late = time is not None and any(when < time for when in sent)
            column["detail"][at] = SUBSCRIBED_LATE if late else SUBSCRIBED
            if not late and topic is not None and time is not None:
                known.subscribed.append((topic, time))


def _messages(
    run: WatchedRun, column: dict[str, list[Any]], member: list[int], form: LogForm, names: dict[str, int]
) -> tuple[list[Message], dict[Message, Message]]:
    """Return the message of each row, (NO_ONE, 0) where it is about none; and provisional ones as they were sent."""
    known = run.translation
    ids, events = column["id"], column["event"]
    about = [at for at, one in enumerate(ids) if one is not None]
    said = [None if name is None else names[name] for name in column["sender"]]
    logs = [log_name(topic, part) for topic, part in zip(column["topic"], column["partition"], strict=True)]
    result: list[Message] = [(NO_ONE, 0)] * len(ids)
    if form.sends == "unrecorded":
        for at in about:
            result[at] = _of_log(known, names[logs[at]], ids[at], form)
        return result, {}
    if known.counted is None and about:
        known.counted = form.ids == "message" and all(said[at] is not None and _is_count(ids[at]) for at in about)
    if known.counted:
        for at in about:
            result[at] = (_sure(said[at]), int(ids[at]) + 1 - form.numbers_from) if _is_count(ids[at]) else (NO_ONE, 0)
        return result, {}
    keys = {at: f"{logs[at]}/{ids[at]}" if form.ids == "log" else str(ids[at]) for at in about}
    found: dict[Message, Message] = {}  # provisional -> as it was sent
    for at in about:
        if events[at] == "send":
            _number_send(run, member[at], keys[at], found)
    for at in about:
        result[at] = _find(known, keys[at], said[at], names[UNKNOWN_AUTHOR])
    return result, found


def _sure(sender: int | None) -> int:
    return NO_ONE if sender is None else sender


def _is_count(text: str) -> bool:
    return text.isdigit() and len(text) < 19


def _number_send(run: WatchedRun, author: int, key: str, found: dict[Message, Message]) -> None:
    """Give a message its number, if this is its author's first send of it."""
    known = run.translation
    own = f"{author}\0{key}"
    if known.ids.get(key, (author, 0))[0] == author:
        own = key
    if own in known.ids:
        return
    number = known.numbers[author] = known.numbers.get(author, 0) + 1
    known.ids[own] = author, number
    for awaited in (key, f"{author}\0{key}"):
        if awaited in known.awaited:
            found[known.awaited.pop(awaited)] = author, number


def _find(known: Translation, key: str, said: int | None, unknown: int) -> Message:
    """Return the message that an id stands for, a provisional one if nobody has sent it yet."""
    message = known.ids.get(key)
    if message is not None and said in (None, message[0]):
        return message
    own = key if said is None else f"{said}\0{key}"
    if own in known.ids:
        return known.ids[own]
    if own not in known.awaited:
        known.provisional += 1
        known.awaited[own] = unknown if said is None else said, PROVISIONAL + known.provisional
    return known.awaited[own]


def _of_log(known: Translation, log: int, one: str, form: LogForm) -> Message:
    """Let a log, a topic or a partition of it, be the sender of what is read from it, in the order of its ids."""
    if _is_count(one):
        return log, int(one) + 1 - form.numbers_from
    offset = offset_of(one)
    if offset is not None:  # as Redis numbers them
        return log, offset + 1
    key = f"{log}\0{one}"
    if key not in known.ids:
        known.numbers[log] = known.numbers.get(log, 0) + 1
        known.ids[key] = log, known.numbers[log]
    return known.ids[key]


def _view(column: dict[str, list[Any]], at: int, names: dict[str, int], views: list[WatchedView]) -> int:
    if column["event"][at] != "view":
        return -1
    members = column["members"][at]
    listed = None if members is None else tuple(sorted({names[name] for name in members}))
    views.append(WatchedView(column["view"][at] or 0, listed))
    return len(views) - 1


def _words(column: dict[str, list[Any]], at: int, said: dict[BrokerWords, int]) -> int:
    event, topic, detail = column["event"][at], column["topic"][at], column["detail"][at]
    kind = detail if event == "control" and detail in BROKER_KINDS else ""
    if not kind and (topic is None or event not in ("send", "deliver", "discard")):
        return -1
    words = BrokerWords(kind, topic, column["partition"][at], column["group"][at], bool(column["redelivered"][at]))
    return said.setdefault(words, len(said))


def _forget_ids(run: WatchedRun) -> None:
    """Keep the ids of messages that are over only up to a number, the last ones."""
    known = run.translation
    excess = len(known.ids) - len(run.messages) - IDS_MAX
    if excess <= 0:
        return
    oldest = list(itertools.islice(known.ids.items(), excess))
    actor = {one: at for at, one in enumerate(run.ids)}
    senders = np.array([actor.get(sender, -1) for _, (sender, _) in oldest], np.int64)
    over = span_of(run.retired, senders, np.array([seq for _, (_, seq) in oldest], np.int64)) >= 0
    for (key, _), is_over in zip(oldest, over.tolist(), strict=True):
        if is_over:
            del known.ids[key]
            known.forgotten = True
