"""Members on the console: by name and life, wherever the trace tells them."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from antiphon.commands.member_words import MemberWords
from antiphon.pipeline.ingesting.keep import lay_out_trace
from antiphon.pipeline.inline import Inline
from antiphon.pipeline.results import ProcessRow, ViewRow
from antiphon.pipeline.store.layout import TraceLayout
from antiphon.report.facts import Facts
from antiphon.report.member_names import group_size, members_named
from antiphon.report.run_settings import RunSettings
from antiphon.trace.event import Event
from antiphon.web.elements import element, headline
from antiphon.wording import duration, kept_together
from pipeline.traces import write


def words(folder: Path, about: str, given: dict[int, str] | None = None) -> MemberWords:
    """Members 0 and 1; 1 lost its state, tried in vain as its 1,005th incarnation and came back as its 1,006th."""
    again, in_vain = 1_005 * 10_000 + 1, 1_004 * 10_000 + 1
    rows = [
        Event("r", 0, 1, "view", view=1, members=[0, 1]),
        Event("r", 0, 2, "view", view=2, members=[0, again]),
        Event("r", 1, 1, "view", view=1, members=[0, 1]),
        Event("r", 1, 2, "crash", view=1),
        Event("r", in_vain, 1, "leave"),
        Event("r", again, 1, "view", view=2, members=[0, again]),
    ]
    (folder / "trace").mkdir()
    write(rows, folder / "trace" / "events.parquet")
    (folder / "trace" / "run.json").write_text(about)
    laid = lay_out_trace(Inline(), str(folder / "trace"), folder / "layout", None)
    return MemberWords(str(folder / "trace"), TraceLayout(laid.folder), given or {})


def test_names_and_lives_in_what_checkers_say(tmp_path: Path) -> None:
    said = words(tmp_path, '{"run": "r", "views": true, "names": {"0": "alice", "1": "bob"}}')
    assert [said.called("r", member) for member in (0, 1, 10_050_001)] == ["alice", "bob", "bob, 2nd life"]
    why = "member 10050001 delivers message 5 of 1 again"
    assert said.sentence("r", why) == "bob, 2nd life, delivers message 5 of bob again"


def test_lives_of_members_without_names(tmp_path: Path) -> None:
    said = words(tmp_path, '{"run": "r", "views": true}')
    assert said.sentence("r", "member 10050001 delivers message 5 of 0 again") == (
        "member 1, 2nd life, delivers message 5 of member 0 again"
    )


def test_numbers_of_another_system_are_left_alone(tmp_path: Path) -> None:
    said = words(tmp_path, "{}", {0: "billing"})
    assert [said.called("r", member) for member in (0, 10_050_001)] == ["billing", "member 10050001"]


def test_neighbours_are_told_from_one_to_another() -> None:
    facts = Facts(trace="", runs=1, members=20, events=1, quarantined=0)
    assert members_named(facts, range(14)) == "members 0 to 13"
    assert members_named(facts, [*range(14, 20), 25]) == "members 14 to 19 and 25"
    assert members_named(facts, range(5)) == "members 0, 1, 2, 3 and 4"
    assert members_named(facts, range(0, 40, 2)) == "20 members"


def test_the_size_of_a_group_with_more_lives_than_the_table_of_processes_has() -> None:
    views = [ViewRow("r", 1, [0, 1, 2], 3, 0, 0), ViewRow("r", 2, [0, 1, 10_002], 3, 5, 5)]
    kept = [ProcessRow("r", member, 0, 9, "end") for member in (0, 1)]
    settings = RunSettings(views=True)
    facts = Facts(trace="", runs=1, members=4, events=9, quarantined=0, settings=settings, views=views, processes=kept)
    assert group_size(facts) == "3 members, 4 lives"


@pytest.mark.parametrize(
    ("ns", "said"),
    [
        (999_999_999, "1 s"), (999_400_000, "999 ms"), (999_700, "1 ms"), (59_000_000_000, "59 s"), (0, "0 s"),
        (600_000_000_000, "10 min"), (3_600_000_000_000, "1 h"), (10_320_000_000_000, "2 h 52 min"),
    ],
)  # fmt: skip
def test_times_are_told_in_the_unit_that_suits_them(ns: int, said: str) -> None:
    assert duration(ns) == said


def test_no_line_of_a_page_ends_between_a_number_and_its_unit() -> None:
    said = "at 500 ms; after 1.2 s of 3 sites, 12 kB, 4 members"
    whole = said.replace("500 ms", "500\N{NO-BREAK SPACE}ms").replace("1.2 s ", "1.2\N{NO-BREAK SPACE}s ")
    whole = whole.replace("12 kB", "12\N{NO-BREAK SPACE}kB")
    assert kept_together(said) == whole
    assert whole in element("p", said)
    assert whole.replace("; ", '; <span class="followed">') in headline("", "", "good", "", [said])
    assert "out/5 s" in element("code", "antiphon explore 'out/5 s'"), "what is copied stays as it is"
