"""One Spark session for all tests of the pipeline."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from antiphon.pipeline.check import Options, check_layout, check_runs
from antiphon.pipeline.ingest import ingest
from antiphon.pipeline.layout import Totals
from antiphon.pipeline.reading import Mapping
from antiphon.pipeline.session import Session, open_session
from antiphon.trace.verdict import Verdict


def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    for item in items:
        if "pipeline_session" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def pipeline_session() -> Iterator[Session]:
    opened = open_session("local[2]", name="antiphon tests")
    yield opened
    opened.stop()


Check = Callable[..., tuple[Totals, dict[str, Verdict]]]
CheckRuns = Callable[..., dict[str, dict[str, Verdict]]]


@pytest.fixture
def check(pipeline_session: Session, tmp_path: Path) -> Check:
    """Ingest and check a whole trace."""
    numbers = itertools.count()

    def run(trace: Path, mapping: Mapping | None = None, **options: object) -> tuple[Totals, dict[str, Verdict]]:
        work = tmp_path / f"work-{next(numbers)}"
        totals = ingest(pipeline_session, str(trace), work / "layout", mapping)
        return totals, check_layout(pipeline_session, work / "layout", totals, work / "scratch", Options(**options))  # type: ignore[arg-type]

    return run


@pytest.fixture
def check_each(pipeline_session: Session, tmp_path: Path) -> CheckRuns:
    """Ingest a trace of many runs and check each by itself, once for each set of options."""
    numbers = itertools.count()

    def run(trace: Path, *options: Options) -> list[dict[str, dict[str, Verdict]]]:
        work = tmp_path / f"work-{next(numbers)}"
        ingest(pipeline_session, str(trace), work / "layout")
        return [
            check_runs(pipeline_session, work / "layout", work / f"scratch-{number}", chosen)
            for number, chosen in enumerate(options)
        ]

    return run  # type: ignore[return-value]
