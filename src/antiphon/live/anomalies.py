"""What should not happen in a group: counted by kind, and logged the first time and then ever more rarely.

All of `live/` logs to the one logger `antiphon`; every record says of which group and member it is, in its text and as
the attributes `group` and `member`. `docs/operations.md` lists the kinds.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

logging.getLogger("antiphon").addHandler(logging.NullHandler())  # silent unless the application configures logging


class MemberLogger(logging.LoggerAdapter[logging.Logger]):
    """Says of which group and member each record is."""

    def __init__(self, group: str, member: str) -> None:
        super().__init__(logging.getLogger("antiphon"), {"group": group, "member": member})

    def is_called(self, member: str) -> None:
        """Learn the member's name, by which the others know it; until then it is its address."""
        assert self.extra is not None
        self.extra = {**self.extra, "member": member}

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Put the group and the member before the text, and beside it; they may have any sign in them, `%` too."""
        assert self.extra is not None
        kwargs["extra"] = {**self.extra, **kwargs.get("extra", {})}
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1  # where it is said from, not here
        self.logger.log(level, f"%s %s: {msg}", self.extra["group"], self.extra["member"], *args, **kwargs)


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
