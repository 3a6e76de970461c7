"""Its place puts this folder on the import path, so that tests can say `from support.planting import ...`."""

from __future__ import annotations

import gc
import signal

import hypothesis
import pytest

# A shell that starts the tests in the background lets them, and all that they start, ignore Ctrl-C. Some tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples everywhere, and no deadline: a busy machine is no failure.
hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True)
hypothesis.settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden", action="store_true", help="write the golden transcripts anew")


def pytest_collection_finish() -> None:
    """Keep the collector from what stays to the end: thousands of tests, and syntax trees of half a million nodes."""
    gc.freeze()
