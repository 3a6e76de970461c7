"""Compiled steps through JSON in a block of bytes: texts, numbers, members of objects, elements of lists."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from antiphon.pipeline.columns import Array
from antiphon.pipeline.ingesting.foreign.span_arrays import END, ODD
from antiphon.pipeline.kernels import borrowing, word_at

PADDING: Final = 64  # zeros behind a text, so that nothing needs to look whether it has ended

QUOTE, BRACE, BRACKET = ord('"'), ord("{"), ord("[")
_ESCAPE, _COMMA, _COLON, _BRACE_END, _BRACKET_END = ord("\\"), ord(","), ord(":"), ord("}"), ord("]")
# bytes that mean something in a text
_SPECIAL = np.array([byte < 32 or byte in (QUOTE, _ESCAPE) for byte in range(256)])
_ONES, _HIGHEST_BITS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)  # of eight bytes at once
_QUOTES, _ESCAPES = np.uint64(0x2222222222222222), np.uint64(0x5C5C5C5C5C5C5C5C)
_ABOVE_CONTROLS = np.uint64(0xE0E0E0E0E0E0E0E0)  # the bits of which a byte from 32 on has one


@borrowing
def skip_blanks(text: Array, at: int) -> int:
    """Return the next position that is not blank."""
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
def text_end(text: Array, at: int) -> tuple[int, bool]:
    """Return the position of the quote that ends a text, below 0 if none does, and whether it has no escapes."""
    plain = True
    while True:
        while not _has_special(word_at(text, at)):
            at += 8
        while not _SPECIAL[text[at]]:
            at += 1
        if text[at] == QUOTE:
            return at, plain
        if text[at] != _ESCAPE:
            return ODD, False
        plain = False
        at += 2


@borrowing
def plain_text(text: Array, at: int) -> tuple[int, int, int]:
    """Return the start and the length of a text without escapes, and what is behind; below 0 if it is none."""
    if text[at] != QUOTE:
        return 0, 0, ODD
    end, plain = text_end(text, at + 1)
    if end < 0 or not plain:
        return 0, 0, ODD
    return at + 1, end - at - 1, end + 1


@borrowing
def skip_value(text: Array, at: int) -> int:
    """Return the position behind a value; below 0 if it has no end."""
    depth = 0
    while True:
        byte = text[at]
        if byte == QUOTE:
            end, _ = text_end(text, at + 1)
            if end < 0:
                return ODD
            at = end + 1
        elif byte in (BRACE, BRACKET):
            depth += 1
            at += 1
        elif byte in (_BRACE_END, _BRACKET_END):
            if depth == 0:
                return ODD
            depth -= 1
            at += 1
        elif byte in (_COMMA, _COLON) or byte <= 32:
            if depth == 0 or byte == 0:
                return ODD
            at += 1
            continue
        else:  # a number or a word
            while text[at] > 32 and text[at] not in (_COMMA, _COLON, QUOTE, _BRACE_END, _BRACKET_END):
                at += 1
        if depth == 0:
            return at


@borrowing
def next_member(text: Array, at: int, first: bool) -> tuple[int, int, int]:
    """Return key, its end and value of an object's next member; (END, what is behind, 0) or (ODD, 0, 0)."""
    at = skip_blanks(text, at)
    if text[at] == _BRACE_END:
        return END, at + 1, 0
    if not first:
        if text[at] != _COMMA:
            return ODD, 0, 0
        at = skip_blanks(text, at + 1)
    if text[at] != QUOTE:
        return ODD, 0, 0
    end, plain = text_end(text, at + 1)
    if end < 0 or not plain:
        return ODD, 0, 0
    colon = skip_blanks(text, end + 1)
    if text[colon] != _COLON:
        return ODD, 0, 0
    return at + 1, end, skip_blanks(text, colon + 1)


@borrowing
def next_element(text: Array, at: int, first: bool) -> tuple[int, int]:
    """Return the position of an array's next element; (END, position behind) at its end, or (ODD, 0)."""
    at = skip_blanks(text, at)
    if text[at] == _BRACKET_END:
        return END, at + 1
    if not first:
        if text[at] != _COMMA:
            return ODD, 0
        at = skip_blanks(text, at + 1)
    return at, 0


@borrowing
def read_integer(text: Array, at: int) -> tuple[Any, int]:
    """Return a number, quoted or not, and the position behind it, below 0 if it is none of up to 18 digits."""
    quoted = text[at] == QUOTE
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
        return 0, ODD
    if quoted:
        if text[at] != QUOTE:
            return 0, ODD
        at += 1
    elif text[at] > 32 and text[at] not in (_COMMA, _BRACE_END, _BRACKET_END):
        return 0, ODD
    return (-value if negative else value), at
