"""Progress bars on stderr, shown on a terminal only; `rich` draws them, and is imported only then."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from rich.progress import Progress as Display

_PAUSE_S = 0.1


class Progress:
    """Shows how much of some long work is done; one inside another gets a line of its own below it."""

    _display: ClassVar[Display | None] = None  # the terminal is one, so all bars share what draws them

    def __init__(self, what: str, total: int | None = None) -> None:
        self._what, self._total = what, total
        self._task: int | None = None
        self._owns_display = False
        self._next = 0.0

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            if Progress._display is None:
                Progress._display, self._owns_display = _display(), True
                Progress._display.start()
            self._task = Progress._display.add_task(self._what, total=self._total)
        return self

    def __exit__(self, *_: object) -> None:
        display, task = Progress._display, self._task
        if display is None or task is None:
            return
        self._task = None
        display.remove_task(task)  # type: ignore[arg-type]
        if self._owns_display:
            Progress._display = None
            display.stop()

    def left(self, left: int) -> None:
        """Show that so much of the total is left."""
        self.done((self._total or 0) - left)

    def done(self, done: int, total: int | None = None) -> None:
        """Show that so much is done, of another total than before if one is given."""
        if self._task is None or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _PAUSE_S
        if total is not None:
            self._total = total
        if Progress._display is not None:
            Progress._display.update(self._task, completed=done, total=self._total)  # type: ignore[arg-type]


def _display() -> Display:
    from rich.console import Console
    from rich.progress import BarColumn, ProgressColumn, Task, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Display
    from rich.text import Text

    class Counted(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text("" if task.total is None else f"{task.completed:,.0f}/{task.total:,.0f}")

    return Display(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        Counted(),
        TimeElapsedColumn(),
        # a descriptor of its own: while Java starts, it gets another stderr than ours
        console=Console(file=os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8")),
        transient=True,
        redirect_stdout=sys.stdout.isatty(),  # what goes into a pipe must not come out beside the bar
    )
