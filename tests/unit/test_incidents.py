"""Other incidents than those whose pages are looked at in a browser: the headline says what happened."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from antiphon.report.trace_page import headline
from support.incidents import OTHERS


@pytest.mark.parametrize("name", OTHERS)
def test_the_headline_tells_what_happened(name: str, tmp_path: Path) -> None:
    said = headline(OTHERS[name].make(tmp_path / "incident"))
    assert re.search(".*".join(OTHERS[name].headline), said), said
