"""What is kept of a run that is still going on: enough to judge what comes next, and no more.

A message is kept until everyone who must handle it has, and everyone has marked it stable (if the run has marks at
all); then only its number remains, in a span of retired numbers. A member's rows wait, unread, at the first delivery
whose send has not been read yet: so each delivery is judged when all that happened before it is known.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from antiphon.pipeline.layout import NULL_TIME, Array

NOT_IN: Final = -3
NOTHING: Final = -2
GONE: Final = -1

# counts of a run
DELIVERIES, REPEATED, LATE, CAUSAL_EXAMINED, CAUSAL_VIOLATIONS, NODES, NEWEST_NS, HAS_MARKS, HAS_DISCARDS, ROWS = range(
    10
)
COUNTS: Final = 10
INTEGRITY, FIFO, CAUSAL, TOTAL = range(4)
GUARANTEES: Final = ("integrity", "fifo", "causal", "total")


class Group(NamedTuple):
    """By actor: a member, or a sender that no log is known of."""

    has_log: Array
    ended: Array
    gone: Array
    last_step: Array
    next_place: Array  # how many messages it has delivered or discarded
    current: Array  # the view that it is in
    past: Array  # what it delivered since its last send: the first node of a list
    past_dropped: Array  # the views in which retired ones of these were sent
    follows: Array  # by view: the view that follows it, or GONE, NOTHING, NOT_IN
    highest: Array  # by sender: the highest number delivered
    marks: Array  # by sender: the highest number marked stable
    belongs: Array  # view by actor
    reach: Array  # view, member, other: the furthest place at the other of what both delivered
    common: Array  # view, member, other: how many both delivered; 2 stands for more
    differs: Array  # view, member, other: whether their orders do
    crossed: Array  # member, other: one delivered in another view what the other delivered
    counts: Array
    inexact: Array  # by guarantee: something came too late to be judged


class Messages(NamedTuple):
    """By message that is not retired."""

    sender: Array
    seq: Array
    sent: Array
    to_be_sent: Array  # its send is among the rows that wait
    retired: Array
    released: Array  # it may be (1) or has been (2) handled although its send is not known
    send_view: Array
    send_ns: Array
    past: Array  # its direct predecessors: the first node of a list
    past_dropped: Array  # the views in which retired ones of these were sent
    place: Array  # by actor: when it handled the message, in its own order; -1 if not yet
    kind: Array  # by actor: 1 delivered, 2 discarded
    seen_in: Array  # by actor: the view in which it delivered it


class Nodes(NamedTuple):
    """Linked lists of messages."""

    message: Array
    next: Array


class Queue(NamedTuple):
    """Rows that wait, in order of (actor, step)."""

    actor: Array
    code: Array
    sender: Array  # an actor, -1 if none
    seq: Array
    step: Array
    time: Array
    installs: Array  # of a view row: the view


class View(msgspec.Struct, frozen=True):
    """A view is its number and its members; None: all that have a log."""

    number: int
    members: tuple[int, ...] | None


class Run(msgspec.Struct):
    """One run under watch."""

    name: str
    ids: list[int]
    views: list[View]
    group: Group
    messages: Messages
    nodes: Nodes
    queue: Queue
    retired: Array  # rows (actor, low, high), in order
    retired_initially: bool = False  # something sent before any view was recorded


def new_run(name: str) -> Run:
    """A run of which nothing has been read."""
    none, two, three = np.zeros(0, np.int64), np.zeros((0, 0), np.int64), np.zeros((1, 0, 0), np.int64)
    group = Group(
        has_log=none, ended=none, gone=none, last_step=none, next_place=none, current=none, past=none,
        past_dropped=np.zeros((0, 1), np.int64), follows=np.zeros((0, 1), np.int64), highest=two, marks=two,
        belongs=np.zeros((1, 0), np.int64), reach=three, common=three, differs=three, crossed=two,
        counts=np.zeros(COUNTS, np.int64), inexact=np.zeros(len(GUARANTEES), np.int64),
    )  # fmt: skip
    group.counts[NEWEST_NS] = NULL_TIME
    messages = empty_messages(0, 0, 1)
    queue = Queue(*(np.zeros(0, np.int64) for _ in Queue._fields))
    return Run(name, [], [View(0, None)], group, messages, Nodes(none, none), queue, np.zeros((0, 3), np.int64))


def empty_messages(size: int, actors: int, views: int) -> Messages:
    """So many messages of which nothing is known."""
    return Messages(
        sender=np.zeros(size, np.int64), seq=np.zeros(size, np.int64), sent=np.zeros(size, np.uint8),
        to_be_sent=np.zeros(size, np.uint8), retired=np.zeros(size, np.uint8), released=np.zeros(size, np.uint8),
        send_view=np.zeros(size, np.int64), send_ns=np.full(size, NULL_TIME, np.int64),
        past=np.full(size, -1, np.int64), past_dropped=np.zeros((size, views), np.uint8),
        place=np.full((size, actors), -1, np.int64), kind=np.zeros((size, actors), np.uint8),
        seen_in=np.zeros((size, actors), np.int16),
    )  # fmt: skip


def grown(group: Group, ids: list[int], views: list[View], has_log: set[int]) -> Group:
    """The group with room for more actors and views, and who belongs to which view as it is known now."""
    a, v = len(ids), len(views)

    def by_actor(array: Array, fill: int = 0) -> Array:
        return _resized(array, (a,), fill)

    result = Group(
        has_log=np.array([int(one in has_log) for one in ids], np.int64),
        ended=by_actor(group.ended), gone=by_actor(group.gone),
        last_step=by_actor(group.last_step, np.iinfo(np.int64).min), next_place=by_actor(group.next_place),
        current=by_actor(group.current), past=by_actor(group.past, -1),
        past_dropped=_resized(group.past_dropped, (a, v), 0),
        follows=_resized(group.follows, (a, v), NOT_IN),
        highest=_resized(group.highest, (a, a), 0), marks=_resized(group.marks, (a, a), 0),
        belongs=np.array(
            [[int(one in has_log if view.members is None else one in view.members) for one in ids] for view in views],
            np.int64,
        ).reshape(v, a),
        reach=_resized(group.reach, (v, a, a), -1), common=_resized(group.common, (v, a, a), 0),
        differs=_resized(group.differs, (v, a, a), 0), crossed=_resized(group.crossed, (a, a), 0),
        counts=group.counts.copy(), inexact=group.inexact.copy(),
    )  # fmt: skip
    result.follows[len(group.follows) :, 0] = NOTHING  # everyone begins in the initial view
    return result


def _resized(array: Array, shape: tuple[int, ...], fill: int) -> Array:
    result = np.full(shape, fill, np.int64)
    result[tuple(slice(0, size) for size in array.shape)] = array
    return result


# --- on disk ----------------------------------------------------------------------------------------------------------

_TUPLES: Final[dict[str, Any]] = {"group": Group, "messages": Messages, "nodes": Nodes, "queue": Queue}


def save(run: Run, path: Path) -> None:
    """Write a run's state; the file appears when it is whole."""
    arrays: dict[str, Array] = {"retired": run.retired}
    for name, kind in _TUPLES.items():
        arrays |= {f"{name}.{field}": getattr(getattr(run, name), field) for field in kind._fields}
    header = msgspec.msgpack.encode((run.name, run.ids, run.views, run.retired_initially))
    arrays["header"] = np.frombuffer(header, np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    fresh = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    with fresh.open("wb") as out:
        out.write(buffer.getbuffer())
        out.flush()
        os.fsync(out.fileno())
    fresh.replace(path)


def load(path: Path) -> Run:
    """Read a run's state."""
    with np.load(path, allow_pickle=False) as found:
        name, ids, views, initially = msgspec.msgpack.decode(
            found["header"].tobytes(), type=tuple[str, list[int], list[View], bool]
        )
        parts = {part: kind(*(found[f"{part}.{field}"] for field in kind._fields)) for part, kind in _TUPLES.items()}
        return Run(name, ids, views, **parts, retired=found["retired"], retired_initially=initially)
