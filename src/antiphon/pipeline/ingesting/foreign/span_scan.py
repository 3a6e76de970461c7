"""Compiled scanners of OpenTelemetry exports: the values of wanted attributes, as arrays over the spans.

They give up on what is unusual (a wanted text with escapes, a fraction where a text is wanted, damage): then the export
is read by `otlp.py`, record by record, which also says what is wrong with it.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from antiphon.pipeline.columns import Array
from antiphon.pipeline.kernels import alike, borrowing, compiled, inlined, word_at

NOTHING, TEXT, NUMBER, TRUTH, _UNUSUAL = range(5)  # what a value is
# the first columns are no attributes
START, KIND, FAILED, SPAN, PARENT, OWN_COLUMNS = range(6)
PADDING: Final = 64  # zeros behind a text, so that nothing needs to look whether it has ended

_ODD: Final = -2
_END: Final = -1
_FULL: Final = -3

_QUOTE, _ESCAPE, _COMMA, _COLON = ord('"'), ord("\\"), ord(","), ord(":")
_BRACE, _BRACE_END, _BRACKET, _BRACKET_END = ord("{"), ord("}"), ord("["), ord("]")
_PRODUCER, _CONSUMER, _ERROR = 4, 5, 2
_FIRST_FIELD, _SECOND_FIELD = 1 << 3 | 2, 2 << 3 | 2  # the tags of fields of protobuf that have a length
_SPECIAL = np.array(
    [byte < 32 or byte in (_QUOTE, _ESCAPE) for byte in range(256)]
)  # bytes that mean something in a text
_ONES, _HIGHEST_BITS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)  # of eight bytes at once
_QUOTES, _ESCAPES = np.uint64(0x2222222222222222), np.uint64(0x5C5C5C5C5C5C5C5C)
_ABOVE_CONTROLS = np.uint64(0xE0E0E0E0E0E0E0E0)  # the bits of which a byte from 32 on has one


def _word(text: str) -> Array:
    return np.frombuffer(text.encode(), np.uint8)


_RESOURCE_SPANS, _RESOURCE, _ATTRIBUTES = _word("resourceSpans"), _word("resource"), _word("attributes")
_SCOPE_SPANS, _LIBRARY_SPANS, _SPANS = _word("scopeSpans"), _word("instrumentationLibrarySpans"), _word("spans")
_START_TIME, _KIND_WORD, _STATUS, _CODE = _word("startTimeUnixNano"), _word("kind"), _word("status"), _word("code")
_SPAN_ID, _PARENT_ID, _LINKS = _word("spanId"), _word("parentSpanId"), _word("links")
_KEY, _VALUE = _word("key"), _word("value")
_STRING, _INT, _BOOL, _DOUBLE = _word("stringValue"), _word("intValue"), _word("boolValue"), _word("doubleValue")
_TRUE, _FALSE, _MESSAGING = _word("true"), _word("false"), _word("messaging.")
_KIND_PRODUCER, _KIND_CONSUMER = _word("SPAN_KIND_PRODUCER"), _word("SPAN_KIND_CONSUMER")
_CODE_ERROR = _word("STATUS_CODE_ERROR")
# an attribute as collectors write it, without blanks
_USUAL_KEY, _USUAL_TEXT, _USUAL_END = _word('{"key":"'), _word('","value":{"stringValue":"'), _word('"}}')


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
        np.zeros(_DEPTH_MAX, np.int64),
    )


@borrowing
def _same(text: Array, start: int, end: int, word: Array) -> bool:
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
    return end - start >= _MESSAGING.size and _same(text, start, start + _MESSAGING.size, _MESSAGING)


@inlined
def _begin_span(arrays: SpanArrays, start: int) -> int:
    """Make room for a span; -3 if there is none."""
    span = arrays.counts[0]
    if span >= arrays.messaging.size:
        return _FULL
    for column in range(arrays.kind.shape[1]):  # far faster than a slice
        arrays.kind[span, column] = NOTHING
    arrays.messaging[span] = False
    arrays.extent[0, span] = start
    arrays.counts[0] = span + 1
    return int(span)


@borrowing
def _add_link(arrays: SpanArrays, span: int, start: int, length: int) -> bool:
    number = arrays.counts[1]
    if number >= arrays.link.shape[1]:
        return False
    arrays.link[0, number], arrays.link[1, number], arrays.link[2, number] = span, start, length
    arrays.counts[1] = number + 1
    return True


@borrowing
def _end_resource(arrays: SpanArrays, first: int) -> None:
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
def _note(arrays: SpanArrays, span: int, column: int, kind: int, value: int, length: int) -> None:
    """Note a value, of a span or (below 0) of the resource."""
    if span < 0:
        arrays.resource[0, column], arrays.resource[1, column], arrays.resource[2, column] = kind, value, length
    else:
        arrays.kind[span, column] = kind
        arrays.value[span, column] = value
        arrays.length[span, column] = length


# --- JSON -------------------------------------------------------------------------------------------------------------


@borrowing
def _blank(text: Array, at: int) -> int:
    while text[at] == 32 or text[at] == 10 or text[at] == 13 or text[at] == 9:
        at += 1
    return at


@borrowing
def _has_special(word: Any) -> bool:
    """Say whether one of eight bytes means something in a text.

    What is left of such a byte is 0, and a number has a byte that is 0 if taking 1 from each sets a highest bit anew.
    """
    quote, escape, control = word ^ _QUOTES, word ^ _ESCAPES, word & _ABOVE_CONTROLS
    borrowed = ((quote - _ONES) & ~quote) | ((escape - _ONES) & ~escape) | ((control - _ONES) & ~control)
    return bool(borrowed & _HIGHEST_BITS)


@borrowing
def _text_end(text: Array, at: int) -> tuple[int, bool]:
    """Return the position of the quote that ends a text, below 0 if none does, and whether it has no escapes."""
    plain = True
    while True:
        while not _has_special(word_at(text, at)):
            at += 8
        while not _SPECIAL[text[at]]:
            at += 1
        if text[at] == _QUOTE:
            return at, plain
        if text[at] != _ESCAPE:
            return _ODD, False
        plain = False
        at += 2


@borrowing
def skip_value(text: Array, at: int) -> int:
    """Return the position behind a value; below 0 if it has no end."""
    depth = 0
    while True:
        byte = text[at]
        if byte == _QUOTE:
            end, _ = _text_end(text, at + 1)
            if end < 0:
                return _ODD
            at = end + 1
        elif byte in (_BRACE, _BRACKET):
            depth += 1
            at += 1
        elif byte in (_BRACE_END, _BRACKET_END):
            if depth == 0:
                return _ODD
            depth -= 1
            at += 1
        elif byte in (_COMMA, _COLON) or byte <= 32:
            if depth == 0 or byte == 0:
                return _ODD
            at += 1
            continue
        else:  # a number or a word
            while text[at] > 32 and text[at] not in (_COMMA, _COLON, _QUOTE, _BRACE_END, _BRACKET_END):
                at += 1
        if depth == 0:
            return at


@borrowing
def _member(text: Array, at: int, first: bool) -> tuple[int, int, int]:
    """Return key, its end and value of an object's next member; (-1, what is behind, 0) at its end, (-2, 0, 0): odd."""
    at = _blank(text, at)
    if text[at] == _BRACE_END:
        return _END, at + 1, 0
    if not first:
        if text[at] != _COMMA:
            return _ODD, 0, 0
        at = _blank(text, at + 1)
    if text[at] != _QUOTE:
        return _ODD, 0, 0
    end, plain = _text_end(text, at + 1)
    if end < 0 or not plain:
        return _ODD, 0, 0
    colon = _blank(text, end + 1)
    if text[colon] != _COLON:
        return _ODD, 0, 0
    return at + 1, end, _blank(text, colon + 1)


