"""Other incidents than those whose pages are looked at in a browser: the headline says what happened."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from antiphon.report.headline import headline
from antiphon.report.member_names import group_size
from support.incidents import OTHERS
from support.reports import facts_of, simulated_trace


def test_starts_that_never_got_in_are_no_lives(tmp_path: Path) -> None:
    """Each of three members was started once more, and tried twice to get in."""
    facts = OTHERS["most restarted without state"].make(tmp_path / "incident")
    assert facts.members > 5
    assert group_size(facts) == "5 members"
    back = OTHERS["all restarted without state"].make(tmp_path / "other")
    assert group_size(back) == "4 members, 8 lives"


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_the_headline_tells_what_happened(name: str, tmp_path: Path) -> None:
    said = headline(OTHERS[name].make(tmp_path / "incident"))
    assert re.search(".*".join(OTHERS[name].headline), said), said


def test_names_that_are_no_numbers_of_members_are_nobody(tmp_path: Path) -> None:
    trace = simulated_trace(tmp_path / "trace", members=2, messages=2, views=True)
    about = json.loads((trace / "run.json").read_text())
    (trace / "run.json").write_text(json.dumps({**about, "names": {"0": "a", "1": "b", "2": "c", "somebody": "d"}}))
    said = headline(facts_of(tmp_path / "work", trace))
    assert said.startswith("c never took part: no view lists it, and there is no log of it")
    assert "somebody" not in said
