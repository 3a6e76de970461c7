"""Each protocol's page lists its rules: where the paper states each, and in which file it is written.

When a rule is added, renamed or moved, write the lists anew:
    python -m pytest tests/unit/test_rules_documented.py --golden
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import antiphon
from antiphon.protocol.ordering import ORDERINGS
from antiphon.protocol.recovery import Recovery
from antiphon.protocol.rules import Rule, rules_of
from antiphon.protocol.stability import STABILITIES

SOURCE = Path(antiphon.__file__).parents[1]
PAGES = SOURCE.parent / "docs" / "protocols"
PROTOCOLS: dict[str, type] = {**ORDERINGS, **STABILITIES, "fifo": Recovery}  # fifo has no rules but recovery's
HEADING = "## The rules in the code\n"


def row(rule: Rule, page: str) -> str:
    """Give a rule's line of the table."""
    module, _, _ = rule.lines
    path = f"src/{module.replace('.', '/')}.py"
    if not (SOURCE.parent / path).exists():
        path = f"src/{module.replace('.', '/')}/__init__.py"
    where = rule.source.replace(f"docs/protocols/{page}.md", "this page")
    where = re.sub(r"docs/protocols/([a-z-]+)\.md", r"[\1](\1.md)", where)
    says = (rule.function.__doc__ or "").strip().splitlines()[0].replace("|", "\\|")
    return f"| [`{rule.name}`](../../{path}) | {where} | {says} |"


def listed(page: str) -> str:
    rows = sorted(row(rule, page) for rule in rules_of(PROTOCOLS[page]).values())
    return "\n".join([HEADING, "| rule | stated in | what it says |", "|---|---|---|", *rows, ""])


@pytest.mark.parametrize("page", sorted(PROTOCOLS))
def test_a_page_lists_the_rules_of_its_protocol(page: str, request: pytest.FixtureRequest) -> None:
    path = PAGES / f"{page}.md"
    text = path.read_text()
    present = re.search(rf"{HEADING}.*?(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    if request.config.getoption("--golden"):
        section = listed(page) + "\n"
        text = (
            text.replace(present[0], section) if present else text.replace("\n## Options\n", f"\n{section}## Options\n")
        )
        path.write_text(text.rstrip() + "\n")
        present = re.search(rf"{HEADING}.*?(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    assert present, f"{path.name} has no section of rules"
    assert present[0].strip() == listed(page).strip()


@pytest.mark.parametrize("page", sorted(PROTOCOLS))
def test_what_a_rule_refers_to_on_a_page_is_there(page: str) -> None:
    for rule in rules_of(PROTOCOLS[page]).values():
        for name, words in re.findall(r"docs/protocols/([a-z-]+)\.md, ([^:;]+)", rule.source):
            text = (PAGES / f"{name}.md").read_text()
            assert re.search(rf"(^## |\*\*){re.escape(words)}", text, re.MULTILINE), f"{rule.name}: {rule.source}"


def test_every_page_is_of_a_protocol() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} == set(PROTOCOLS)
