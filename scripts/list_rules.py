"""List the rules of each protocol on its page: where each is stated, and a link to the line that it begins on.

python scripts/list_rules.py     # writes all lists anew; a test says when that is due
"""

from __future__ import annotations

import re
from pathlib import Path

from antiphon.protocol.membership.process import Process
from antiphon.protocol.ordering import ORDERINGS
from antiphon.protocol.recovery import Recovery
from antiphon.protocol.rules import Rule, rules_of
from antiphon.protocol.stability import STABILITIES

ROOT = Path(__file__).parents[1]
HEADING = "## The rules in the code\n"
SECTION = re.compile(rf"^{HEADING}.*?(?=^## |\Z)", re.DOTALL | re.MULTILINE)
MEMBERSHIP = "docs/membership.md"


def pages() -> dict[str, list[Rule]]:
    """Return the rules that each page lists, by name."""
    protocols: dict[str, type] = {**ORDERINGS, **STABILITIES, "fifo": Recovery}  # fifo has no rules but recovery's
    found = {f"docs/protocols/{name}.md": rules_of(protocol) for name, protocol in protocols.items()}
    found[MEMBERSHIP] = {name: one for name, one in rules_of(Process).items() if one.source.startswith(MEMBERSHIP)}
    return {page: [rules[name] for name in sorted(rules)] for page, rules in found.items()}


def file_of(rule: Rule) -> str:
    """Return the file that a rule is written in, from the root."""
    path = f"src/{rule.function.__module__.replace('.', '/')}"
    return f"{path}.py" if (ROOT / f"{path}.py").exists() else f"{path}/__init__.py"


def section(page: str, rules: list[Rule]) -> str:
    """Return the section of a page that lists these rules."""
    rows = [_row(page, rule) for rule in rules]
    return "\n".join([HEADING, "| rule | stated in | what it says |", "|---|---|---|", *rows, "", ""])


def _row(page: str, rule: Rule) -> str:
    up = "../" * page.count("/")
    _, first, _ = rule.lines
    where = rule.source.replace(page, "this page")
    where = re.sub(r"docs/protocols/([a-z-]+)\.md", r"[\1](\1.md)", where)
    says = (rule.function.__doc__ or "").strip().splitlines()[0].replace("|", "\\|")
    return f"| [`{rule.name}`]({up}{file_of(rule)}#L{first}) | {where} | {says} |"


def write() -> None:
    """Write the section of every page anew; a page that has none gets it at its end."""
    for page, rules in pages().items():
        path, new = ROOT / page, section(page, rules)
        text = path.read_text()
        text = SECTION.sub(lambda _, new=new: new, text) if SECTION.search(text) else f"{text.rstrip()}\n\n{new}"
        path.write_text(text.rstrip() + "\n")


if __name__ == "__main__":
    write()
