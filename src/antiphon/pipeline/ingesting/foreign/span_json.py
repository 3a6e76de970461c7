"""A compiled scanner of OpenTelemetry exports in JSON: the values of wanted attributes, as arrays over the spans.

It gives up on what is unusual (a wanted text with escapes, a fraction where a text is wanted, damage): then the export
is read by `otlp.py`, record by record, which also says what is wrong with it.
"""

from __future__ import annotations

from antiphon.pipeline.columns import Array
from antiphon.pipeline.ingesting.foreign.json_steps import (
    BRACE,
    BRACKET,
    QUOTE,
    next_element,
    next_member,
    plain_text,
    read_integer,
    skip_blanks,
    skip_value,
    text_end,
)
from antiphon.pipeline.ingesting.foreign.span_arrays import (
    CONSUMER,
    END,
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
    same_text,
    take_attribute,
    word_bytes,
)
from antiphon.pipeline.kernels import alike, borrowing

_RESOURCE_SPANS, _RESOURCE = word_bytes("resourceSpans"), word_bytes("resource")
_SCOPE_SPANS, _LIBRARY_SPANS = word_bytes("scopeSpans"), word_bytes("instrumentationLibrarySpans")
_SPANS, _ATTRIBUTES = word_bytes("spans"), word_bytes("attributes")
_KEY, _VALUE = word_bytes("key"), word_bytes("value")
_START_TIME, _KIND_WORD = word_bytes("startTimeUnixNano"), word_bytes("kind")
_STATUS, _CODE = word_bytes("status"), word_bytes("code")
_SPAN_ID, _PARENT_ID, _LINKS = word_bytes("spanId"), word_bytes("parentSpanId"), word_bytes("links")
_STRING, _INT = word_bytes("stringValue"), word_bytes("intValue")
_BOOL, _DOUBLE = word_bytes("boolValue"), word_bytes("doubleValue")
_TRUE, _FALSE = word_bytes("true"), word_bytes("false")
_KIND_PRODUCER, _KIND_CONSUMER = word_bytes("SPAN_KIND_PRODUCER"), word_bytes("SPAN_KIND_CONSUMER")
_CODE_ERROR = word_bytes("STATUS_CODE_ERROR")
# an attribute as collectors write it, without blanks
_USUAL_KEY, _USUAL_TEXT = word_bytes('{"key":"'), word_bytes('","value":{"stringValue":"')
_USUAL_END = word_bytes('"}}')


@borrowing
def _any_value(text: Array, at: int) -> tuple[int, int, int, int]:
    """Return what an attribute's value is, the value, its length, and the position behind it."""
    kind, value, length = NOTHING, 0, 0
    if text[at] != BRACE:
        return kind, value, length, ODD
    at += 1
    first = True
    while True:
        key, end, value_at = next_member(text, at, first)
        first = False
        if key == END:
            return kind, value, length, end
        if key == ODD:
            return kind, value, length, ODD
        if same_text(text, key, end, _STRING):
            if text[value_at] != QUOTE:
                return kind, value, length, ODD
            stop, plain = text_end(text, value_at + 1)
            if stop < 0:
                return kind, value, length, ODD
            kind, value, length, at = (TEXT if plain else UNUSUAL), value_at + 1, stop - value_at - 1, stop + 1
        elif same_text(text, key, end, _INT):
            number, behind = read_integer(text, value_at)
            kind, value = (NUMBER, number) if behind > 0 else (UNUSUAL, 0)
            at = behind if behind > 0 else skip_value(text, value_at)
        elif same_text(text, key, end, _BOOL):
            at = skip_value(text, value_at)
            if same_text(text, value_at, at, _TRUE):
                kind, value = TRUTH, 1
            elif same_text(text, value_at, at, _FALSE):
                kind, value = TRUTH, 0
            else:
                kind = UNUSUAL
        else:
            if same_text(text, key, end, _DOUBLE):
                kind = UNUSUAL
            at = skip_value(text, value_at)
        if at < 0:
            return kind, value, length, ODD


