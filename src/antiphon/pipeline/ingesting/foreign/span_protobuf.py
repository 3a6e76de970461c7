"""A compiled scanner of OpenTelemetry exports in protobuf: it fills the same arrays as `span_json.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from antiphon.pipeline.columns import Array
from antiphon.pipeline.ingesting.foreign.span_arrays import (
    CONSUMER,
    ERROR,
    FAILED,
    FULL,
    KIND,
    NOTHING,
    NUMBER,
    ODD,
    PARENT,
    PRODUCER,
    SPAN,
    START,
    TEXT,
    TRUTH,
    UNUSUAL,
    SpanArrays,
    WantedKeys,
    add_link,
    begin_span,
    end_resource,
    note,
    take_attribute,
)
from antiphon.pipeline.kernels import borrowing, inlined

_FIRST_FIELD, _SECOND_FIELD = 1 << 3 | 2, 2 << 3 | 2  # the tags of fields that have a length


@borrowing
def _varint(content: Array, at: int, stop: int) -> tuple[Any, int]:
    """Return a number and the position behind it, below 0 if it does not end."""
    if at < stop and content[at] < 128:  # as most are
        return np.int64(content[at]), at + 1
    value = np.uint64(0)
    shift = 0
    while at < stop and shift < 64:
        byte = content[at]
        value |= np.uint64(byte & 127) << np.uint64(shift)
        at += 1
        if byte < 128:
            return np.int64(value), at
        shift += 7
    return 0, ODD


@borrowing
def _field(content: Array, at: int, stop: int) -> tuple[int, Any, int, int]:
    """Return the number of the next field, its value (or where its content begins), its length, and what is behind."""
    tag, at = _varint(content, at, stop)
    if at < 0:
        return 0, 0, 0, ODD
    kind = tag & 7
    value: Any = np.int64(0)
    length = 0
    if kind == 0:
        value, at = _varint(content, at, stop)
    elif kind in (1, 5):
        length = 8 if kind == 1 else 4
        if at + length > stop:
            return 0, 0, 0, ODD
        bits = np.uint64(0)
        for i in range(length):
            bits |= np.uint64(content[at + i]) << np.uint64(8 * i)
        value, at = np.int64(bits), at + length
    elif kind == 2:
        length, at = _varint(content, at, stop)
        if at < 0 or length < 0 or at + length > stop:
            return 0, 0, 0, ODD
        value, at = at, at + length
    else:
        return 0, 0, 0, ODD
    return tag >> 3, value, length, at


@inlined
def _usual_pair(content: Array, at: int, stop: int) -> int:
    """Return the length of the key of an attribute that is a text, all lengths in one byte; 0 if it is not so."""
    if stop - at < 7 or content[at] != _FIRST_FIELD or content[at + 1] >= 128:
        return 0
    size = int(content[at + 1])
    value = at + 2 + size
    rest = stop - value - 2
    if not 2 <= rest < 128 or content[value] != _SECOND_FIELD or content[value + 1] != rest:
        return 0
    return size if content[value + 2] == _FIRST_FIELD and content[value + 3] == rest - 2 else 0


@inlined
def _attribute(content: Array, at: int, stop: int, span: int, arrays: SpanArrays, keys: WantedKeys) -> int:
    usual = _usual_pair(content, at, stop)
    if usual:
        key, text = at + 2, at + usual + 6
        take_attribute(content, key, key + usual, span, TEXT, text, stop - text, arrays, keys)
        return stop
    key = size = 0
    kind, noted, noted_length = NOTHING, 0, 0
    while at < stop:
        number, value, length, at = _field(content, at, stop)
        if at < 0:
            return ODD
        if number == 1:
            key, size = value, length
        elif number == 2:
            inner, end = value, value + length
            while inner < end:
                number, value, length, inner = _field(content, inner, end)
                if inner < 0:
                    return ODD
                if number == 1:
                    kind, noted, noted_length = TEXT, value, length
                elif number == 2:
                    kind, noted = TRUTH, (1 if value else 0)
                elif number == 3:
                    kind, noted = NUMBER, value
                elif number == 4:
                    kind = UNUSUAL
    if kind == NOTHING:
        return at
    if not key:
        return ODD
    good = take_attribute(content, key, key + size, span, kind, noted, noted_length, arrays, keys)
    return at if good else ODD


@borrowing
def _protobuf_span(content: Array, at: int, stop: int, arrays: SpanArrays, keys: WantedKeys) -> int:
    span = begin_span(arrays, at)
    if span < 0:
        return span
    arrays.extent[1, span] = stop
    note(arrays, span, START, NUMBER, 0, 0)
    while at < stop:
        number, value, length, at = _field(content, at, stop)
        if at < 0:
            return ODD
        if number == 9:
            if _attribute(content, value, value + length, span, arrays, keys) < 0:
                return ODD
        elif number == 7:
            note(arrays, span, START, NUMBER, value, 0)
        elif number == 6:
            if value in (PRODUCER, CONSUMER):
                note(arrays, span, KIND, NUMBER, value, 0)
        elif number in (2, 4):
            if length:
                note(arrays, span, SPAN if number == 2 else PARENT, TEXT, value, length)
        elif number == 13:
            inner, end = value, value + length
            while inner < end:
                number, value, length, inner = _field(content, inner, end)
                if inner < 0:
                    return ODD
                if number == 2 and length and not add_link(arrays, span, value, length):
                    return FULL
        elif number == 15:
            inner, end = value, value + length
            while inner < end:
                number, value, length, inner = _field(content, inner, end)
                if inner < 0:
                    return ODD
                if number == 3 and value == ERROR:
                    note(arrays, span, FAILED, TRUTH, 1, 0)
    return at


@borrowing
def scan_protobuf(content: Array, at: int, stop: int, arrays: SpanArrays, keys: WantedKeys) -> int:
    """Take in one export; ODD if it is unusual, FULL if there is no room for its spans."""
    while at < stop:
        number, value, length, at = _field(content, at, stop)
        if at < 0:
            return ODD
        if number != 1:
            continue
        arrays.resource[0, :] = NOTHING
        first_span = arrays.counts[0]
        part, end = value, value + length
        while part < end:
            number, value, length, part = _field(content, part, end)
            if part < 0:
                return ODD
            inner, inner_end = value, value + length
            while number in (1, 2) and inner < inner_end:
                of, value, length, inner = _field(content, inner, inner_end)
                if inner < 0:
                    return ODD
                if number == 1 and of == 1:
                    if _attribute(content, value, value + length, -1, arrays, keys) < 0:
                        return ODD
                elif number == 2 and of == 2:
                    behind = _protobuf_span(content, value, value + length, arrays, keys)
                    if behind < 0:
                        return behind
        end_resource(arrays, first_span)
    return at
