"""Buffers, waiting and blame are of views: nobody is waited for before it joined or after the others went on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("matplotlib")

from antiphon.protocol.membership.views import name_of
from antiphon.report.facts import Facts
from antiphon.report.timeline import ended_at, since_start
from antiphon.report.trace_page import trace_page
from antiphon.trace.event import Event
from pipeline.traces import write
from support.reports import facts_of, simulated_trace


def run(folder: Path, **table: Any) -> Facts:
    usual: dict[str, Any] = {
        "members": 4,
        "messages": 60,
        "ordering": "total",
        "views": True,
        "network": {"loss": 0.05},
    }
    trace = simulated_trace(folder / "trace", workload={"interval": "fixed 20ms"}, **{**usual, **table})
    return facts_of(folder / "work", trace)


def waiting(facts: Facts, name: int, *, before: int = 0, after: int = 2**62) -> float:
    """Return how many messages waited for a member before one time or after another, in parts of the run."""
    return sum(
        row.messages
        for row in facts.waiting
        if row.member is not None and name_of(row.member) == name and (row.end_ns <= before or row.start_ns >= after)
    )


@pytest.mark.slow
def test_a_joiner_is_not_waited_for_before_it_joined(tmp_path: Path) -> None:
    facts = run(tmp_path, founders=3, faults=[{"kind": "join", "member": 3, "at": "700ms"}])
    joined = next(view.first_ns for view in facts.views if any(name_of(one) == 3 for one in view.members))
    assert joined is not None
    assert waiting(facts, 3, before=joined) == 0
    assert facts.measured is not None
    own = [row for row in facts.measured.held_back if name_of(row.member) == 3]
    last = max(row.end_ns for row in facts.waiting)
    assert all(row.longest_ns <= last - joined for row in own)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["crash", "leave"])
def test_who_is_gone_is_not_waited_for_once_the_others_went_on(tmp_path: Path, kind: str) -> None:
    facts = run(tmp_path, faults=[{"kind": kind, "member": 2, "at": "500ms"}])
    gone_on = next(view.last_ns for view in facts.views if all(name_of(one) != 2 for one in view.members))
    assert gone_on is not None
    width = facts.waiting[0].end_ns - facts.waiting[0].start_ns
    assert waiting(facts, 2, after=gone_on + width) == 0
    end = max(row.last_ns or 0 for row in facts.processes)
    row = next(row for row in facts.processes if name_of(row.member) == 2)
    assert (ended_at(facts, row) or 0) < (since_start(facts, end) or 0), "its bar ends where it does"
    assert facts.measured is not None
    own = [held for held in facts.measured.held_back if name_of(held.member) == 2]
    assert all(held.longest_ns < gone_on for held in own)


def test_buffers_drain_after_a_view_closed(tmp_path: Path) -> None:
    """Copies that a crashed member still held do not count for ever."""
    facts = run(tmp_path, faults=[{"kind": "crash", "member": 2, "at": "500ms"}])
    assert facts.occupancy[-1].peak < max(row.peak for row in facts.occupancy)
    assert facts.occupancy[-1].mean <= 1


@pytest.mark.slow
@pytest.mark.parametrize("members", [3, 20, 60])
def test_large_groups_have_the_worst_first_and_the_rest_summed_up(tmp_path: Path, members: int) -> None:
    facts = run(tmp_path, members=members, messages=4 if members > 20 else 10, views=False, ordering="fifo")
    page = trace_page(facts)
    assert ("mean of all others, on a scale of its own" in page) is (members == 60)
    assert len(page) < 500_000


@pytest.mark.slow
def test_nobody_is_blamed_where_all_hold_everything_at_once(tmp_path: Path) -> None:
    rows = []
    for member in range(3):
        for number in range(1, 6):
            kind = "send" if member == 0 else "receive"
            rows.append(Event("r", member, 2 * number, kind, 0, number, time_ns=number * 1000))
            rows.append(Event("r", member, 2 * number + 1, "deliver", 0, number, time_ns=number * 1000))
    (tmp_path / "trace").mkdir()
    write(rows, tmp_path / "trace" / "events.parquet")
    (tmp_path / "trace" / "run.json").write_text('{"clock": "global"}')
    page = trace_page(facts_of(tmp_path / "work", tmp_path / "trace"))
    assert "Nobody was waited for alone." in page
    assert "was waited for most" not in page
