"""Run an application's own asyncio code on a simulated group: a seed, faults, virtual time, and a check at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from antiphon.testing.errors import NotSimulated, Stuck, Unexamined, Violated
    from antiphon.testing.faults import Faults
    from antiphon.testing.process import Process
    from antiphon.testing.world import World, run, simulated

# imported when it is first asked for: pytest imports this package in every project where Antiphon is installed
_PARTS = {
    **dict.fromkeys(("NotSimulated", "Stuck", "Unexamined", "Violated"), "antiphon.testing.errors"),
    "Faults": "antiphon.testing.faults",
    "Process": "antiphon.testing.process",
    **dict.fromkeys(("World", "run", "simulated"), "antiphon.testing.world"),
}

__all__ = ["Faults", "NotSimulated", "Process", "Stuck", "Unexamined", "Violated", "World", "run", "simulated"]


def __getattr__(name: str) -> Any:
    """Import a part when it is first used."""
    if name in _PARTS:
        import importlib

        found = globals()[name] = getattr(importlib.import_module(_PARTS[name]), name)
        return found
    raise AttributeError(f"module 'antiphon.testing' has no attribute {name!r}")
