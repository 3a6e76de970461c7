"""The pipeline without Spark: the same tasks, one after the other where they are, for runs that fit into one task."""

from __future__ import annotations

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