@borrowing
def _element(text: Array, at: int, first: bool) -> tuple[int, int]:
    """Return the position of an array's next element; (-1, position behind) at its end, (-2, 0): odd."""
    at = _blank(text, at)
    if text[at] == _BRACKET_END:
        return _END, at + 1
    if not first:
        if text[at] != _COMMA:
            return _ODD, 0
        at = _blank(text, at + 1)
    return at, 0


@borrowing
def _integer(text: Array, at: int) -> tuple[Any, int]:
    """Return a number, quoted or not, and the position behind it, below 0 if it is none of up to 18 digits."""
    quoted = text[at] == _QUOTE
    if quoted:
        at += 1
    negative = text[at] == 45
    if negative:
        at += 1
    value = np.int64(0)
    first = at
    while 48 <= text[at] <= 57:
        value = value * 10 + np.int64(text[at] - 48)
        at += 1
    if at == first or at - first > 19 or value < 0:
        return 0, _ODD
    if quoted:
        if text[at] != _QUOTE:
            return 0, _ODD
        at += 1
    elif text[at] > 32 and text[at] not in (_COMMA, _BRACE_END, _BRACKET_END):
        return 0, _ODD
    return (-value if negative else value), at


@borrowing
def _any_value(text: Array, at: int) -> tuple[int, int, int, int]:
    """Return what an attribute's value is, the value, its length, and the position behind it."""
    kind, value, length = NOTHING, 0, 0
    if text[at] != _BRACE:
        return kind, value, length, _ODD
    at += 1
    first = True
    while True:
        key, end, value_at = _member(text, at, first)
        first = False
        if key == _END:
            return kind, value, length, end
        if key == _ODD:
            return kind, value, length, _ODD
        if _same(text, key, end, _STRING):
            if text[value_at] != _QUOTE:
                return kind, value, length, _ODD
            stop, plain = _text_end(text, value_at + 1)
            if stop < 0:
                return kind, value, length, _ODD
            kind, value, length, at = (TEXT if plain else _UNUSUAL), value_at + 1, stop - value_at - 1, stop + 1
        elif _same(text, key, end, _INT):
            number, behind = _integer(text, value_at)
            kind, value = (NUMBER, number) if behind > 0 else (_UNUSUAL, 0)
            at = behind if behind > 0 else skip_value(text, value_at)
        elif _same(text, key, end, _BOOL):
            at = skip_value(text, value_at)
            if _same(text, value_at, at, _TRUE):
                kind, value = TRUTH, 1
            elif _same(text, value_at, at, _FALSE):
                kind, value = TRUTH, 0
            else:
                kind = _UNUSUAL
        else:
            if _same(text, key, end, _DOUBLE):
                kind = _UNUSUAL
            at = skip_value(text, value_at)
        if at < 0:
            return kind, value, length, _ODD


