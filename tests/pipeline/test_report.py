"""Reports from traces: what the page says is what check and measure found, whatever they were given."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest

pytest.importorskip("matplotlib")

from antiphon.cli import main
from antiphon.errors import UsageError
from antiphon.pipeline.results import write_result
from antiphon.pipeline.session import Session
from antiphon.report import witness_rows
from antiphon.report.headline import headline
from antiphon.report.sources import recognise
from antiphon.report.trace_page import trace_page
from antiphon.trace.event import Event
from antiphon.trace.schema import GUARANTEES
from pipeline.traces import SCHEMA, write
from support.reports import facts_of, planted_trace, simulated_trace, verdicts_in


def test_the_command_says_what_check_says(
    spark_session: Session, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, _ = planted_trace(tmp_path / "trace", "total swap")
    assert main(["check", str(trace), "--json", "--out", str(tmp_path / "check")]) == 1
    checked = json.loads(capsys.readouterr().out)
    assert main(["measure", str(trace), "--out", str(tmp_path / "measured")]) == 0
    capsys.readouterr()
    out = tmp_path / "report.html"
    assert main(["report", str(trace), "--out", str(out), "--json"]) == 1
    result = json.loads(capsys.readouterr().out)
    assert result["guarantees"] == checked["guarantees"]
    page = out.read_text()
    assert verdicts_in(page) == {
        name: (one["verdict"], one["violations"]) for name, one in checked["guarantees"].items()
    }
    assert result["bytes"] == len(page.encode())
    assert len(result["drawn"]) == min(10, checked["guarantees"]["total"]["violations"])
    assert main(["report", str(tmp_path / "check"), str(tmp_path / "measured"), "--out", str(out)]) == 1
    assert out.read_text() == page, "what check and measure left gives the same page"
    assert "Total order is broken." in capsys.readouterr().out


def test_wrong_usage_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    for words in (["nowhere", "--out", "x.html"], ["empty", "--out", "x.html"], ["empty", "--out", "empty"]):
        paths = [word if word.startswith("-") else str(tmp_path / word) for word in words]
        assert main(["report", *paths]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "x.html").exists()


ONE_OF_EACH = ("repeated delivery", "lost own message", "missing delivery", "fifo swap", "causal swap", "total swap")


@pytest.mark.parametrize("plant", [*ONE_OF_EACH, "mark too early", "delivery in next view"])
def test_every_kind_of_violation_is_drawn(tmp_path: Path, plant: str) -> None:
    views = plant == "delivery in next view"
    trace, planted = planted_trace(tmp_path / "trace", plant, views=views)
    facts = facts_of(tmp_path / "work", trace)
    page = trace_page(facts)
    assert verdicts_in(page)[planted.guarantee][0] == "violated"
    assert facts.drawn
    rows = {(event.member, event.step): event for event in planted.events}
    for drawn in facts.drawn:
        around = drawn.rows
        assert drawn.named.guarantee == planted.guarantee
        assert len(around.events) <= witness_rows.ROWS_MAX
        shown = {(event.member, event.step) for event in around.events}
        assert set(around.marked) <= shown <= set(rows)
        wanted = {(event.sender, event.seq) for event in drawn.named.witness.events}
        about = {
            place
            for place, event in rows.items()
            if (event.sender, event.seq) in wanted and event.event in ("send", "receive", "deliver", "discard")
        }
        assert about <= shown, "everything about the witness's messages is there"
        assert all(event.event == rows[event.member, event.step].event for event in around.events)
    assert page.count('<figure class="diagram"') == len(facts.drawn)


def test_windows_stay_small_in_large_groups(tmp_path: Path) -> None:
    trace, _ = planted_trace(tmp_path / "trace", "total swap", members=24, messages=60)
    facts = facts_of(tmp_path / "work", trace)
    assert len(facts.drawn) == 10  # of 23 pairs that disagree
    for drawn in facts.drawn:
        assert drawn.rows.members == 24
        assert len({event.member for event in drawn.rows.events}) <= witness_rows.MEMBERS_MAX
    assert "10 of 24 members are drawn" in trace_page(facts)


def test_a_clean_trace_of_ours_has_every_section(tmp_path: Path) -> None:
    facts = facts_of(tmp_path / "work", simulated_trace(tmp_path / "trace"))
    page = trace_page(facts)
    assert headline(facts) == "All 5 promised guarantees hold."
    for name in ("verdicts", "times", "buffers", "held-back", "traffic", "repairs"):
        assert f'<section id="{name}"' in page
    assert 'id="violations"' not in page
    assert "Causal order and Total order were not kept, and not promised" in page
    assert "% of the bound of 1,024 (four windows of 64 for each of 4 members)" in page
    assert len(page) < 300_000


def test_only_measured_is_said_at_the_top(tmp_path: Path) -> None:
    facts = facts_of(tmp_path / "work", simulated_trace(tmp_path / "trace"), check=False)
    page = trace_page(facts)
    assert headline(facts) == "Not checked."
    assert "whether its guarantees held is not known" in page
    assert not verdicts_in(page)
    assert 'id="times"' in page


def test_an_empty_trace_claims_nothing(tmp_path: Path) -> None:
    pq.write_table(SCHEMA.empty_table(), tmp_path / "events.parquet")
    facts = facts_of(tmp_path / "work", tmp_path / "events.parquet")
    page = trace_page(facts)
    assert headline(facts) == "The trace is empty."
    assert verdicts_in(page) == dict.fromkeys(GUARANTEES, ("unknown", 0))
    assert "All" not in headline(facts)
    assert 'id="times"' not in page


def test_quarantined_rows_are_said_at_the_top(tmp_path: Path) -> None:
    trace = simulated_trace(tmp_path / "trace")
    table = pq.read_table(trace / "events.parquet")
    broken = table.slice(0, 3).set_column(2, "step", pa.array([None] * 3, pa.int64()))
    pq.write_table(broken.cast(SCHEMA), trace / "more.parquet")
    facts = facts_of(tmp_path / "work", trace)
    page = trace_page(facts)
    assert facts.quarantined == 3
    assert page.index("3 rows could not be read.") < page.index('id="verdicts"')
    assert "unknown" in {word for word, _ in verdicts_in(page).values()}


def test_a_foreign_log_without_times_or_bytes(tmp_path: Path) -> None:
    lines = ["run,member,step,event,sender,seq", "r,1,1,send,1,1", "r,1,2,deliver,1,1", "r,2,1,deliver,1,1"]
    (tmp_path / "trace.csv").write_text("\n".join(lines) + "\n")
    page = trace_page(facts_of(tmp_path / "work", tmp_path / "trace.csv"))
    assert "Unknown: time from send to deliver" in page
    assert "<svg" not in page.split('<section id="times"')[1]
    assert "The members have no common clock." in page


def test_many_runs_are_told_apart(tmp_path: Path) -> None:
    for seed in range(3):
        simulated_trace(tmp_path / "trace" / f"run-{seed}", seed, messages=5 + 3 * seed)
    facts = facts_of(tmp_path / "work", tmp_path / "trace")
    assert facts.run is not None
    assert facts.run.run == "fifo-2", "the largest is drawn"
    assert "What is drawn over time is the run fifo-2" in trace_page(facts)
    facts = facts_of(tmp_path / "again", tmp_path / "trace", run="fifo-0")
    assert {row.run for row in facts.occupancy} == {"fifo-0"}
    assert facts.settings.seed == 0
    with pytest.raises(UsageError, match="no such run"):
        facts_of(tmp_path / "none", tmp_path / "trace", run="fifo-9")


FAULTS = [
    {"kind": "crash", "member": 0, "at": "200ms"},
    {"kind": "partition", "groups": [[3]], "at": "700ms", "until": "1700ms"},
    {"kind": "pause", "member": 4, "at": "2400ms", "until": "2450ms"},
]


def test_what_happened_to_the_group_is_on_the_page(tmp_path: Path) -> None:
    trace = simulated_trace(
        tmp_path / "trace",
        members=5,
        messages=60,
        ordering="total",
        views=True,
        faults=FAULTS,
        workload={"interval": "fixed 20ms"},
        network={"loss": 0.0},
    )
    facts = facts_of(tmp_path / "work", trace)
    page = trace_page(facts)
    text = re.sub("<.*?>", " ", page).replace("\N{NO-BREAK SPACE}", " ")
    assert "5 members in 6 lives sent" in text
    assert re.sub(r"after [\d.]+ m?s", "after T", headline(facts)) == (
        "Member 0, the coordinator, was killed at 200 ms; three of the other four went on after T; no message of "
        "it was lost; what it had delivered alone: 0; nobody delivered anything from 194 ms to 1.25 s. The network was "
        "cut into member 3 | members 1, 2 and 4 from "
        "700 ms to 1.7 s; members 1, 2 and 4 went on after T; member 3 was excluded; all were together again "
        "after T. And 1 more thing happened. All 8 promised guarantees hold."
    )
    top = text[: text.index("What was promised")]
    assert "Member 4 stood still from 2.4 s to 2.45 s; the view stayed." in top
    section = page[page.index('<section id="history"') :]
    section = section[: section.index("</section>")]
    assert "<svg" in section
    listed = re.sub("<.*?>", " ", section[section.index("<tbody>") :]).replace("\N{NO-BREAK SPACE}", " ")
    for said in (
        "view 1 of 5 members",
        "member 0 is killed",
        "member 0 crashes",
        "without members 0 and 3",
        "the network is cut into member 3 | members 1, 2 and 4 until 1.7 s",
        "member 3 is excluded by the others",
        "member 3, 2nd life, is back",
        "member 4 stands still until 2.45 s",
        "done by the test",
    ):
        assert said in listed, said
    assert "10003" not in text, "a member is called by its name"
    assert "waited for" in text
    longest = max(one.waited_ns for one in facts.measured.held_back)
    assert facts.run is not None
    assert longest < 100 * (facts.run.last_ns - facts.run.first_ns)


def test_a_group_to_which_nothing_happened_has_no_history(tmp_path: Path) -> None:
    assert 'id="history"' not in trace_page(facts_of(tmp_path / "work", simulated_trace(tmp_path / "trace")))


def test_a_log_that_ends_without_a_word_is_told(tmp_path: Path) -> None:
    trace = simulated_trace(tmp_path / "trace")
    table = pq.read_table(trace / "events.parquet")
    mine = pa.compute.equal(table["member"], 2)
    kept = pa.compute.or_(pa.compute.invert(mine), pa.compute.less(table["step"], 60))
    pq.write_table(table.filter(kept), trace / "events.parquet")
    text = re.sub("<.*?>", " ", trace_page(facts_of(tmp_path / "work", trace)))
    assert "Member 2 fell silent at" in text
    assert "or soon after (its log ends there without a word)" in text
    assert "inferred from the logs" in text


def test_uniform_is_asked_of_the_check(tmp_path: Path) -> None:
    rows = [
        *(Event("r", 1, step, event, 1, 1) for step, event in ((1, "send"), (2, "deliver"))),
        Event("r", 1, 3, "crash"),
        Event("r", 2, 1, "end"),
    ]
    write(rows, tmp_path / "trace" / "events.parquet")
    for uniform in (False, True):
        facts = facts_of(tmp_path / f"work-{uniform}", tmp_path / "trace", uniform=uniform)
        assert facts.checked is not None
        assert (facts.checked.guarantees["agreement"].verdict == "violated") is uniform


class TestWhatTheOtherCommandsLeft:
    @pytest.fixture
    def left(self, tmp_path: Path) -> Path:
        """What check left of a trace with a violation."""
        trace, _ = planted_trace(tmp_path / "trace", "fifo swap")
        facts = facts_of(tmp_path / "work", trace)
        (tmp_path / "check").mkdir()
        assert facts.checked is not None
        write_result(tmp_path / "check" / "check.json", facts.checked)
        return tmp_path

    def test_the_verdicts_are_taken_and_the_rest_is_made(self, left: Path) -> None:
        facts = facts_of(left / "again", left / "check")
        assert facts.measured is not None
        assert facts.drawn

    def test_a_trace_that_is_gone_is_said(self, left: Path) -> None:
        shutil.rmtree(left / "trace")
        facts = facts_of(left / "again", left / "check")
        page = trace_page(facts)
        assert "The trace is gone." in page
        assert headline(facts).endswith(" Sender order is broken.")
        assert "The events that show it" in page

    def test_a_trace_that_has_changed_is_refused(self, left: Path) -> None:
        table = pq.read_table(left / "trace" / "events.parquet")
        pq.write_table(table.slice(0, len(table) - 1), left / "trace" / "events.parquet")
        with pytest.raises(UsageError, match="has changed"):
            facts_of(left / "again", left / "check")

    def test_what_does_not_go_together_is_refused(self, left: Path) -> None:
        with pytest.raises(UsageError, match="a second check"):
            recognise([str(left / "check")] * 2)
        (left / "measure").mkdir()
        other = facts_of(left / "again", left / "check").measured
        assert other is not None
        write_result(left / "measure" / "measure.json", msgspec.structs.replace(other, trace="other"))
        with pytest.raises(UsageError, match="different traces"):
            recognise([str(left / "check"), str(left / "measure")])
        (left / "check" / "check.json").write_text("{}")
        with pytest.raises(UsageError, match="make it again"):
            recognise([str(left / "check")])
