"""Which guarantees a run.json promises, which verdicts decide, and the exit code that follows."""

from __future__ import annotations

import re

import pytest

from antiphon.errors import UsageError
from antiphon.protocol.options import GroupOptions, part_name
from antiphon.protocol.ordering import ALIASES, ORDERINGS
from antiphon.trace.promises import promised
from antiphon.trace.schema import GUARANTEES
from antiphon.trace.verdict import VerdictName, deciding, exit_code
from support.documentation import ROOT

MIXED: dict[str, VerdictName] = {"fifo": "holds", "causal": "violated", "total": "unknown"}


@pytest.mark.parametrize(
    ("ordering", "more"),
    [
        ("fifo", set()),
        *((name, {"causal", "stability"}) for name in ("causal", "causal-blocks", "co")),
        *((name, {"causal", "total"}) for name in ("total", "abcast", "tomp", "sequencer")),
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


def test_what_a_run_json_promises_is_what_the_classes_say() -> None:
    for name, ordering in {**ORDERINGS, **{alias: ORDERINGS[name] for alias, name in ALIASES.items()}}.items():
        assert promised({"ordering": name}) == {"integrity", "validity", "agreement", *ordering.PROMISES}
        for views in (False, True):
            options = GroupOptions(ordering=name, views=views)
            stability = part_name(options.stability if ordering.NEEDS_RECOVERY else options.ordering)
            said = {"ordering": name, "stability": stability, "views": views}
            assert promised(said) == set(options.promises())


def rows(page: str, title: str) -> dict[str, str]:
    """Return the second column of the table that begins with this title, by the names in the first."""
    lines = (ROOT / page).read_text().splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith(f"| {title} |"))
    found: dict[str, str] = {}
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        names, said = line.strip("|").split("|")[:2]
        found |= dict.fromkeys(re.findall(r"`([\w-]+)`", names), said.strip())
    return found


def test_the_documented_table_is_what_the_classes_say() -> None:
    table = rows("docs/trace-guarantees.md", "`run.json` says")
    assert set(table) - {"ordering", "stability", "views"} == {*ORDERINGS, *ALIASES}
    for name in [*ORDERINGS, *ALIASES]:
        more = set(re.findall(r"[\w-]+", table[name])) & set(GUARANTEES)
        basis = promised({"ordering": "fifo"})
        assert more | basis == promised({"ordering": name}), name
    assert "stability" in table["stability"]
    assert "view-synchrony" in table["views"]


def test_the_readme_names_each_ordering_by_the_order_that_it_promises() -> None:
    table = rows("README.md", "orderings")
    assert set(table) == set(ORDERINGS)
    for name, ordering in ORDERINGS.items():
        strongest = "total" if "total" in ordering.PROMISES else "causal" if "causal" in ordering.PROMISES else "sender"
        words = table[name].lower()
        assert strongest in words, name
        assert strongest == "total" or "total" not in words, name
