"""Antiphon: group communication for Python, live, simulated and verified from its traces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from antiphon.live.events import Batch, GroupClosed, Message, Notice, Receipt, Status, Unknown, ViewChange
    from antiphon.live.group import Group, join

# what an application uses, by where it is defined; imported when it is first asked for
_LIVE = {
    **dict.fromkeys(("Group", "join"), "antiphon.live.group"),
    **dict.fromkeys(
        ("Batch", "GroupClosed", "Message", "Notice", "Receipt", "Status", "Unknown", "ViewChange"),
        "antiphon.live.events",
    ),
}

__all__ = [
    "Batch",
    "Group",
    "GroupClosed",
    "Message",
    "Notice",
    "Receipt",
    "Status",
    "Unknown",
    "ViewChange",
    "__version__",
    "join",
]


def __getattr__(name: str) -> Any:
    """Import the live library when it is first used, so that `import antiphon` stays light."""
    if name in _LIVE:
        import importlib

        found = globals()[name] = getattr(importlib.import_module(_LIVE[name]), name)
        return found
    raise AttributeError(f"module 'antiphon' has no attribute {name!r}")
