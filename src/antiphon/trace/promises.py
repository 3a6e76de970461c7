"""Which guarantees a run promises, by its own run.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from antiphon.errors import UsageError
from antiphon.protocol.options import promises_of
from antiphon.protocol.ordering import ALIASES, ORDERINGS
from antiphon.trace.schema import ALL_GUARANTEES


def promised(run_json: Mapping[str, Any]) -> frozenset[str]:
    """Name the guarantees that follow from a run's ordering, stability and views, or from its list `promises`."""
    explicit = run_json.get("promises")
    if explicit is not None:
        unknown = sorted(set(explicit) - set(ALL_GUARANTEES))
        if unknown:
            raise UsageError(f"run.json promises {unknown[0]!r}; the guarantees are {', '.join(ALL_GUARANTEES)}")
        return frozenset(explicit)
    promises: set[str] = set()
    ordering = _setting(run_json, "ordering")
    if isinstance(ordering, str) and ALIASES.get(ordering, ordering) in ORDERINGS:
        promises |= {*promises_of(ORDERINGS[ALIASES.get(ordering, ordering)])}  # others' names promise nothing we know
    if _setting(run_json, "stability") not in (None, False, "none", ""):
        promises.add("stability")
    if _setting(run_json, "views") not in (None, False, "none", "", "fixed", 0):
        promises.add("view-synchrony")
    return frozenset(promises)


def has_global_clock(run_json: Mapping[str, Any]) -> bool:
    """Say whether all members of the run read one clock, as in a simulation."""
    return bool(_setting(run_json, "clock") == "global")


def logs_have_ends(run_json: Mapping[str, Any]) -> bool:
    """Say whether every log that is whole has an `end`, so that one without it was cut short, even if all were."""
    return _setting(run_json, "ends") is True


def _setting(run_json: Mapping[str, Any], name: str) -> Any:
    """Find a setting at the top of run.json, or inside its `protocol` or `parameters`."""
    for table in (run_json, run_json.get("protocol"), run_json.get("parameters")):
        if isinstance(table, Mapping) and name in table:
            return table[name]
    return None
