"""Its place puts this folder on the import path, so that tests can say `from support.planting import ...`."""

from __future__ import annotations

import hypothesis
import pytest

# The same examples everywhere, and no deadline: a busy machine is no failure.
hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True)
hypothesis.settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden", action="store_true", help="write the golden transcripts anew")
