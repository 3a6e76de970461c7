"""A progress bar on stderr, shown on a terminal only."""

from __future__ import annotations

import sys
import time

_BAR_WIDTH = 30
_PAUSE_S = 0.1


class Progress:
    """Shows how much of some long work is done."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total = what, max(total, 1)
        self._shown = sys.stderr.isatty()
        self._next = 0.0

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()

    def left(self, left: int) -> None:
        """Show that so much of the total is left."""
        self.done(self._total - left)

    def done(self, done: int) -> None:
        """Show that so much of the total is done."""
        if not self._shown or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _PAUSE_S
        filled = _BAR_WIDTH * done // self._total
        bar = "█" * filled + "·" * (_BAR_WIDTH - filled)
        sys.stderr.write(f"\r{self._what} {bar} {done}/{self._total}")
        sys.stderr.flush()
