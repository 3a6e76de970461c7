"""In which unit a log's times are: as a mapping says, as the name of the key says, or as the numbers suggest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

TimeUnit: TypeAlias = Literal["", "s", "ms", "us", "ns"]  # "": by the size of each number

SCALES: Final[dict[TimeUnit, int]] = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
UNIT_WORDS: Final[dict[TimeUnit, str]] = {
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
    "ns": "nanoseconds",
}
GAP_NS_MAX: Final = 100_000_000  # most logs have more than ten events a second: what times since 0 are guessed by
_SINCE_1970: Final = (1e18, 4.1e18)  # nanoseconds, from 2001 to 2099: times in it are dates, in whatever unit
LATEST_NS: Final = 9.0e18  # that 64 bits can say
_NAMES: Final[dict[TimeUnit, tuple[str, ...]]] = {
    "s": ("s", "sec", "secs", "second", "seconds"),
    "ms": ("ms", "msec", "milli", "millis", "millisecond", "milliseconds"),
    "us": ("us", "usec", "micro", "micros", "microsecond", "microseconds"),
    "ns": ("ns", "nsec", "nano", "nanos", "nanosecond", "nanoseconds"),
}
_NAMED: Final = {word: unit for unit, words in _NAMES.items() for word in words}
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def unit_named(key: str) -> TimeUnit:
    """Return the unit that the last word of a key names, as in `sent_ms` or `startTimeUnixNano`; "" if it names none.

    >>> unit_named("start_time_ms"), unit_named("timeUnixNano"), unit_named("timestamp")
    ('ms', 'ns', '')
    """
    words = _WORDS.findall(key)
    return _NAMED.get(words[-1].lower(), "") if len(words) > 1 else ""


def guess_unit(times: Sequence[float]) -> TimeUnit:
    """Return the unit in which small numbers are likely times since some beginning; "" where their size tells it.

    Numbers with a fraction are seconds. Whole ones are in the coarsest unit in which half of the events come within a
    tenth of a second of each other.
    """
    values = np.sort(np.asarray(times, np.float64))
    if len(values) < 2 or bool(_are_dates(values).all()):
        return ""
    if bool((values != np.trunc(values)).any()):
        return "s"
    gap = float(np.median(np.diff(values)))
    return next((unit for unit in ("ms", "us") if gap * SCALES[unit] <= GAP_NS_MAX), "ns")


def guess_words(unit: TimeUnit) -> str:
    """Say in a sentence what was guessed, and how one says it oneself."""
    if not unit:
        return ""
    read = f"Times are taken for {UNIT_WORDS[unit]}, by how close they are to each other"
    return f"{read}: nothing in the log says their unit, but time_unit in a mapping file can"


def _are_dates(values: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    low, high = _SINCE_1970
    found = np.zeros(len(values), bool)
    for scale in SCALES.values():
        found |= (values * scale >= low) & (values * scale <= high)
    return found


def nanoseconds(value: Any, unit: TimeUnit = "") -> int | None:
    """Return a time as nanoseconds: of ISO 8601 text, or of a number in a unit; without one, by the number's size."""
    if value is None:
        return None
    if isinstance(value, str) and not value.replace(".", "", 1).isdigit():
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return None
        return int(moment.timestamp() * 1_000_000) * 1_000
    if isinstance(value, str) and value.isdigit():
        value = int(value)
    try:
        number = float(value)
    except (ValueError, TypeError):
        return None
    scale = SCALES[unit or _unit_by_size(number)]
    if not abs(number) * scale < LATEST_NS:
        return None
    return value * scale if isinstance(value, int) else int(number * scale)


def times_as_nanoseconds(column: pa.Array, unit: TimeUnit = "") -> pa.Array | None:
    """Return what `nanoseconds` says of each value of a column; None of a column whose values are no times."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        if not pc.all(pc.match_substring_regex(column, r"^[0-8]?[0-9]{1,18}$")).as_py():
            return pa.array([nanoseconds(value, unit) for value in column.to_pylist()], pa.int64())
        column = column.cast(pa.int64())
    if not (pa.types.is_signed_integer(column.type) or pa.types.is_floating(column.type)):
        return None
    missing = column.is_null().to_numpy(zero_copy_only=False)
    values = column.fill_null(0).to_numpy(zero_copy_only=False)
    number = values.astype(np.float64)
    scale = np.full(len(values), SCALES[unit or "s"], np.int64)
    for by_size, least in () if unit else reversed(SIZES):
        scale[number >= least] = SCALES[by_size]
    good = np.abs(number) * scale < LATEST_NS
    return pa.array((np.where(good, values, 0) * scale).astype(np.int64), mask=missing | ~good)


def _unit_by_size(number: float) -> TimeUnit:
    return next((unit for unit, least in SIZES if number >= least), "s")


# from where on a number is in a unit, if nothing else tells; seconds below
SIZES: Final[tuple[tuple[TimeUnit, float], ...]] = (("ns", 1e17), ("us", 1e14), ("ms", 1e11))
