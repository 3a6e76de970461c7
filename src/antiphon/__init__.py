"""Antiphon: group communication for Python, live, simulated and verified from its traces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from antiphon.errors import AntiphonError, UsageError, UsageTypeError
    from antiphon.live.events import Batch, GroupClosed, Message, Notice, Status, ViewChange
    from antiphon.live.group import Group, join
    from antiphon.live.receipts import Lost, Receipt, Unknown

# what an application uses, by where it is defined; imported when it is first asked for
_EXPORTS = {
    **dict.fromkeys(("AntiphonError", "UsageError", "UsageTypeError"), "antiphon.errors"),
    **dict.fromkeys(("Group", "join"), "antiphon.live.group"),
    **dict.fromkeys(("Batch", "GroupClosed", "Message", "Notice", "Status", "ViewChange"), "antiphon.live.events"),
    **dict.fromkeys(("Lost", "Receipt", "Unknown"), "antiphon.live.receipts"),
}

__all__ = [
    "AntiphonError",
    "Batch",
    "Group",
    "GroupClosed",
    "Lost",
    "Message",
    "Notice",
    "Receipt",
    "Status",
    "Unknown",
    "UsageError",
    "UsageTypeError",
    "ViewChange",
    "__version__",
    "join",
]


def __getattr__(name: str) -> Any:
    """Import the live library when it is first used, so that `import antiphon` stays light."""
    if name in _EXPORTS:
        import importlib

        found = globals()[name] = getattr(importlib.import_module(_EXPORTS[name]), name)
        return found
    raise AttributeError(f"module 'antiphon' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List what is imported later, too."""
    return sorted({*globals(), *__all__})
