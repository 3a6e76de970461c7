"""Other incidents than those whose pages are looked at in a browser: the headline says what happened."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from antiphon.cli import main
from antiphon.pipeline.inline import Inline
from antiphon.report.headline import headline
from antiphon.report.member_names import group_size
from antiphon.trace.event import Event
from antiphon.trace.reader import read
from pipeline.traces import write
from support.incidents import OTHERS
from support.reports import facts_of, simulated_trace


def test_starts_that_never_got_in_are_no_lives(tmp_path: Path) -> None:
    """Each of three members was started once more, and tried twice to get in."""
    facts = OTHERS["most restarted without state"].make(tmp_path / "incident")
    assert facts.members > 5
    assert group_size(facts) == "5 members"
    back = OTHERS["all restarted without state"].make(tmp_path / "other")
    assert group_size(back) == "4 members, 8 lives"


def told(folder: Path, last: dict[int, list[tuple[int, str, str | None]]], also: tuple[Event, ...] = ()) -> str:
    """Return the headline on three live members of which each says something at 1 s; `last` are their last rows."""
    rows = [Event("r", member, 1, "view", None, None, 0, 1, None, [0, 1, 2]) for member in range(3)]
    for member in range(3):
        rows.append(Event("r", member, 2, "send", member, 1, 10**9, 1))
        rows += [Event("r", member, 3 + of, "deliver", of, 1, 10**9 + 10**6, 1) for of in range(3)]
        for step, (ms, event, detail) in enumerate(last.get(member, []), 10):
            members = [0, 2] if event == "view" else None
            rows.append(
                Event("r", member, step, event, None, None, ms * 10**6, 2 if members else 1, None, members, detail)
            )
    (folder / "trace").mkdir(parents=True)
    write([*rows, *also], folder / "trace" / "events.parquet")
    about = {"run": "r", "views": True, "ordering": "abcast", "stability": "vector-ack", "clock": "local"}
    (folder / "trace" / "run.json").write_text(json.dumps(about))
    return headline(facts_of(folder / "work", folder / "trace"))


STAY: list[tuple[int, str, str | None]] = [(2_500, "view", None), (4_000, "end", None)]


@pytest.mark.parametrize(
    ("last", "said"),
    [
        ([(2_000, "leave", None), (2_010, "end", None)], "Member 1 left at 2 s; the other two went on."),
        (
            [],
            "Member 1 fell silent at 1 s or soon after (its log ends there without a word); the other two went on "
            "after 1.5 s; as far as its log goes, no message of it was lost; what it had delivered alone: 0.",
        ),
        ([(2_000, "end", None)], "Member 1 stopped without leaving at 2 s; the other two went on after 500 ms."),
        (
            [(2_000, "crash", "stopped"), (2_000, "end", None)],
            "Member 1 stopped without leaving at 2 s; the other two went on after 500 ms.",
        ),
        (
            [(1_999, "control", None), (1_995, "control", None), (2_000, "end", None)],
            "Member 1 stopped",  # a step back of 4 ms is nothing
        ),
        (
            [(1_200, "control", "inbox full"), (2_600, "leave", "excluded")],
            "The application of member 1 did not keep up: its inbox was full from 1.2 s to 2.6 s; "
            "the other two went on after 1.3 s; it was excluded.",
        ),
        (
            [(1_200, "control", "inbox full"), (1_250, "control", "inbox read"), (2_000, "end", None)],
            "Member 1 stopped",
        ),
    ],
)
def test_how_a_live_member_went(tmp_path: Path, last: list[tuple[int, str, str | None]], said: str) -> None:
    assert told(tmp_path, {0: STAY, 1: last, 2: STAY}).startswith(said)


def test_who_stops_where_nothing_can_go_on_accuses_nobody_whose_log_was_cut(tmp_path: Path) -> None:
    """Members 1 and 2 were killed, and their last rows are lost; member 0 is left with a message of its own."""
    also = (
        Event("r", 0, 7, "deliver", 1, 2, 1_100_000_000, 1),  # which member 1's log has lost
        Event("r", 0, 8, "send", 0, 2, 1_200_000_000, 1),
    )
    said = told(tmp_path, {0: [(4_000, "crash", "stopped"), (4_000, "end", None)]}, also)
    assert "broken" not in said
    assert "crashed" not in said
    assert "Members 1 and 2 fell silent at 1 s or soon after (their logs end there without a word)" in said
    assert "the other one could not go on: 1 of 3 is no majority" in said
    assert "From 1.1 s on nothing was delivered, until the run ended at 4 s: 1 message waited in vain." in said


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


def test_measure_tells_what_happened_before_its_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    crash = {"kind": "crash", "member": 0, "at": "200ms"}
    trace = simulated_trace(tmp_path / "trace", ordering="total", views=True, faults=[crash])
    monkeypatch.setattr("antiphon.pipeline.session.running_session", lambda *_, **__: nullcontext(Inline()))
    assert main(["measure", str(trace)]) == 0
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{trace}: 1 run, 4 members")
    assert second.startswith("Member 0, the coordinator, was killed at 200 ms; the other three went on after ")


def test_a_named_member_without_a_log_is_told_where_membership_is_fixed(tmp_path: Path) -> None:
    trace = simulated_trace(tmp_path / "trace", members=2, messages=2)
    about = json.loads((trace / "run.json").read_text())
    (trace / "run.json").write_text(json.dumps({**about, "names": {"0": "a", "1": "b", "2": "c"}}))
    rows = [*read(trace).events, Event("fifo-3", 1, 10**6, "crash", None, None, 10**10)]
    write(rows, trace / "events.parquet")
    assert "There is no log of c (perhaps a file is missing)." in headline(facts_of(tmp_path / "work", trace))
