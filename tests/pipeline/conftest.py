"""One Spark session for all tests of the pipeline, and a stand-in that runs the same tasks without Spark."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from antiphon.pipeline.checking import CheckOptions, check_layout, check_runs
from antiphon.pipeline.ingesting import ingest
from antiphon.pipeline.inline import Inline
from antiphon.pipeline.reading.mapping import Mapping
from antiphon.pipeline.session import Session, open_session
from antiphon.pipeline.store.layout import Totals
from antiphon.trace.verdict import Verdict


def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    for item in items:
        if "spark_session" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark_session() -> Iterator[Session]:
    opened = open_session("local[2]", name="antiphon tests")
    yield opened
    opened.stop()


class Checker:
    """Ingests and checks traces with one session."""

    def __init__(self, session: Session, folder: Path) -> None:
        self.session, self.folder = session, folder
        self.numbers = itertools.count()

    def _work(self) -> Path:
        return self.folder / f"work-{next(self.numbers)}"

    def check(
        self, trace: Path, mapping: Mapping | None = None, **options: object
    ) -> tuple[Totals, dict[str, Verdict]]:
        work = self._work()
        totals = ingest(self.session, str(trace), work / "layout", mapping)
        chosen = CheckOptions(**options)  # type: ignore[arg-type]
        result = check_layout(self.session, work / "layout", totals, work / "scratch", chosen)
        return totals, {
            name: Verdict(found.verdict, found.examined, found.violations, found.witnesses)
            for name, found in result.guarantees.items()
        }

    def check_each(self, trace: Path, *options: CheckOptions) -> list[dict[str, dict[str, Verdict]]]:
        """Check every run by itself, once for each set of options."""
        work = self._work()
        ingest(self.session, str(trace), work / "layout")
        return [
            check_runs(self.session, work / "layout", work / f"scratch-{number}", chosen)
            for number, chosen in enumerate(options)
        ]


@pytest.fixture
def on_spark(spark_session: Session, tmp_path: Path) -> Checker:
    return Checker(spark_session, tmp_path)


@pytest.fixture
def inline(tmp_path: Path) -> Checker:
    return Checker(Inline(3), tmp_path)