@borrowing
def _usual_attribute(text: Array, at: int) -> tuple[int, int, int, int, int]:
    """Read an attribute that is a text, written without blanks: its key and end, value and length, what is behind."""
    if _starts(text, at, _USUAL_KEY):
        key = at + _USUAL_KEY.size
        key_end, plain = text_end(text, key)
        if plain and _starts(text, key_end, _USUAL_TEXT):
            value = key_end + _USUAL_TEXT.size
            value_end, plain = text_end(text, value)
            if plain and _starts(text, value_end, _USUAL_END):
                return key, key_end, value, value_end - value, value_end + _USUAL_END.size
    return 0, 0, 0, 0, ODD


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
    if text[at] != BRACE:
        return key, key_end, kind, value, length, ODD
    at += 1
    first = True
    while True:
        name, name_end, value_at = next_member(text, at, first)
        first = False
        if name == END:
            return key, key_end, kind, value, length, (name_end if key else ODD)
        if name == ODD:
            return key, key_end, kind, value, length, ODD
        if same_text(text, name, name_end, _KEY):
            key, size, at = plain_text(text, value_at)
            key_end = key + size
        elif same_text(text, name, name_end, _VALUE):
            kind, value, length, at = _any_value(text, value_at)
        else:
            at = skip_value(text, value_at)
        if at < 0:
            return key, key_end, kind, value, length, ODD


@borrowing
def _attributes(text: Array, at: int, span: int, arrays: SpanArrays, keys: WantedKeys) -> int:
    """Take in the attributes of a span or (below 0) of a resource; return the position behind them."""
    if text[at] != BRACKET:
        return ODD
    at += 1
    first = True
    while True:
        element, behind = next_element(text, at, first)
        first = False
        if element == END:
            return behind
        if element == ODD:
            return ODD
        key, key_end, kind, value, length, at = _json_attribute(text, element)
        if at < 0:
            return ODD
        if kind != NOTHING and not take_attribute(text, key, key_end, span, kind, value, length, arrays, keys):
            return ODD


@borrowing
def _links(text: Array, at: int, span: int, arrays: SpanArrays) -> int:
    if text[at] != BRACKET:
        return ODD
    at += 1
    first = True
    while True:
        element, behind = next_element(text, at, first)
        first = False
        if element == END:
            return behind
        if element == ODD or text[element] != BRACE:
            return ODD
        at = element + 1
        inner = True
        while True:
            key, end, value_at = next_member(text, at, inner)
            inner = False
            if key == END:
                at = end
                break
            if key == ODD:
                return ODD
            if same_text(text, key, end, _SPAN_ID):
                start, length, at = plain_text(text, value_at)
                if length and not add_link(arrays, span, start, length):
                    return FULL
            else:
                at = skip_value(text, value_at)
            if at < 0:
                return ODD


@borrowing
def _span_kind(text: Array, at: int, end: int) -> int:
    """Return which kind a span says it is, 0 if it is none of those that count."""
    if end == at + 1 and text[at] in (48 + PRODUCER, 48 + CONSUMER):
        return int(text[at]) - 48
    if text[at] == QUOTE and same_text(text, at + 1, end - 1, _KIND_PRODUCER):
        return PRODUCER
    if text[at] == QUOTE and same_text(text, at + 1, end - 1, _KIND_CONSUMER):
        return CONSUMER
    return 0


@borrowing
def _failed(text: Array, at: int) -> tuple[bool, int]:
    """Return whether a status says that the operation failed, and the position behind it."""
    failed = False
    if text[at] != BRACE:
        return failed, ODD
    at += 1
    first = True
    while True:
        key, end, value_at = next_member(text, at, first)
        first = False
        if key == END:
            return failed, end
        if key == ODD:
            return failed, ODD
        at = skip_value(text, value_at)
        if at < 0:
            return failed, ODD
        if same_text(text, key, end, _CODE):
            failed = (at == value_at + 1 and text[value_at] == 48 + ERROR) or (
                text[value_at] == QUOTE and same_text(text, value_at + 1, at - 1, _CODE_ERROR)
            )


