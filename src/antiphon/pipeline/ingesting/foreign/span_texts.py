"""Compiled loops that take the texts of scanned spans out of an export: one after the other, or coded."""

from __future__ import annotations

from typing import Final

import numpy as np

from antiphon.pipeline.columns import Array
from antiphon.pipeline.ingesting.foreign.span_arrays import TEXT
from antiphon.pipeline.kernels import alike, borrowing, compiled

FEW: Final = 256  # distinct texts that a column may have to be coded
_SLOTS: Final = 1024


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
