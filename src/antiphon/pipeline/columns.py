"""A trace's columns as numpy arrays, and what the integers in them stand for.

The pipeline works with plain integers, so that compiled code can; these are their names:

- *run*: the position of a run among the names of all runs of a trace, in order (`TraceLayout.runs`);
- *unit*: one member of one run, numbered over the whole trace in order of (run, member);
- *segment*: a stretch of one unit's rows in one row group of one file; a unit has one or more, in order of step;
- *message*: the position of a (sender, number) among all messages of a run, in order (`Universe`);
- *slot*: the position of a sender among all senders of a run (`Universe.senders`);
- *view*: the position of a view among the views of a run, 0 the initial one, not the number that its members give it;
- *stay*: the position of a view among those that one member installs, one after the other; it may install one twice.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from antiphon.trace.schema import EVENTS

Array = npt.NDArray[Any]
RunIndex: TypeAlias = int
Unit: TypeAlias = int
Segment: TypeAlias = int
MessageIndex: TypeAlias = int
Slot: TypeAlias = int
ViewIndex: TypeAlias = int

CODES: Final[dict[str, int]] = {name: code for code, name in enumerate(EVENTS)}
SEND, RECEIVE, DELIVER, STABLE, DISCARD, CONTROL, VIEW, LEAVE, CRASH, END = range(len(EVENTS))
NO_EVENT: Final = 255  # a row whose event is no event
SKELETON_EVENTS: Final = (VIEW, LEAVE, CRASH, END)  # those that shape a run
NULL_TIME: Final = int(np.iinfo(np.int64).min)

TEXTS: Final = ("topic", "partition", "group", "detail")
NO_TEXT: Final = -1
NO_OFFSET: Final = NULL_TIME

assert CODES["view"] == VIEW


def as_numpy(column: pa.ChunkedArray, name: str) -> Array:
    """A column as numpy: events as codes, marks as truths, nulls as 0 (of times and offsets as the smallest number)."""
    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if name == "event":
        return event_codes(array)
    if name == "redelivered":
        if not pa.types.is_boolean(array.type):
            array = pc.is_in(array.cast(pa.string()), pa.array(["true", "1"]))
        marked: Array = array.fill_null(False).to_numpy(zero_copy_only=False)
        return marked
    if name == "partition_offset":
        offsets: Array = as_offsets(array).fill_null(NO_OFFSET).to_numpy(zero_copy_only=False)
        return offsets
    if array.null_count:
        array = array.fill_null(NULL_TIME if name == "time_ns" else 0)
    values: Array = array.to_numpy(zero_copy_only=False)
    return values


def as_offsets(array: pa.Array) -> pa.Array:
    """Return a column's offsets; what is no whole number is none."""
    if pa.types.is_signed_integer(array.type):
        return array.cast(pa.int64())
    texts = array.cast(pa.string())
    whole = pc.match_substring_regex(texts, r"^-?[0-9]{1,18}$")
    return pc.if_else(whole, texts, None).cast(pa.int64())


class TextCodes:
    """The distinct texts of some columns, each with a number by which arrays name it."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._code: dict[str, int] = {}

    def code(self, text: str) -> int:
        """Return the number of a text, a new one if it has none."""
        known = self._code.setdefault(text, len(self.names))
        if known == len(self.names):
            self.names.append(text)
        return known

    def of(self, column: pa.ChunkedArray) -> Array:
        """Return a column's texts as their numbers, NO_TEXT where there is none."""
        array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        if not pa.types.is_dictionary(array.type):
            array = array.cast(pa.string()).dictionary_encode()
        codes = np.array([*(self.code(text) for text in array.dictionary.to_pylist()), NO_TEXT], np.int32)
        found: Array = codes[array.indices.fill_null(len(codes) - 1).to_numpy(zero_copy_only=False)]
        return found


def event_codes(array: pa.Array) -> Array:
    """Event names as codes, NO_EVENT where there is no such event."""
    if not pa.types.is_dictionary(array.type):
        array = array.cast(pa.string()).dictionary_encode()
    codes = np.array([CODES.get(str(name), NO_EVENT) for name in array.dictionary.to_pylist()] + [NO_EVENT], np.uint8)
    indices = array.indices
    if indices.null_count:
        indices = indices.fill_null(len(codes) - 1)
    result: Array = codes[indices.to_numpy(zero_copy_only=False)]
    return result
