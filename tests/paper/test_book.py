"""The reproduction book: complete, honest, self-contained."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from antiphon.cli import main
from antiphon.commands.reproduce import PAPERS
from antiphon.papers.book import numbers, papers
from support.broken_claims import ARITHMETIC, BREAKS, HIERARCHICAL

ROOT = Path(__file__).parents[2]

# how many figures and tables each paper prints
PRINTED = {
    "causally-ordering-broadcast": {"Figure": 8, "Table": 1},
    "hierarchical-stability": {"Figure": 10, "Table": 4},
    "timestamp-acknowledgments": {"Figure": 4},
    "tomp-total-order": {"Figure": 4},
    "robust-causal-order": {"Figure": 7},
}


def test_every_figure_and_table_of_every_paper_is_accounted_for() -> None:
    assert set(papers()) == set(PAPERS)
    for name, counts in PRINTED.items():
        printed = {(kind, number) for kind, count in counts.items() for number in range(1, count + 1)}
        accounted = [numbers(exhibit.item) for exhibit in papers()[name].exhibit]
        assert set().union(*accounted) == printed
        assert sum(map(len, accounted)) == len(printed), "none twice"


def test_every_erratum_is_shown_by_a_test_that_exists() -> None:
    for paper in papers().values():
        for erratum in paper.erratum:
            assert erratum.tests, erratum.title
            for test in erratum.tests:
                path, name = test.split("::")
                assert f"def {name}(" in (ROOT / path).read_text(), test


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("Figures 9 and 10", {("Figure", 9), ("Figure", 10)}),
        ("Figures 1 to 3", {("Figure", 1), ("Figure", 2), ("Figure", 3)}),
        ("Section 4 and Figure 2", {("Figure", 2)}),
        ("Figure 3b, c", {("Figure", 3)}),
        ("Figure 9(A)", {("Figure", 9)}),
        ("Table 1, Section 4.2", {("Table", 1)}),
        ("Abstract, Section 5", set()),
    ],
)
def test_figures_and_tables_are_found_in_a_reference(where: str, found: set[tuple[str, int]]) -> None:
    assert numbers(where) == found


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    pytest.importorskip("numba")
    pytest.importorskip("matplotlib")
    out = tmp_path_factory.mktemp("book")
    assert main(["reproduce", "--all", "--quick", "--out", str(out)]) == 0
    return (out / "book.html").read_text(), json.loads((out / "book.json").read_text())


def test_the_page_loads_nothing_and_repeats_no_id(book: tuple[str, dict[str, Any]]) -> None:
    html, _ = book
    assert not re.findall(r"(?:src|href)=\"(?!#|data:)[^\"]*\"|@import|url\((?!#)", html)
    ids = Counter(re.findall(r'<[^>]* id="([^"]+)"', html))
    assert [name for name, times in ids.items() if times > 1] == []
    wanted = set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', html))
    assert {one or two for one, two in wanted} <= set(ids)


def test_what_differs_is_said_first_and_every_exhibit_has_something_to_show(book: tuple[str, dict[str, Any]]) -> None:
    html, data = book
    differing = [claim for paper in data["papers"] for claim in paper["claims"] if not claim["agrees"]]
    assert len(differing) == data["claims"] - data["agree"] >= 20
    front = html[html.index('id="differences"') : html.index("<section")]
    assert front.count("<tr>") == len(differing) + 1
    for paper in data["papers"]:
        tables, figures = {table["name"] for table in paper["tables"]}, {Path(path).stem for path in paper["figures"]}
        for exhibit in paper["exhibits"]:
            named = numbers(exhibit["item"])
            claims = [claim for claim in paper["claims"] if numbers(claim["where"]) & named]
            assert {*exhibit["tables"]} <= tables
            assert {*exhibit["figures"]} <= figures
            assert exhibit["absent"] or claims or exhibit["tables"] or exhibit["figures"], exhibit["item"]


def test_every_claim_is_one_that_a_broken_protocol_changes(book: tuple[str, dict[str, Any]]) -> None:
    _, data = book
    for paper in data["papers"]:
        name = paper["paper"]
        known = [*BREAKS.get(name, HIERARCHICAL), *ARITHMETIC.get(name, [])]
        claims = [claim["claim"] for claim in paper["claims"]]
        assert {words: sum(claim.startswith(words) for claim in claims) for words in known} == dict.fromkeys(known, 1)
        assert [claim for claim in claims if not claim.startswith(tuple(known))] == []


def test_all_and_a_paper_are_two_wishes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--all", "tomp-total-order", "--out", "unused"]) == 2
    assert main(["reproduce", "--all"]) == 2
    assert main(["reproduce"]) == 2
    assert "--all" in capsys.readouterr().err
