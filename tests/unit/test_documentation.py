"""What the documentation says can be done is done here: commands run, links lead somewhere, examples compile."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest

import antiphon
from antiphon.cli import main

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/**/*.md")]
COMMAND = re.compile(r"^ {4}(antiphon simulate [^#\n]*)|^(antiphon simulate [^#\n]*)", re.MULTILINE)
COMMANDS = sorted({(one or two).strip() for page in PAGES for one, two in COMMAND.findall(page.read_text())})


@pytest.mark.parametrize("command", COMMANDS)
def test_a_documented_simulation_runs(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (scenario,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/scenarios.md").read_text(), re.DOTALL)
    (tmp_path / "scenario.toml").write_text(scenario)
    monkeypatch.chdir(tmp_path)
    words = shlex.split(command)[1:]
    assert "..." not in words, "an example can be typed as it stands"
    assert main(words) == 0


def test_there_are_commands_to_run() -> None:
    assert len(COMMANDS) >= 3


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if not target.startswith(("http:", "https:")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_readme_example_compiles_and_uses_what_exists() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    used = {node.attr for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Attribute)}
    assert "join" in used
    assert callable(antiphon.join)
