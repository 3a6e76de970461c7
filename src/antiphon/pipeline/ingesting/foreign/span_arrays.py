"""What the scanners of OpenTelemetry exports look for and fill: wanted keys in, arrays over the spans out."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from antiphon.pipeline.columns import Array
from antiphon.pipeline.kernels import alike, borrowing, inlined

NOTHING, TEXT, NUMBER, TRUTH, UNUSUAL = range(5)  # what a value is
START, KIND, FAILED, SPAN, PARENT, OWN_COLUMNS = range(6)  # the first columns, which are no attributes
PRODUCER, CONSUMER, ERROR = 4, 5, 2  # kinds and a status, as OpenTelemetry numbers them

# what a scanner returns in place of a position
END: Final = -1  # the list or object ends here
ODD: Final = -2  # unusual or damaged: `otlp.py` reads it
FULL: Final = -3  # no room is left in the arrays

PLACES_MAX: Final = 8  # how deep spans lie in an export in JSON


def word_bytes(text: str) -> Array:
    """Return a word as the scanners compare it."""
    return np.frombuffer(text.encode(), np.uint8)


_MESSAGING = word_bytes("messaging.")


class WantedKeys(NamedTuple):
    """The keys of attributes that are looked for, one after the other in one text, the shortest first."""

    text: Array
    start: Array
    column: Array  # by key
    by_length: Array  # the first key of each length, up to one more than the longest


def wanted_keys(keys: list[str]) -> WantedKeys:
    """Return keys as the scanners compare them; their columns follow the spans' own, in the order given."""
    encoded = [key.encode() for key in keys]
    order = sorted(range(len(keys)), key=lambda number: len(encoded[number]))
    lengths = np.array([len(encoded[number]) for number in order], np.int64)
    return WantedKeys(
        np.frombuffer(b"".join(encoded[number] for number in order) + b"\0", np.uint8),
        np.cumsum([0, *lengths]).astype(np.int64),
        np.array(order, np.int64) + OWN_COLUMNS,
        np.searchsorted(lengths, np.arange(int(lengths.max(initial=0)) + 2)),
    )


class SpanArrays(NamedTuple):
    """What the scanners fill: by span and column (the span's own, then the wanted keys)."""

    kind: Array  # NOTHING, TEXT (value is its position), NUMBER or TRUTH (value is it)
    value: Array
    length: Array
    messaging: Array  # by span: it has an attribute of messaging
    extent: Array  # by span: from where to where it goes
    link: Array  # (span, position, length), one after the other
    resource: Array  # of one resource, by column: kind, value, length
    counts: Array  # spans and links so far
    places: Array  # what a scanner of JSON is inside of, the innermost last


def span_arrays(columns: int, spans: int) -> SpanArrays:
    """Make room for so many spans, and twice as many links."""
    return SpanArrays(
        np.zeros((spans, columns), np.uint8),
        np.zeros((spans, columns), np.int64),
        np.zeros((spans, columns), np.int32),
        np.zeros(spans, np.bool_),
        np.zeros((2, spans), np.int64),
        np.zeros((3, 2 * spans), np.int64),
        np.zeros((3, columns), np.int64),
        np.zeros(2, np.int64),
        np.zeros(PLACES_MAX, np.int64),
    )


@borrowing
def same_text(text: Array, start: int, end: int, word: Array) -> bool:
    """Say whether a stretch of a text is this word."""
    return end - start == word.size and alike(text, start, word, 0, word.size)


@inlined
def _column_of(text: Array, start: int, end: int, keys: WantedKeys) -> int:
    """Return the column of a key; 0 if nobody wants it."""
    size = end - start
    if size + 1 >= keys.by_length.size:
        return 0
    for number in range(keys.by_length[size], keys.by_length[size + 1]):
        if alike(text, start, keys.text, keys.start[number], size):
            return int(keys.column[number])
    return 0


@inlined
def _of_messaging(text: Array, start: int, end: int) -> bool:
    return end - start >= _MESSAGING.size and same_text(text, start, start + _MESSAGING.size, _MESSAGING)


@inlined
def begin_span(arrays: SpanArrays, start: int) -> int:
    """Make room for a span; FULL if there is none."""
    span = arrays.counts[0]
    if span >= arrays.messaging.size:
        return FULL
    for column in range(arrays.kind.shape[1]):  # far faster than a slice
        arrays.kind[span, column] = NOTHING
    arrays.messaging[span] = False
    arrays.extent[0, span] = start
    arrays.counts[0] = span + 1
    return int(span)


@borrowing
def add_link(arrays: SpanArrays, span: int, start: int, length: int) -> bool:
    """Note a link of a span; False if there is no room."""
    number = arrays.counts[1]
    if number >= arrays.link.shape[1]:
        return False
    arrays.link[0, number], arrays.link[1, number], arrays.link[2, number] = span, start, length
    arrays.counts[1] = number + 1
    return True


@borrowing
def end_resource(arrays: SpanArrays, first: int) -> None:
    """Let spans have the attributes of their resource that they do not have themselves."""
    for column in range(OWN_COLUMNS, arrays.kind.shape[1]):
        kind = arrays.resource[0, column]
        if kind != NOTHING:
            value, length = arrays.resource[1, column], arrays.resource[2, column]
            for span in range(first, arrays.counts[0]):
                if arrays.kind[span, column] == NOTHING:
                    arrays.kind[span, column] = kind
                    arrays.value[span, column] = value
                    arrays.length[span, column] = length


@inlined
def note(arrays: SpanArrays, span: int, column: int, kind: int, value: int, length: int) -> None:
    """Note a value, of a span or (below 0) of the resource."""
    if span < 0:
        arrays.resource[0, column], arrays.resource[1, column], arrays.resource[2, column] = kind, value, length
    else:
        arrays.kind[span, column] = kind
        arrays.value[span, column] = value
        arrays.length[span, column] = length


@inlined
def take_attribute(
    text: Array,
    key: int,
    key_end: int,
    span: int,
    kind: int,
    value: int,
    length: int,
    arrays: SpanArrays,
    keys: WantedKeys,
) -> bool:
    """Note an attribute if it is wanted; False if it is and its value is unusual."""
    if span >= 0 and not arrays.messaging[span] and _of_messaging(text, key, key_end):
        arrays.messaging[span] = True
    column = _column_of(text, key, key_end, keys)
    if column and kind == UNUSUAL:
        return False
    if column:
        note(arrays, span, column, kind, value, length)
    return True