@borrowing
def _span(text: Array, at: int, arrays: SpanArrays, keys: WantedKeys) -> int:
    if text[at] != BRACE:
        return ODD
    span = begin_span(arrays, at)
    if span < 0:
        return span
    note(arrays, span, START, NUMBER, 0, 0)
    at += 1
    first = True
    while True:
        key, end, value_at = next_member(text, at, first)
        first = False
        if key == END:
            arrays.extent[1, span] = end
            return end
        if key == ODD:
            return ODD
        size = end - key
        if size == 10 and same_text(text, key, end, _ATTRIBUTES):
            at = _attributes(text, value_at, span, arrays, keys)
        elif size == 17 and same_text(text, key, end, _START_TIME):
            time, at = read_integer(text, value_at)
            note(arrays, span, START, NUMBER, time, 0)
        elif size == 4 and same_text(text, key, end, _KIND_WORD):
            at = skip_value(text, value_at)
            kind = _span_kind(text, value_at, at) if at > 0 else 0
            if kind:
                note(arrays, span, KIND, NUMBER, kind, 0)
        elif size == 6 and same_text(text, key, end, _STATUS):
            failed, at = _failed(text, value_at)
            if failed:
                note(arrays, span, FAILED, TRUTH, 1, 0)
        elif size in (6, 12) and (same_text(text, key, end, _SPAN_ID) or same_text(text, key, end, _PARENT_ID)):
            start, length, at = plain_text(text, value_at)
            if length:
                note(arrays, span, SPAN if size == 6 else PARENT, TEXT, start, length)
        elif size == 5 and same_text(text, key, end, _LINKS):
            at = _links(text, value_at, span, arrays)
        else:
            at = skip_value(text, value_at)
        if at < 0:
            return at


# Where in an export a scanner is: an odd number is a list of the objects that the next number is.
_AT_EXPORT, _AT_RESOURCE_SPANS, _AT_RESOURCE_SPAN, _AT_SCOPES, _AT_SCOPE, _AT_SPANS, _AT_RESOURCE = 0, 1, 2, 3, 4, 5, 6
_AT_ATTRIBUTES, _ELSEWHERE = 7, 8


@borrowing
def _way(text: Array, key: int, end: int, place: int) -> int:
    """Return where a key of an object leads to."""
    if place == _AT_EXPORT and same_text(text, key, end, _RESOURCE_SPANS):
        return _AT_RESOURCE_SPANS
    if place == _AT_RESOURCE_SPAN:
        if same_text(text, key, end, _RESOURCE):
            return _AT_RESOURCE
        if same_text(text, key, end, _SCOPE_SPANS) or same_text(text, key, end, _LIBRARY_SPANS):
            return _AT_SCOPES
    if place == _AT_SCOPE and same_text(text, key, end, _SPANS):
        return _AT_SPANS
    if place == _AT_RESOURCE and same_text(text, key, end, _ATTRIBUTES):
        return _AT_ATTRIBUTES
    return _ELSEWHERE


@borrowing
def _export(text: Array, at: int, arrays: SpanArrays, keys: WantedKeys) -> int:
    """Take in one export; return the position behind it. What does not lead to spans or a resource is skipped."""
    if text[at] != BRACE:
        return ODD
    places = arrays.places
    places[0] = _AT_EXPORT
    depth, first, at = 1, True, at + 1
    first_span, scopes = 0, 0
    while depth:
        place = places[depth - 1]
        if place in (_AT_RESOURCE_SPANS, _AT_SCOPES, _AT_SPANS):
            inner, behind = next_element(text, at, first)
            way = place + 1
        else:
            key, behind, inner = next_member(text, at, first)
            way = _ELSEWHERE if key < 0 else _way(text, key, behind, place)
            inner = key if key < 0 else inner
        first = False
        if inner == ODD:
            return ODD
        if inner == END:
            at = behind
            depth -= 1
            if place == _AT_RESOURCE_SPAN:
                end_resource(arrays, first_span)
        elif way == _ELSEWHERE:
            at = skip_value(text, inner)
        elif way == _AT_ATTRIBUTES:
            at = _attributes(text, inner, -1, arrays, keys)
        elif place == _AT_SPANS:
            at = _span(text, inner, arrays, keys)
        else:
            if text[inner] != (BRACKET if way in (_AT_RESOURCE_SPANS, _AT_SCOPES, _AT_SPANS) else BRACE):
                return ODD
            if way == _AT_RESOURCE_SPAN:
                arrays.resource[0, :] = NOTHING
                first_span, scopes = arrays.counts[0], 0
            scopes += way == _AT_SCOPES
            if scopes > 1:
                return ODD
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
        at = skip_blanks(text, at)
        if text[at] == 0:
            return at, False
        spans, links = arrays.counts[0], arrays.counts[1]
        behind = _export(text, at, arrays, keys)
        if behind < 0:
            arrays.counts[0], arrays.counts[1] = spans, links
            return at, behind != FULL
        at = behind
