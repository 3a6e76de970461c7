"""What judging a run's rows reads and changes, and the alarms that it notes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from antiphon.pipeline.columns import Array
from antiphon.pipeline.kernels import compiled
from antiphon.pipeline.watch.state import Queue, WatchedRun

SENT_AGAIN, DELIVERED_AGAIN, UNSENT, TOO_LATE, EFFECT_FIRST, ORDERS_DIFFER = range(6)


class AlarmRows(NamedTuple):
    """What was judged and what is wrong: (kind, actor, step, message's sender and number, another actor and number)."""

    rows: Array
    judged: Queue


class Known(NamedTuple):
    """All that judging reads and changes; as in `WatchedRun`."""

    counts: Array
    inexact: Array
    actors: Array
    lines: Array
    seats: Array
    heard: Array
    messages: Array
    nodes: Array
    pairs: Array
    cells: Array
    alarms: Array
    found: Array  # how many alarms there are


def known_of(run: WatchedRun, alarms_max: int) -> Known:
    """What judging works on."""
    alarms = np.zeros((alarms_max, 7), np.int64)
    shared = [getattr(run, name) for name in Known._fields[:-2]]
    return Known._make([*shared, alarms, np.zeros(1, np.int64)])


@compiled
def alarm(known: Known, kind: int, q: int, step: int, m: int, other: int, other_seq: int) -> None:
    """Note an alarm about a message."""
    row = known.alarms[known.found[0]]
    row[0], row[1], row[2] = kind, q, step
    row[3], row[4] = known.messages[m].sender, known.messages[m].seq
    row[5], row[6] = other, other_seq
    known.found[0] += 1
