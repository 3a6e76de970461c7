"""One event of a trace, as plain Python: a row of the trace contract."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Event(msgspec.Struct, frozen=True):
    """What happened at `member` in its step `step`; the fields are the columns of `antiphon.trace.schema`."""

    run: str
    member: int
    step: int
    event: str
    sender: int | None = None
    seq: int | None = None
    time_ns: int | None = None
    view: int = 0
    bytes: int | None = None
    members: Sequence[int] | None = None
    detail: str | None = None
    topic: str | None = None
    partition: str | None = None
    group: str | None = None
    redelivered: bool | None = None
    partition_offset: int | None = None