@borrowing
def _usual_attribute(text: Array, at: int) -> tuple[int, int, int, int, int]:
    """Read an attribute that is a text, written without blanks: its key and end, value and length, what is behind."""
    if _starts(text, at, _USUAL_KEY):
        key = at + _USUAL_KEY.size
        key_end, plain = _text_end(text, key)
        if plain and _starts(text, key_end, _USUAL_TEXT):
            value = key_end + _USUAL_TEXT.size
            value_end, plain = _text_end(text, value)
            if plain and _starts(text, value_end, _USUAL_END):
                return key, key_end, value, value_end - value, value_end + _USUAL_END.size
    return 0, 0, 0, 0, _ODD


@borrowing
def _starts(text: Array, at: int, word: Array) -> bool:
    return alike(text, at, word, 0, word.size)


@borrowing
def _json_attribute(text: Array, at: int) -> tuple[int, int, int, int, int, int]:
    """Return an attribute's key and end, what its value is, the value, its length, and what is behind."""
    key, key_end, value, length, behind = _usual_attribute(text, at)
    if behind > 0:
        return key, key_end, TEXT, value, length, behind
    kind = NOTHING
    if text[at] != _BRACE:
        return key, key_end, kind, value, length, _ODD
    at += 1
    first = True
    while True:
        name, name_end, value_at = _member(text, at, first)
        first = False
        if name == _END:
            return key, key_end, kind, value, length, (name_end if key else _ODD)
        if name == _ODD:
            return key, key_end, kind, value, length, _ODD
        if _same(text, name, name_end, _KEY):
            key = value_at + 1
            key_end, plain = _text_end(text, key)
            if text[value_at] != _QUOTE or not plain:
                return key, key_end, kind, value, length, _ODD
            at = key_end + 1
        elif _same(text, name, name_end, _VALUE):
            kind, value, length, at = _any_value(text, value_at)
        else:
            at = skip_value(text, value_at)
        if at < 0:
            return key, key_end, kind, value, length, _ODD


