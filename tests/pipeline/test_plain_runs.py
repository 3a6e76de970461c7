"""Runs in which all is as it should be are settled by one pass: what it says is what the naive checker says."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from antiphon.pipeline.checking import CheckOptions, plain_runs
from antiphon.pipeline.columns import Array
from antiphon.trace.event import Event
from pipeline.conftest import Checker
from pipeline.test_equals_naive import compare
from pipeline.traces import chaos, write


def plain(seed: int, run: str) -> list[Event]:
    """A run as it should be: everyone is in every view and delivers the same in the same order."""
    rng = random.Random(seed)
    members = sorted(rng.sample(range(-3, 40), rng.randint(1, 4)))
    first = {member: rng.choice([1, 1, 7]) for member in members}
    sent = [(rng.choice(members), view) for view in range(rng.randint(0, 3)) for _ in range(rng.randrange(4))]
    ends, receives, marks = rng.random() < 0.8, rng.random() < 0.5, rng.random() < 0.7
    numbers: list[tuple[int, int, int]] = []
    for sender, view in sent:
        count = sum(one == sender for one, _, _ in numbers)
        numbers.append((sender, first[sender] + count, view))
    events: list[Event] = []
    for member in members:
        log: list[tuple[str, int | None, int | None, int]] = []
        view = 0
        now = rng.randrange(20)
        steps: list[tuple[str, int | None, int | None, int]] = []
        ahead = [one for one in numbers if one[0] == member]
        for sender, seq, of_view in numbers:
            while view < of_view:
                view += 1
                steps.append(("view", None, None, view))
            while ahead and ahead[0][2] <= view and (ahead[0] == (sender, seq, of_view) or rng.random() < 0.5):
                steps.append(("send", member, ahead.pop(0)[1], view))
            if receives and rng.random() < 0.7:
                steps.append(("receive", sender, seq, view))
            steps.append(("deliver", sender, seq, view))
            if marks and rng.random() < 0.4:
                steps.append(("stable", sender, seq, view))
            if rng.random() < 0.1:
                steps.append(("control", None, None, view))
        if ends:
            steps.append(("end", None, None, view))
        log += steps or [("control", None, None, 0)]
        for step, (event, sender, seq, view) in enumerate(log, 1):
            now += rng.randrange(3) if event != "stable" else rng.choice([0, 30])
            events.append(
                Event(
                    run,
                    member,
                    step,
                    event,
                    sender,
                    seq,
                    None if rng.random() < 0.02 else now,
                    view,
                    members=members if event == "view" and rng.random() < 0.8 else None,
                )
            )
    return events


def spoilt(seed: int, run: str) -> list[Event]:
    """The same with one thing that may be wrong."""
    rng = random.Random(-seed)
    events = plain(seed, run)
    at = rng.randrange(len(events))
    one = events[at]
    change = rng.randrange(6)
    if change == 0:
        del events[at]
    elif change == 1:
        events[at] = msgspec.structs.replace(one, event=rng.choice(["discard", "leave", "crash", "end", "deliver"]),
                                             sender=one.sender or one.member, seq=one.seq or 1)  # fmt: skip
    elif change == 2 and one.seq is not None and one.event != "send":
        events[at] = msgspec.structs.replace(one, seq=one.seq + rng.choice([-1, 1, 5]) or 1)
    elif change == 3:
        events[at] = msgspec.structs.replace(one, time_ns=rng.randrange(40))
    elif change == 4 and at and events[at - 1].member == one.member:
        before = events[at - 1]
        events[at - 1 : at + 1] = [
            msgspec.structs.replace(one, step=before.step),
            msgspec.structs.replace(before, step=one.step),
        ]
    elif one.event == "view":
        other = rng.choice([[one.member], [*(one.members or ()), 99], [one.member, one.member]])
        events[at] = msgspec.structs.replace(one, view=rng.choice([one.view, one.view + 1, 0]), members=other)
    return events


@pytest.mark.parametrize("make", [plain, spoilt])
def test_plain_runs_are_what_the_definition_says(
    inline: Checker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[int, str], list[Event]]
) -> None:
    settled: list[Array] = []
    settle = plain_runs.settle_plain_runs

    def noting(*args: object) -> Array:
        settled.append(settle(*args))  # type: ignore[arg-type]
        return settled[-1]

    monkeypatch.setattr("antiphon.pipeline.checking.encode.settle_plain_runs", noting)
    runs = [make(seed, f"run-{seed:04}") for seed in range(400)]
    runs += [chaos(seed, f"chaos-{seed}") for seed in range(20)]
    violations = compare(
        inline, tmp_path, [run for run in runs if run], False, [CheckOptions(), CheckOptions(uniform=True)]
    )
    count = sum(len(one) for one in settled)
    assert count > (200 if make is plain else 30)  # else nothing was tried
    assert violations > 20


def test_a_trace_of_plain_runs_needs_one_stage(inline: Checker, tmp_path: Path) -> None:
    events = [event for seed in range(50) for event in plain(seed, f"run-{seed:02}")]
    trace = write(events, tmp_path / "trace" / "events.parquet")
    before = inline.session.jobs  # type: ignore[attr-defined]
    _, found = inline.check(trace.parent)
    assert inline.session.jobs - before <= 3  # type: ignore[attr-defined]
    assert found["total"].verdict == "holds"
