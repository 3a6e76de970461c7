"""Exploring a trace: the survey counts every event once, and every window has the events that it must have."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from antiphon.errors import UsageError
from antiphon.pipeline.ingesting import ingest
from antiphon.pipeline.ingesting.keep import keep_trace, lay_out_trace
from antiphon.pipeline.inline import Inline
from antiphon.pipeline.results import MEASURE_FILE, CheckResult, write_result
from antiphon.pipeline.store import window
from antiphon.pipeline.store.layout import TraceLayout
from antiphon.report.explore.explorer import LANES_MAX, ExploredRun, Explorer
from antiphon.report.headline import headline
from antiphon.report.run_settings import run_settings
from antiphon.report.sources import recognise
from antiphon.trace.event import Event
from antiphon.trace.reader import read
from pipeline.traces import write
from support.reports import facts_of, planted_trace, simulated_trace


def explorer(folder: Path, trace: Path, checked: CheckResult | None = None, measured: Path | None = None) -> Explorer:
    ingest(Inline(), str(trace), folder / "layout")
    layout = TraceLayout(folder / "layout")
    return Explorer(str(trace), layout, lambda run: run_settings(str(trace), run), checked, measured=measured)


def explored(folder: Path, trace: Path) -> ExploredRun:
    return explorer(folder, trace).run(None)


def with_views(folder: Path, **table: Any) -> Path:
    usual = {"views": True, "ordering": "total", "members": 4, "messages": 40, "network": {"loss": 0.0}}
    return simulated_trace(folder, **{**usual, "workload": {"interval": "fixed 20ms"}, **table})


def test_the_strip_counts_every_event_once(tmp_path: Path) -> None:
    made = explorer(tmp_path, simulated_trace(tmp_path / "trace"))
    overview = made.run(None).overview(made)
    assert overview.events == len(read(tmp_path / "trace").events)
    assert abs(sum(overview.density) - overview.events) <= len(overview.density)  # each bucket is rounded


def test_a_large_row_group_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows and messages are the same whether a row group is decoded whole or a few rows at a time."""
    trace = simulated_trace(tmp_path / "trace")
    seen = []
    for rows in (1 << 16, 7):
        monkeypatch.setattr(window, "PIECE_ROWS", rows)
        run = explored(tmp_path, trace)
        at = run.around_message((2, 5))
        seen.append((at, run.window(*at, None, (2, 5)), run.message_near(at[0], backwards=False)))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("seed", range(5))
def test_a_window_has_exactly_the_events_of_its_time(tmp_path: Path, seed: int) -> None:
    trace = simulated_trace(tmp_path / "trace", seed=seed)
    run, events = explored(tmp_path, trace), read(trace).events
    rng = random.Random(seed)
    for _ in range(20):
        one = rng.choice(events)
        assert one.time_ns is not None
        low, high = one.time_ns, one.time_ns + rng.randrange(1, 3_000_000)
        expected = sorted((e.member, e.step) for e in events if low <= (e.time_ns or 0) <= high)
        found = run.windows.events(list(run.survey.units), low, high)
        if found is not None:
            assert sorted((e.member, e.step) for e in found) == expected
        else:
            assert len(expected) > 500


def test_lanes_of_a_window_sum_up_to_its_events(tmp_path: Path) -> None:
    run = explored(tmp_path, simulated_trace(tmp_path / "trace"))
    window = run.window(0, 10**12, None, None)
    assert round(sum(sum(lane.counts) for lane in window.lanes)) == run.facts.events


def test_faults_and_views_are_on_the_strip(tmp_path: Path) -> None:
    crash = {"kind": "crash", "member": 1, "at": "400ms"}
    made = explorer(tmp_path, with_views(tmp_path / "trace", faults=[crash]))
    overview = made.run(None).overview(made)
    assert any(one.kind == "fault" and "member 1 is killed" in one.text for one in overview.moments)
    assert [one.text.split(" of")[0] for one in overview.moments if one.kind == "view"] == ["view 1", "view 2"]
    assert overview.headline.startswith("Member 1 was killed at 400 ms; the other three went on after")


def test_a_halt_is_in_the_headline_as_it_is_in_the_report(tmp_path: Path) -> None:
    crash = {"kind": "crash", "member": 2, "at": "200ms"}
    trace = with_views(tmp_path / "trace", views=False, faults=[crash], limit="2s")
    made = explorer(tmp_path, trace)
    quick = made.run(None).overview(made).headline
    assert re.search(r"From [\d.]+ ms on nothing was delivered, until the run ended at 2 s: \d+ messages waited", quick)
    facts = facts_of(tmp_path / "work", trace)
    assert facts.measured is not None
    write_result(tmp_path / "work" / "tables" / MEASURE_FILE, facts.measured)
    made = explorer(tmp_path, trace, facts.checked, measured=tmp_path / "work" / "tables")
    assert made.run(None).overview(made).headline == headline(facts)
    assert quick.split(" From ")[1].split(".")[0] in headline(facts)


def test_a_message_is_found_and_drawn_from_its_sending_to_its_last_delivery(tmp_path: Path) -> None:
    trace = simulated_trace(tmp_path / "trace")
    run = explored(tmp_path, trace)
    events = [e for e in read(trace).events if (e.sender, e.seq) == (2, 5) and e.event in ("send", "deliver")]
    low, high = run.around_message((2, 5))
    assert all(low <= (event.time_ns or 0) <= high for event in events)
    window = run.window(low, high, None, (2, 5))
    assert window.drawn is not None
    assert 'data-message="2:5"' in window.drawn
    with pytest.raises(UsageError, match="no message 2:999"):
        run.around_message((2, 999))