@borrowing
def _attributes(text: Array, at: int, span: int, arrays: SpanArrays, keys: WantedKeys) -> int:
    """Take in the attributes of a span or (below 0) of a resource; return the position behind them."""
    if text[at] != _BRACKET:
        return _ODD
    at += 1
    first = True
    while True:
        element, behind = _element(text, at, first)
        first = False
        if element == _END:
            return behind
        if element == _ODD:
            return _ODD
        key, key_end, kind, value, length, at = _json_attribute(text, element)
        if at < 0:
            return _ODD
        if kind != NOTHING and not _take_attribute(text, key, key_end, span, kind, value, length, arrays, keys):
            return _ODD


@inlined
def _take_attribute(
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
    if column and kind == _UNUSUAL:
        return False
    if column:
        _note(arrays, span, column, kind, value, length)
    return True


@borrowing
def _links(text: Array, at: int, span: int, arrays: SpanArrays) -> int:
    if text[at] != _BRACKET:
        return _ODD
    at += 1
    first = True
    while True:
        element, behind = _element(text, at, first)
        first = False
        if element == _END:
            return behind
        if element == _ODD or text[element] != _BRACE:
            return _ODD
        at = element + 1
        inner = True
        while True:
            key, end, value_at = _member(text, at, inner)
            inner = False
            if key == _END:
                at = end
                break
            if key == _ODD:
                return _ODD
            if _same(text, key, end, _SPAN_ID):
                if text[value_at] != _QUOTE:
                    return _ODD
                stop, plain = _text_end(text, value_at + 1)
                if stop < 0 or not plain:
                    return _ODD
                if stop > value_at + 1 and not _add_link(arrays, span, value_at + 1, stop - value_at - 1):
                    return _FULL
                at = stop + 1
            else:
                at = skip_value(text, value_at)
            if at < 0:
                return _ODD


@borrowing
def _span_kind(text: Array, at: int, end: int) -> int:
    """Return which kind a span says it is, 0 if it is none of those that count."""
    if end == at + 1 and text[at] in (48 + _PRODUCER, 48 + _CONSUMER):
        return int(text[at]) - 48
    if text[at] == _QUOTE and _same(text, at + 1, end - 1, _KIND_PRODUCER):
        return _PRODUCER
    if text[at] == _QUOTE and _same(text, at + 1, end - 1, _KIND_CONSUMER):
        return _CONSUMER
    return 0


@borrowing
def _failed(text: Array, at: int) -> tuple[bool, int]:
    """Return whether a status says that the operation failed, and the position behind it."""
    failed = False
    if text[at] != _BRACE:
        return failed, _ODD
    at += 1
    first = True
    while True:
        key, end, value_at = _member(text, at, first)
        first = False
        if key == _END:
            return failed, end
        if key == _ODD:
            return failed, _ODD
        at = skip_value(text, value_at)
        if at < 0:
            return failed, _ODD
        if _same(text, key, end, _CODE):
            failed = (at == value_at + 1 and text[value_at] == 48 + _ERROR) or (
                text[value_at] == _QUOTE and _same(text, value_at + 1, at - 1, _CODE_ERROR)
            )


@borrowing
def _span(text: Array, at: int, arrays: SpanArrays, keys: WantedKeys) -> int:
    if text[at] != _BRACE:
        return _ODD
    span = _begin_span(arrays, at)
    if span < 0:
        return span
    _note(arrays, span, START, NUMBER, 0, 0)
    at += 1
    first = True
    while True:
        key, end, value_at = _member(text, at, first)
        first = False
        if key == _END:
            arrays.extent[1, span] = end
            return end
        if key == _ODD:
            return _ODD
        size = end - key
        if size == 10 and _same(text, key, end, _ATTRIBUTES):
            at = _attributes(text, value_at, span, arrays, keys)
        elif size == 17 and _same(text, key, end, _START_TIME):
            start, at = _integer(text, value_at)
            _note(arrays, span, START, NUMBER, start, 0)
        elif size == 4 and _same(text, key, end, _KIND_WORD):
            at = skip_value(text, value_at)
            kind = _span_kind(text, value_at, at) if at > 0 else 0
            if kind:
                _note(arrays, span, KIND, NUMBER, kind, 0)
        elif size == 6 and _same(text, key, end, _STATUS):
            failed, at = _failed(text, value_at)
            if failed:
                _note(arrays, span, FAILED, TRUTH, 1, 0)
        elif (size == 6 and _same(text, key, end, _SPAN_ID)) or (size == 12 and _same(text, key, end, _PARENT_ID)):
            if text[value_at] != _QUOTE:
                return _ODD
            stop, plain = _text_end(text, value_at + 1)
            if stop < 0 or not plain:
                return _ODD
            if stop > value_at + 1:
                _note(arrays, span, SPAN if size == 6 else PARENT, TEXT, value_at + 1, stop - value_at - 1)
            at = stop + 1
        elif size == 5 and _same(text, key, end, _LINKS):
            at = _links(text, value_at, span, arrays)
        else:
            at = skip_value(text, value_at)
        if at < 0:
            return at


# Where in an export a scanner is: an odd number is a list of the objects that the next number is.
_AT_EXPORT, _AT_RESOURCE_SPANS, _AT_RESOURCE_SPAN, _AT_SCOPES, _AT_SCOPE, _AT_SPANS, _AT_RESOURCE = 0, 1, 2, 3, 4, 5, 6
_AT_ATTRIBUTES, _ELSEWHERE, _DEPTH_MAX = 7, 8, 8


@borrowing
def _way(text: Array, key: int, end: int, place: int) -> int:
    """Return where a key of an object leads to."""
    if place == _AT_EXPORT and _same(text, key, end, _RESOURCE_SPANS):
        return _AT_RESOURCE_SPANS
    if place == _AT_RESOURCE_SPAN:
        if _same(text, key, end, _RESOURCE):
            return _AT_RESOURCE
        if _same(text, key, end, _SCOPE_SPANS) or _same(text, key, end, _LIBRARY_SPANS):
            return _AT_SCOPES
    if place == _AT_SCOPE and _same(text, key, end, _SPANS):
        return _AT_SPANS
    if place == _AT_RESOURCE and _same(text, key, end, _ATTRIBUTES):
        return _AT_ATTRIBUTES
    return _ELSEWHERE


@borrowing
def _export(text: Array, at: int, arrays: SpanArrays, keys: WantedKeys) -> int:
    """Take in one export; return the position behind it. What does not lead to spans or a resource is skipped."""
    if text[at] != _BRACE:
        return _ODD
    places = arrays.places
    places[0] = _AT_EXPORT
    depth, first, at = 1, True, at + 1
    first_span, scopes = 0, 0
    while depth:
        place = places[depth - 1]
        if place in (_AT_RESOURCE_SPANS, _AT_SCOPES, _AT_SPANS):
            inner, behind = _element(text, at, first)
            way = place + 1
        else:
            key, behind, inner = _member(text, at, first)
            way = _ELSEWHERE if key < 0 else _way(text, key, behind, place)
            inner = key if key < 0 else inner
        first = False
        if inner == _ODD:
            return _ODD
        if inner == _END:
            at = behind
            depth -= 1
            if place == _AT_RESOURCE_SPAN:
                _end_resource(arrays, first_span)
        elif way == _ELSEWHERE:
            at = skip_value(text, inner)
        elif way == _AT_ATTRIBUTES:
            at = _attributes(text, inner, -1, arrays, keys)
        elif place == _AT_SPANS:
            at = _span(text, inner, arrays, keys)
        else:
            if text[inner] != (_BRACKET if way in (_AT_RESOURCE_SPANS, _AT_SCOPES, _AT_SPANS) else _BRACE):
                return _ODD
            if way == _AT_RESOURCE_SPAN:
                arrays.resource[0, :] = NOTHING
                first_span, scopes = arrays.counts[0], 0
            scopes += way == _AT_SCOPES
            if scopes > 1:
                return _ODD
            places[depth] = way
            depth += 1
            first, at = True, inner + 1
        if at < 0:
            return at
    return at


@borrowing
def scan_json(text: Array, at: int, arrays: SpanArrays, keys: WantedKeys) -> tuple[int, bool]:
    """Take in exports, one after the other; return how far it came, and whether what follows there is unusual.

    It stops before an export for whose spans there is no room.
    """
    while True:
        at = _blank(text, at)
        if text[at] == 0:
            return at, False
        spans, links = arrays.counts[0], arrays.counts[1]
        behind = _export(text, at, arrays, keys)
        if behind < 0:
            arrays.counts[0], arrays.counts[1] = spans, links
            return at, behind != _FULL
        at = behind


# --- protobuf ---------------------------------------------------------------------------------------------------------


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
    return 0, _ODD


@borrowing
def _field(content: Array, at: int, stop: int) -> tuple[int, Any, int, int]:
    """Return the number of the next field, its value (or where its content begins), its length, and what is behind."""
    tag, at = _varint(content, at, stop)
    if at < 0:
        return 0, 0, 0, _ODD
    kind = tag & 7
    value: Any = np.int64(0)
    length = 0
    if kind == 0:
        value, at = _varint(content, at, stop)
    elif kind in (1, 5):
        length = 8 if kind == 1 else 4
        if at + length > stop:
            return 0, 0, 0, _ODD
        bits = np.uint64(0)
        for i in range(length):
            bits |= np.uint64(content[at + i]) << np.uint64(8 * i)
        value, at = np.int64(bits), at + length
    elif kind == 2:
        length, at = _varint(content, at, stop)
        if at < 0 or length < 0 or at + length > stop:
            return 0, 0, 0, _ODD
        value, at = at, at + length
    else:
        return 0, 0, 0, _ODD
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
        _take_attribute(content, key, key + usual, span, TEXT, text, stop - text, arrays, keys)
        return stop
    key = size = 0
    kind, noted, noted_length = NOTHING, 0, 0
    while at < stop:
        number, value, length, at = _field(content, at, stop)
        if at < 0:
            return _ODD
        if number == 1:
            key, size = value, length
        elif number == 2:
            inner, end = value, value + length
            while inner < end:
                number, value, length, inner = _field(content, inner, end)
                if inner < 0:
                    return _ODD
                if number == 1:
                    kind, noted, noted_length = TEXT, value, length
                elif number == 2:
                    kind, noted = TRUTH, (1 if value else 0)
                elif number == 3:
                    kind, noted = NUMBER, value
                elif number == 4:
                    kind = _UNUSUAL
    if kind == NOTHING:
        return at
    if not key:
        return _ODD
    good = _take_attribute(content, key, key + size, span, kind, noted, noted_length, arrays, keys)
    return at if good else _ODD


@borrowing
def _protobuf_span(content: Array, at: int, stop: int, arrays: SpanArrays, keys: WantedKeys) -> int:
    span = _begin_span(arrays, at)
    if span < 0:
        return span
    arrays.extent[1, span] = stop
    _note(arrays, span, START, NUMBER, 0, 0)
    while at < stop:
        number, value, length, at = _field(content, at, stop)
        if at < 0:
            return _ODD
        if number == 9:
            if _attribute(content, value, value + length, span, arrays, keys) < 0:
                return _ODD
        elif number == 7:
            _note(arrays, span, START, NUMBER, value, 0)
        elif number == 6:
            if value in (_PRODUCER, _CONSUMER):
                _note(arrays, span, KIND, NUMBER, value, 0)
        elif number in (2, 4):
            if length:
                _note(arrays, span, SPAN if number == 2 else PARENT, TEXT, value, length)
        elif number == 13:
            inner, end = value, value + length
            while inner < end:
                number, value, length, inner = _field(content, inner, end)
                if inner < 0:
                    return _ODD
                if number == 2 and length and not _add_link(arrays, span, value, length):
                    return _FULL
        elif number == 15:
            inner, end = value, value + length
            while inner < end:
                number, value, length, inner = _field(content, inner, end)
                if inner < 0:
                    return _ODD
                if number == 3 and value == _ERROR:
                    _note(arrays, span, FAILED, TRUTH, 1, 0)
    return at


@borrowing
def scan_protobuf(content: Array, at: int, stop: int, arrays: SpanArrays, keys: WantedKeys) -> int:
    """Take in one export; below 0 if it is unusual (-2), or if there is no room for its spans (-3)."""
    while at < stop:
        number, value, length, at = _field(content, at, stop)
        if at < 0:
            return _ODD
        if number != 1:
            continue
        arrays.resource[0, :] = NOTHING
        first_span = arrays.counts[0]
        part, end = value, value + length
        while part < end:
            number, value, length, part = _field(content, part, end)
            if part < 0:
                return _ODD
            inner, inner_end = value, value + length
            while number in (1, 2) and inner < inner_end:
                of, value, length, inner = _field(content, inner, inner_end)
                if inner < 0:
                    return _ODD
                if number == 1 and of == 1:
                    if _attribute(content, value, value + length, -1, arrays, keys) < 0:
                        return _ODD
                elif number == 2 and of == 2:
                    behind = _protobuf_span(content, value, value + length, arrays, keys)
                    if behind < 0:
                        return behind
        _end_resource(arrays, first_span)
    return at


def no_room(position: int) -> bool:
    """Say whether a scanner of protobuf stopped for want of room."""
    return position == _FULL


# --- texts ------------------------------------------------------------------------------------------------------------


@borrowing
def gather(content: Array, kind: Array, value: Array, length: Array, offsets: Array, out: Array, as_hex: bool) -> int:
    """Put the texts of a column one after the other; return how long they are together (`out` may be too short)."""
    digits = b"0123456789abcdef"
    at = 0
    for row in range(kind.size):
        offsets[row] = at
        if kind[row] == TEXT:
            start, size = value[row], length[row]
            whole = 2 * size if as_hex else size
            if at + whole <= out.size:
                if as_hex:
                    for i in range(size):
                        byte = content[start + i]
                        out[at + 2 * i], out[at + 2 * i + 1] = digits[byte >> 4], digits[byte & 15]
                else:
                    for i in range(size):
                        out[at + i] = content[start + i]
            at += whole
    offsets[kind.size] = at
    return at


FEW: Final = 256  # distinct texts that a column may have to be coded
_SLOTS: Final = 1024


@compiled
def code_texts(content: Array, kind: Array, value: Array, length: Array, codes: Array, first: Array) -> int:
    """Number the texts of a column by their first appearance, -1 where there is none; 0 if too many are distinct.

    `first` gets the row in which each appears first; returns how many there are.
    """
    slots = np.full(_SLOTS, -1, np.int32)
    few = 0
    last = -1  # the row of the text before
    for row in range(kind.size):
        codes[row] = -1
        if kind[row] != TEXT:
            continue
        start, size = value[row], length[row]
        if (
            last >= 0
            and length[last] == size
            and (value[last] == start or alike(content, value[last], content, start, size))
        ):
            codes[row] = codes[last]
            continue
        last = row
        mixed = np.uint64(size)
        for i in range(size):
            mixed = (mixed ^ np.uint64(content[start + i])) * np.uint64(1099511628211)
        slot = np.int64(mixed >> np.uint64(32)) % _SLOTS
        while slots[slot] >= 0:
            known = first[slots[slot]]
            if length[known] == size and alike(content, value[known], content, start, size):
                break
            slot = (slot + 1) % _SLOTS
        if slots[slot] < 0:
            if few == first.size:
                return 0
            slots[slot] = few
            first[few] = row
            few += 1
        codes[row] = slots[slot]
    return few
