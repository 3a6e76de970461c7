"""Each protocol's page lists its rules: where the paper states each, and on which lines it is written."""

from __future__ import annotations

import ast
import re
import sys

import pytest

from support.documentation import ROOT
from support.source import modules

sys.path.insert(0, str(ROOT / "scripts"))

import list_rules

PAGES = list_rules.pages()
LINE = re.compile(r"#L(\d+)\)")
REFRESH = "run: python scripts/list_rules.py"


def listed(page: str) -> str:
    found = list_rules.SECTION.search((ROOT / page).read_text())
    assert found, f"{page} has no section of rules; {REFRESH}"
    return found[0].strip()


@pytest.mark.parametrize("page", sorted(PAGES))
def test_a_page_lists_the_rules_of_its_protocol(page: str) -> None:
    """All but the lines, which may move a little until the list is written anew."""
    expected = list_rules.section(page, PAGES[page]).strip()
    assert LINE.sub(")", listed(page)) == LINE.sub(")", expected), REFRESH


@pytest.mark.parametrize("page", sorted(PAGES))
def test_a_page_links_each_rule_to_its_lines(page: str) -> None:
    linked = {name: int(line) for name, line in re.findall(r"^\| \[`(\w+)`\]\([^)]*#L(\d+)\)", listed(page), re.M)}
    astray = {}
    for rule in PAGES[page]:
        _, first, last = rule.lines
        if not first <= linked[rule.name] <= last:
            astray[rule.name] = f"linked to line {linked[rule.name]}, written on lines {first} to {last}"
    assert astray == {}, REFRESH


@pytest.mark.parametrize("page", sorted(PAGES))
def test_what_a_rule_refers_to_on_a_page_is_there(page: str) -> None:
    for rule in PAGES[page]:
        for name, words in re.findall(r"docs/protocols/([a-z-]+)\.md, ([^:;]+)", rule.source):
            text = (ROOT / "docs" / "protocols" / f"{name}.md").read_text()
            assert re.search(rf"(^## |\*\*){re.escape(words)}", text, re.MULTILINE), f"{rule.name}: {rule.source}"


def test_every_page_is_of_a_protocol() -> None:
    written = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / "protocols").glob("*.md")}
    assert written | {list_rules.MEMBERSHIP} == set(PAGES)


@pytest.mark.slow
def test_every_rule_is_listed_on_a_page() -> None:
    marked = {
        (f"src/antiphon/{module.path}", node.name)
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef)
        and any(ast.unparse(mark).startswith("rule(") for mark in node.decorator_list)
    }
    assert len(marked) > 100
    assert marked - {(list_rules.file_of(rule), rule.name) for rules in PAGES.values() for rule in rules} == set()
