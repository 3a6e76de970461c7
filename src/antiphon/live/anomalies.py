"""What should not happen in a group: counted by kind, and logged the first time and then ever more rarely.

All of `live/` logs to the one logger `antiphon`; every record says of which group and member it is, in its text and as
the attributes `group` and `member`. `docs/operations.md` lists the kinds.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import MutableMapping
from typing import Any

logging.getLogger("antiphon").addHandler(logging.NullHandler())  # silent unless the application configures logging


class MemberLogger(logging.LoggerAdapter[logging.Logger]):
    """Says of which group and member each record is."""

    def __init__(self, group: str, member: str) -> None:
        super().__init__(logging.getLogger("antiphon"), {"group": group, "member": member})

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Put the group and the member before the text, and beside it."""
        assert self.extra is not None
        kwargs["extra"] = {**self.extra, **kwargs.get("extra", {})}
        return f"{self.extra['group']} {self.extra['member']}: {msg}", kwargs


class Anomalies:
    """One member's counters of what should not happen."""

    def __init__(self, logger: MemberLogger) -> None:
        self.logger = logger
        self._log_at: dict[str, int] = {}  # by kind, the count at which it is logged next
        self.counts: Counter[str] = Counter()

    def note(self, kind: str, about: str = "", count: int = 1) -> None:
        """Count something, and log the first, the tenth, the hundredth of its kind, and so on."""
        total = self.counts[kind] = self.counts[kind] + count
        if total >= self._log_at.get(kind, 1):
            self._log_at[kind] = 10 ** len(str(total))
            self.logger.warning("%s, %d so far%s", kind, total, f": {about}" if about else "")
