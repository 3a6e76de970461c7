"""Delays: fixed, uniform, exponential, Pareto, in whole nanoseconds, the same on every machine.

Logarithm and exponential are computed here from additions and multiplications alone, which IEEE 754 defines to the
last bit; a platform's own libm differs in the last place, and one nanosecond is enough to change a whole run.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from typing import Final, TypeAlias

from antiphon.errors import UsageError
from antiphon.protocol.machine import Duration

Sampler: TypeAlias = Callable[[random.Random], Duration]

_UNITS: Final = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "min": 60_000_000_000}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ns|us|ms|s|min)")
_LN2: Final = 0.6931471805599453
_FORMS: Final = "fixed D | uniform LOW HIGH | exponential MEAN | pareto SCALE SHAPE, with durations such as 5ms"


def duration(text: str | int, key: str) -> Duration:
    """Read a duration such as `5ms` or `1.5s`."""
    if isinstance(text, int) and not isinstance(text, bool):
        if text == 0:
            return 0
        raise UsageError(f"{key}: {text} has no unit; write it as {text}ms, {text}us or {text}s")
    match = _DURATION.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None and str(text).strip() != "0":
        raise UsageError(f"{key}: {text!r} is not a duration; write 5ms, 250us or 1.5s")
    if match is None:
        return 0
    whole, _, fraction = match[1].partition(".")
    scaled: int = int(whole + fraction) * _UNITS[match[2]]  # in integers: a float would round differently at the end
    return scaled // int(10 ** len(fraction))


def ln(x: float) -> float:
    """Compute the natural logarithm, identically everywhere."""
    mantissa, exponent = math.frexp(x)
    if mantissa < 0.7071067811865476:
        mantissa, exponent = 2 * mantissa, exponent - 1
    t = (mantissa - 1) / (mantissa + 1)
    square, power, total = t * t, t, 0.0
    for odd in range(1, 30, 2):
        total += power / odd
        power *= square
    return 2 * total + exponent * _LN2


def exp(x: float) -> float:
    """Compute the exponential, identically everywhere."""
    halves = math.floor(x / _LN2 + 0.5)
    rest = x - halves * _LN2
    term, total = 1.0, 1.0
    for n in range(1, 24):
        term *= rest / n
        total += term
    return math.ldexp(total, halves)


def sampler(text: str, key: str) -> Sampler:
    """Turn `uniform 5ms 50ms` and the like into a function that draws delays."""
    words = text.replace(":", " ").split() if isinstance(text, str) else []
    if len(words) == 1 and words[0] not in ("uniform", "exponential", "pareto", "fixed"):
        words = ["fixed", *words]
    try:
        match words:
            case ["fixed", value]:
                delay = duration(value, key)
                return lambda rng: delay
            case ["uniform", low_text, high_text]:
                low, high = duration(low_text, key), duration(high_text, key)
                if low > high:
                    raise UsageError(f"{key}: uniform {low_text} {high_text} has its bounds the wrong way round")
                return lambda rng: low + int(rng.random() * (high - low + 1))
            case ["exponential", mean_text]:
                mean = duration(mean_text, key)
                return lambda rng: int(-mean * ln(1.0 - rng.random()))
            case ["pareto", scale_text, shape_text]:
                scale, shape = duration(scale_text, key), float(shape_text)
                if not shape > 0:
                    raise UsageError(f"{key}: the shape of a Pareto distribution must be above 0, not {shape_text}")
                return lambda rng: int(scale * exp(min(-ln(1.0 - rng.random()) / shape, 20.0)))
    except ValueError:
        pass
    raise UsageError(f"{key}: {text!r} is not a distribution; write {_FORMS}")
