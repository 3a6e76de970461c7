"""Replies of Redis as clients log them: which entries of which streams they have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

NIL_REPLIES: Final = ("reply", "response", "result")  # keys of a whole reply; null is one that has nothing
_ENTRY: Final = re.compile(r"[0-9]+(-[0-9]+)?")


class StreamEntry(NamedTuple):
    """One entry of a reply."""

    stream: str | None  # None: the reply does not name it
    id: Any  # or a record, as some clients give it


def is_reply(value: Any) -> bool:
    """Say whether a value is a reply: a list, or a dictionary that has a list for each stream (as RESP3 has it).

    The streams that were asked for are none: their names, or names with the id to read from.
    """
    if isinstance(value, Mapping):
        return all(isinstance(entries, list) for entries in value.values())
    return isinstance(value, list) and (not value or not all(_is_asked(one) for one in value))


def _is_asked(one: Any) -> bool:
    if isinstance(one, list):
        return bool(one) and not _is_stream(one) and _is_asked(one[0])
    return isinstance(one, str) and not _ENTRY.fullmatch(one)


def entries_of(reply: Any) -> Iterator[StreamEntry]:
    """Return the entries of a reply of XREAD, XREADGROUP, XCLAIM, XAUTOCLAIM or XRANGE, or of a list of ids."""
    if isinstance(reply, Mapping):
        for stream, entries in reply.items():
            yield from _of_stream(str(stream), entries)
        return
    if _is_autoclaim(reply):
        reply = reply[1]
    for one in reply:
        if _is_stream(one):
            yield from _of_stream(str(one[0]), one[1])
        elif isinstance(one, list) and one and isinstance(one[0], list):
            yield from entries_of(one)  # redis-py puts RESP3's lists into one more
        elif isinstance(one, list) and one:
            yield StreamEntry(None, one[0])
        elif one is not None and one != []:
            yield StreamEntry(None, one)


def _of_stream(stream: str, entries: list[Any]) -> Iterator[StreamEntry]:
    for one in entries_of(entries):
        yield StreamEntry(stream, one.id)


def _is_stream(one: Any) -> bool:
    """Say whether this is a stream's name with its entries, and not an entry's id with its fields."""
    return (
        isinstance(one, list)
        and len(one) == 2
        and isinstance(one[0], str)
        and isinstance(one[1], list)
        and (not _ENTRY.fullmatch(one[0]) or bool(one[1]))
        and all(isinstance(inner, list) for inner in one[1])
    )


def _is_autoclaim(reply: list[Any]) -> bool:
    """Say whether this is XAUTOCLAIM's: where to go on, the entries and, since Redis 7, the ids of those deleted."""
    return (
        len(reply) in (2, 3)
        and isinstance(reply[0], str)
        and bool(_ENTRY.fullmatch(reply[0]))
        and all(isinstance(one, list) for one in reply[1:])
        and all(isinstance(one, list) for one in reply[1])
    )