def test_messages_follow_each_other_in_time(tmp_path: Path) -> None:
    trace = simulated_trace(tmp_path / "trace")
    run = explored(tmp_path, trace)
    sends = sorted((e.time_ns, (e.sender, e.seq)) for e in read(trace).events if e.event == "send")
    at = run.survey.start - 1
    for time, _ in sends[:10]:
        found = run.message_near(at, backwards=False)
        assert found in [message for when, message in sends if when == time]
        at = time
    assert run.message_near(sends[-1][0], backwards=False) is None
    assert run.message_near(sends[0][0], backwards=True) is None


def test_violations_are_where_their_events_are(tmp_path: Path) -> None:
    trace, planted = planted_trace(tmp_path / "trace", "total swap")
    checked = facts_of(tmp_path / "work", trace).checked
    assert checked is not None
    made = explorer(tmp_path, trace, checked)
    marked = [one for one in made.run(None).moments if one.kind == "violation"]
    assert len(marked) == len(checked.guarantees[planted.guarantee].witnesses) > 0


def test_a_large_group_has_few_lanes_and_the_rest_summed_up(tmp_path: Path) -> None:
    rows = []
    for member in range(60):
        for step in range(1, 9):
            kind = {"sender": member, "seq": step, "event": "send"} if step < 8 else {"event": "end"}
            rows.append(Event(run="r", member=member, step=step, time_ns=step * 1000 + member, **kind))  # type: ignore[arg-type]
    rows = [row for row in rows if not (row.member == 41 and row.step == 8)]  # its log ends without a word
    (tmp_path / "trace").mkdir()
    write(rows, tmp_path / "trace" / "events.parquet")
    run = explored(tmp_path, tmp_path / "trace")
    window = run.window(0, 10**9, None, None)
    assert len(window.lanes) == LANES_MAX
    assert window.lanes[-1].name == f"the other {60 - LANES_MAX + 1}, mean"
    assert "member 41" in [lane.name for lane in window.lanes], "whom something happened to is shown"
    chosen = run.window(0, 10**9, (3, 5), None)
    assert [lane.name for lane in chosen.lanes] == ["member 3", "member 5"]
    with pytest.raises(UsageError, match="no member 77; the members are 0 to 59"):
        run.window(0, 1, (77,), None)


def test_a_log_without_times_is_shown_by_position(tmp_path: Path) -> None:
    rows = [
        Event(run="r", member=member, step=step, event="send" if member == 0 else "deliver", sender=0, seq=step)
        for member in range(3)
        for step in range(1, 30)
    ]
    (tmp_path / "trace").mkdir()
    write(rows, tmp_path / "trace" / "events.parquet")
    made = explorer(tmp_path, tmp_path / "trace")
    overview = made.run(None).overview(made)
    assert not overview.timed
    assert any("no times" in note for note in overview.notes)
    window = made.run(None).window(3, 6, None, None)
    assert window.words.startswith("Rows 3 to 6 of each log: 12 events")


def test_instants_are_as_exact_as_the_window_is_narrow(tmp_path: Path) -> None:
    run = explored(tmp_path, with_views(tmp_path / "trace"))
    assert run.window(0, 10**12, None, None).words.startswith("From 12 ms to 840 ms (")
    assert run.window(100_000_000, 100_000_500, None, None).words.startswith("From 100 ms to 100.0005 ms (500 ns)")


def test_clocks_that_are_far_off_do_not_tear_the_picture_apart(tmp_path: Path) -> None:
    """One member's clock is an hour ahead; its events lie where the others' do."""
    hour = 3_600 * 10**9
    rows = [
        Event(
            run="r", member=member, step=step, time_ns=step * 10**6 + (hour if member == 2 else 0),
            event="view" if step == 1 else "end" if step == 50 else "deliver", view=1,
            members=[0, 1, 2, 3] if step == 1 else None, **({} if step in (1, 50) else {"sender": 0, "seq": step}),
        )
        for member in range(4)
        for step in range(1, 51)
    ]  # fmt: skip
    (tmp_path / "trace").mkdir()
    write(rows, tmp_path / "trace" / "events.parquet")
    run = explored(tmp_path, tmp_path / "trace")
    assert run.survey.end - run.survey.start < 10**9
    assert any(one.kind == "fault" and "ahead of the others'" in one.text for one in run.moments)


def test_what_cannot_be_explored_is_refused_in_a_sentence(tmp_path: Path) -> None:
    made = explorer(tmp_path, simulated_trace(tmp_path / "trace"))
    with pytest.raises(UsageError, match="there is no run 'other' in this trace"):
        made.run("other")
    assert recognise([str(tmp_path / "trace")]).trace is not None


def test_a_kept_table_is_explored_without_its_trace(tmp_path: Path) -> None:
    trace = with_views(tmp_path / "trace", faults=[{"kind": "crash", "member": 1, "at": "400ms"}])
    (tmp_path / "table").mkdir()
    keep_trace(Inline(), str(trace), tmp_path / "table", None, in_place=False)
    made = explorer(tmp_path, trace)
    of_trace = made.run(None).overview(made)
    shutil.rmtree(trace)
    laid = lay_out_trace(Inline(), str(tmp_path / "table"), tmp_path / "unused", None)
    table = str(tmp_path / "table")
    kept = Explorer(table, TraceLayout(laid.folder), lambda run: run_settings(table, run, laid.totals.names))
    of_table = kept.run(None).overview(kept)
    assert of_table.density == of_trace.density
    assert of_table.headline == of_trace.headline != ""
    assert kept.run(None).window(0, 50_000_000, None, None).words
