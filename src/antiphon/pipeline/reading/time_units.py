"""In which unit a log's times are: as a mapping says, as the name of the key says, or as the numbers suggest."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, Literal, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

TimeUnit: TypeAlias = Literal["", "s", "ms", "us", "ns"]  # "": by the size of each number, if it is a date

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
NUMBER: Final = r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,2})?\s*$"
_NUMBER: Final = re.compile(NUMBER)
_ISO: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d)?)(?:[.,](\d+))?\s*(Z|z|UTC|GMT|[+-]\d\d(?::?\d\d)?)?", re.ASCII
)
_PLAIN_ISO: Final = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:?[0-9]{2})?$"
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def unit_named(key: str) -> TimeUnit:
    """Return the unit that the last word of a key names, as in `sent_ms` or `startTimeUnixNano`; "" if it names none.

    >>> unit_named("start_time_ms"), unit_named("timeUnixNano"), unit_named("timestamp")
    ('ms', 'ns', '')
    """
    words = _WORDS.findall(key)
    return _NAMED.get(words[-1].lower(), "") if len(words) > 1 else ""


class TimeReading(msgspec.Struct, frozen=True, omit_defaults=True):
    """In which unit a log's times were read, and what said so."""

    unit: TimeUnit = ""
    by: Literal["", "mapping", "preset", "name", "size", "closeness", "unreadable"] = ""
    example: str = ""  # of times of which none could be read

    def words(self) -> str:
        """Say what was decided where the log leaves it open, and how one says it oneself; else nothing."""
        if self.by == "size":
            return f"Times are taken for {UNIT_WORDS[self.unit]} since 1970, by their size"
        if self.by == "unreadable":
            return f"Times are left out: they are neither ISO 8601 nor numbers, but as {self.example!r}"
        if self.by != "closeness":
            return ""
        read = f"Times are taken for {UNIT_WORDS[self.unit]}, by how close they are to each other"
        return f"{read}: nothing in the log says their unit, but time_unit in a mapping file can"


UNSAID: Final = TimeReading()  # nothing had to be decided


def guess_unit(times: Sequence[float]) -> TimeReading:
    """Return the unit in which numbers are likely times: dates by their size, others by how close they are.

    Of those since some beginning, numbers with a fraction are seconds. Whole ones are in the coarsest unit in which
    half of the events come within a tenth of a second of each other. A single one tells nothing.
    """
    values = np.sort(np.asarray(times, np.float64))
    units: list[TimeUnit] = [unit for value in values.tolist() if (unit := _unit_by_size(value))]
    if len(units) * 2 > len(values):
        return TimeReading(max(units, key=units.count), "size")
    if len(values) < 2:
        return UNSAID
    if bool((values != np.trunc(values)).any()):
        return TimeReading("s", "closeness")
    gap = float(np.median(np.diff(values)))
    coarse: tuple[TimeUnit, ...] = ("ms", "us")
    return TimeReading(next((unit for unit in coarse if gap * SCALES[unit] <= GAP_NS_MAX), "ns"), "closeness")


def nanoseconds(value: Any, unit: TimeUnit = "") -> int | None:
    """Return a time as nanoseconds: a moment, ISO 8601 text, or a number in a unit; without one, only a date has one.

    >>> nanoseconds("2026-11-18T09:22:14.123456789+01:00"), nanoseconds("1.5", "ms"), nanoseconds(1_763_000_000)
    (1794990134123456789, 1500000, 1763000000000000000)
    """
    if isinstance(value, datetime):
        return _of_moment(value) + int(getattr(value, "nanosecond", 0))  # which pandas has besides
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value):
            return iso_nanoseconds(value)
        value = Decimal(value) if not value.strip().isdigit() else int(value)
    number = as_number(value)
    if number is None:
        return None
    scale = SCALES.get(unit or _unit_by_size(number))
    if scale is None or not abs(value) * scale < LATEST_NS:
        return None
    return int(value * scale)


def as_number(value: Any) -> float | None:
    """Return a time that is written as a number, None of any other."""
    if isinstance(value, str):
        return float(value) if _NUMBER.fullmatch(value) else None
    is_number = isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
    return float(value) if is_number and not math.isnan(value) else None


def iso_nanoseconds(text: str) -> int | None:
    """Return the nanoseconds since 1970 of ISO 8601 text, which is in UTC if it names no zone; None if it is none."""
    found = _ISO.fullmatch(text.strip())
    if found is None:
        return None
    date, clock, fraction, zone = found.groups()
    zone = "+00:00" if zone in (None, "Z", "z", "UTC", "GMT") else zone
    try:
        moment = datetime.fromisoformat(f"{date}T{clock}{zone}")
    except ValueError:
        return None
    when = _of_moment(moment) + int((fraction or "").ljust(9, "0")[:9])
    return when if -(1 << 63) < when < 1 << 63 else None


def _of_moment(moment: datetime) -> int:
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND * 1_000


def times_as_nanoseconds(column: pa.Array, unit: TimeUnit = "") -> pa.Array | None:
    """Return what `nanoseconds` says of each value of a column; None of a column whose values are no times."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_temporal(column.type):
        return _of_moments(column)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        if not pc.all(pc.match_substring_regex(column, r"^[0-8]?[0-9]{1,18}$")).as_py():
            return _of_texts(column, unit)
        column = column.cast(pa.int64())
    if not (pa.types.is_signed_integer(column.type) or pa.types.is_floating(column.type)):
        return None
    missing = column.is_null().to_numpy(zero_copy_only=False)
    values = column.fill_null(0).to_numpy(zero_copy_only=False)
    number = values.astype(np.float64)
    scale = np.full(len(values), SCALES[unit] if unit else 0, np.int64)
    for by_size in () if unit else SCALES:
        low, high = _SINCE_1970
        scale[(number * SCALES[by_size] >= low) & (number * SCALES[by_size] <= high)] = SCALES[by_size]
    good = (scale > 0) & (np.abs(number) * scale < LATEST_NS)
    return pa.array((np.where(good, values, 0) * scale).astype(np.int64), mask=missing | ~good)


def _of_moments(column: pa.Array) -> pa.Array:
    """Return the nanoseconds of timestamps, dates, durations and times of day; nothing where 64 bits are too few."""
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("ms"))
    scale = SCALES[column.type.unit]
    column = column.cast(pa.int32() if pa.types.is_time32(column.type) else pa.int64())
    missing = column.is_null().to_numpy(zero_copy_only=False)
    values = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    good = np.abs(values) <= ((1 << 63) - 1) // scale
    return pa.array(np.where(good, values, 0) * scale, mask=missing | ~good)


def _of_texts(column: pa.Array, unit: TimeUnit) -> pa.Array:
    """Return the nanoseconds of texts, which mostly are alike."""
    if pc.all(pc.match_substring_regex(column, _PLAIN_ISO)).as_py():
        zoned = pc.match_substring_regex(column, r"Z$|[0-9][+-][0-9:]+$")
        kind = pa.timestamp("ns", "UTC") if pc.all(zoned).as_py() else pa.timestamp("ns")
        try:
            return column.cast(kind).cast(pa.int64())
        except pa.ArrowInvalid:
            pass
    return pa.array([nanoseconds(value, unit) for value in column.to_pylist()], pa.int64())


def _unit_by_size(number: float) -> TimeUnit:
    """Return the unit in which a number is a date, "" if it is none."""
    low, high = _SINCE_1970
    return next((unit for unit, scale in SCALES.items() if low <= number * scale <= high), "")
