"""The receipt logs' entries, the causality-precedence relation on them, and the insertion that preserves it (CPI)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Logged(msgspec.Struct):
    """A sequenced PDU as the logs keep it."""

    source: int  # SRC
    number: int  # SEQ
    ack: Sequence[int]  # ACK
    buf: int
    payload: bytes | None  # None: a confirmation
    seq: int = 0  # the message's own number, known once it is accepted


def precedes(p: Logged, q: Logged) -> bool:
    """Decide p < q from the sequence numbers: did q's sender have p when it sent q (Theorem 4.1)?

    This is transitive because of causal acceptance. As a PDU's ACK for its own source is its own number, the theorem's
    two cases are one.
    """
    return p.number < q.ack[p.source]


def insertion_place(log: Sequence[Logged], p: Logged, start: int = 0) -> int:
    """Find p's position in a causality-preserved log: before the first q with p < q, else at the tail.

    No q before `start` may succeed p.
    """
    return next((index for index in range(start, len(log)) if precedes(p, log[index])), len(log))
