"""How quantities are said to people: durations, sizes, counts and lists, the same on pages and on the console."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final

TIME_UNITS: Final = (("s", 1_000_000_000), ("ms", 1_000_000), ("µs", 1_000), ("ns", 1))
ROUNDED_UP: Final = 1 + 1 / 2_000  # what is told as 1,000 of a unit is 1 of the next
LONG_NS: Final = 600_000_000_000  # durations from here on are told in hours and minutes
SIZE_UNITS: Final = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def time_unit(largest_ns: float) -> tuple[str, int]:
    """Choose the unit in which times up to some size are told: its name, and its length in nanoseconds."""
    return next(((name, size) for name, size in TIME_UNITS if abs(largest_ns) >= size), TIME_UNITS[-1])


def duration(ns: float, *, decimals: int | None = None) -> str:
    """Say a duration in the unit that suits it: to three digits, or to so many decimals where instants are compared."""
    if decimals is None and abs(ns) >= LONG_NS:
        hours, minutes = divmod(round(ns / 60e9), 60)
        return " ".join([*([f"{hours:,} h"] if hours else []), *([f"{minutes} min"] if minutes else [])])
    name, size = time_unit(ns * ROUNDED_UP if decimals is None and ns else ns or TIME_UNITS[0][1])
    value = ns / size
    if decimals is None:
        decimals = max(0, 2 - int(math.log10(abs(value)))) if value else 0
    text = f"{value:,.{decimals}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {name}"


def size(number: float | None) -> str:
    """Say a number of bytes in the unit that suits it."""
    if number is None:
        return "unknown"
    for unit, length in SIZE_UNITS:
        if number >= length:
            return f"{number / length:.3g} {unit}"
    return f"{number:,.0f} B"


_BEFORE_UNIT: Final = re.compile(r"(?<=\d) (?=(?:ns|µs|ms|s|min|h|B|kB|MB|GB)\b)")


def kept_together(text: str) -> str:
    """Return a text in which no line can end between a number and its unit."""
    return _BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", text)


def count(number: int, one: str, many: str | None = None) -> str:
    """Say a number and what it counts, in the right number."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def listed(names: Sequence[str]) -> str:
    """Say names as one does: a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def link_quality(loss: float | None, latency: str | None, mtu: int | None = None, *, silent: bool = False) -> str:
    """Say what is unusual about links: what they lose, how long they take, how large a packet they carry."""
    said = [f"a loss of {loss:.0%}"] if loss else []
    said += [f"a latency of {latency}"] if latency else []
    if mtu is not None:
        said.append(f"an MTU of {mtu:,} bytes{' (larger packets vanish without a word)' if silent else ''}")
    return listed(said) if said else "nothing unusual"


def amount(value: float) -> str:
    """Say a number in three digits, a large one in whole ones: 0.25, 12.5, 1,950."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def ratio(value: float) -> str:
    """Say how many times as much: 1.77, 76,814."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def only_publishing(names: Sequence[str]) -> str:
    """Say what to do about members that send and never deliver anything."""
    they = ("delivers", "it only publishes") if len(names) == 1 else ("deliver", "they only publish")
    remedy = 'a topic (topic = "NAME" under [constants] of the mapping file) has brokers\' guarantees examined instead'
    return f"{listed(names)} never {they[0]} anything: if {they[1]}, {remedy}"


def network_quality(quality: str, value: float | str) -> str:
    """Say what all links have from now on: a loss, a latency, doubled or reordered datagrams."""
    word = {"duplicate": "duplication", "reorder": "reordering"}.get(quality, quality)
    return f"a {word} of {value if isinstance(value, str) else f'{value:.0%}'}"


_NUMBERS: Final = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def number(value: int) -> str:
    """Say a small number as a word, a larger one in digits."""
    return _NUMBERS[value] if 0 <= value < len(_NUMBERS) else f"{value:,}"


def ordinal(value: int) -> str:
    """Say which of several: 1st, 2nd, 3rd, 4th."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(value % 10, "th")
    return f"{value}{'th' if value % 100 in (11, 12, 13) else ending}"
