"""The keywords of a simulated world, checked where they are given: a name that is mistyped must not pass in silence."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, TypedDict, get_type_hints

from antiphon.errors import UsageError, UsageTypeError, did_you_mean
from antiphon.live.arguments import check_type
from antiphon.testing.faults import Faults
from antiphon.testing.reduction import Reduction
from antiphon.trace.schema import GUARANTEES


class Options(TypedDict, total=False):
    """The keywords of a world; what each means, and what it is if not given, stands in `World`."""

    latency: str
    loss: float
    duplicate: float
    reorder: float
    bandwidth: int
    skew: str
    faults: int | Faults
    limit: str
    patience: str
    inline_threads: bool
    unexamined: Collection[str]
    reduced: Reduction


_HINTS: Final = {"seed": int, **get_type_hints(Options)}


def check_options(options: Mapping[str, Any]) -> None:
    """Raise a `UsageError` that names the keyword which has a wrong value."""
    for name, value in options.items():
        if name not in _HINTS:
            raise UsageTypeError(f"{name}: a world has no such keyword{did_you_mean(name, _HINTS)}")
        if name != "unexamined":
            check_type(name, value, _HINTS[name])
        elif isinstance(value, str) or not isinstance(value, Collection):
            raise UsageTypeError(f"unexamined: must be several names of guarantees, not {type(value).__name__}")
        elif wrong := set(value) - set(GUARANTEES):
            raise UsageError(f"unexamined: {min(map(repr, wrong))} is none of {', '.join(GUARANTEES)}")
