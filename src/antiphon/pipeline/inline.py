"""The pipeline without Spark: the same tasks, one after the other where they are, for runs that fit into one task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from antiphon.pipeline.session import Session, Work


class Inline(Session):
    """A session that runs tasks where it is."""

    def __init__(self, parallelism: int = 1) -> None:
        self.owned = False
        self.jobs = 0
        self._parallelism = parallelism

    @property
    def parallelism(self) -> int:
        """Into how many tasks small work is cut."""
        return self._parallelism

    def each(self, tasks: int, work: Work, label: str) -> list[bytes]:
        """Run the tasks in order."""
        self.jobs += 1 if tasks else 0
        return [work(number) for number in range(tasks)]


@contextmanager
def inline_session() -> Iterator[Inline]:
    """A session whose files may be removed at the end: what the tasks kept open is let go."""
    from antiphon.pipeline import layout
    from antiphon.pipeline.check import arena, run
    from antiphon.pipeline.measure import ledger, together

    try:
        yield Inline()
    finally:
        caches = (
            layout.open_layout,
            layout.open_parquet,
            layout._row_group,
            arena.open_arena,
            run.open_run,
            ledger._open,
            ledger._row_group,
            together.sends_of,
        )
        for cache in caches:
            cache.cache_clear()
