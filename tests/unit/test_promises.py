"""Which guarantees a run.json promises, which verdicts decide, and the exit code that follows."""

from __future__ import annotations

import pytest

from antiphon.errors import UsageError
from antiphon.trace.promises import promised
from antiphon.trace.verdict import VerdictName, deciding, exit_code

MIXED: dict[str, VerdictName] = {"fifo": "holds", "causal": "violated", "total": "unknown"}


@pytest.mark.parametrize(
    ("ordering", "more"),
    [
        ("fifo", set()),
        *((name, {"causal"}) for name in ("causal", "causal-blocks", "co")),
        *((name, {"total"}) for name in ("total", "abcast", "tomp", "sequencer")),
    ],
)
def test_an_ordering_promises_its_order(ordering: str, more: set[str]) -> None:
    every = {"integrity", "validity", "agreement", "fifo"}
    assert promised({"ordering": ordering}) == every | more
    assert promised({"protocol": {"ordering": ordering}}) == every | more
    assert promised({"protocol": ordering, "parameters": {"ordering": ordering}}) == every | more


def test_what_is_switched_off_promises_nothing() -> None:
    assert promised({"stability": None, "views": False}) == frozenset()


def test_an_ordering_stability_and_views_promise_what_they_are_for() -> None:
    run = {"protocol": {"ordering": "causal", "stability": "train"}, "views": True}
    assert promised(run) == {"integrity", "validity", "agreement", "fifo", "causal", "stability", "view-synchrony"}


def test_a_list_of_promises_stands_before_everything_else() -> None:
    assert promised({"ordering": "total", "promises": ["fifo"]}) == {"fifo"}
    with pytest.raises(UsageError, match="promises 'speed'"):
        promised({"promises": ["speed"]})


@pytest.mark.parametrize("run", [{}, {"system": "nats"}, {"ordering": "raft-log"}, {"ordering": ["odd"]}])
def test_another_systems_run_json_promises_nothing(run: dict[str, object]) -> None:
    assert promised(run) == frozenset()


@pytest.mark.parametrize(
    ("promises", "named", "decisive", "code"),
    [
        (["fifo"], False, ["fifo"], 0),
        (["fifo", "total"], False, ["fifo", "total"], 3),
        (["fifo"], True, ["fifo", "causal", "total"], 1),
        ([], False, ["fifo", "causal"], 1),
        (None, False, ["fifo", "causal"], 1),
    ],
)
def test_what_decides(promises: list[str] | None, named: bool, decisive: list[str], code: int) -> None:
    assert deciding(MIXED, promises, named=named) == decisive
    assert exit_code([MIXED[name] for name in decisive]) == code


def test_where_nothing_is_known_nothing_is_concluded() -> None:
    assert exit_code([MIXED[name] for name in deciding({"total": "unknown"}, None)]) == 3
