"""The documentation as something to run: the blocks of a page, in order, and a reader who does what they say.

What counts:

- a fenced block marked `console`, and an indented one whose lines are commands: each line is run. `# exits with N`
  after a command says how it ends, if not with 0. `make TARGET` must be a target of the Makefile.
- a fenced block marked `python`: it is run, and shares its names with the page's other ones; `>>>` makes it a doctest.
  One that joins a live group by itself is a program for several processes: a test of its own starts them.
- a fenced block marked `output`: what the block before it prints, with `...` for whatever changes.
- any other fenced block after a line that ends with a file's name and a colon is that file; other pages may use it.
- `tests/data` is there, as in the repository.
- `<!-- not run: REASON -->` right before a block: it is not run, and that is why.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from antiphon.cli import main

ROOT = Path(__file__).parents[2]
ON_SPARK = re.compile(r"^antiphon (check|measure|sweep|watch|report)\b", re.MULTILINE)
_COMMANDS = ("antiphon ", "python ", "make ", "pip ", "openssl ", "source ", "tail ")
_NOT_RUN = re.compile(r"<!-- not run: (.+?) -->")
_NAMED = re.compile(r"`([\w.-]+\.\w+)`:$")
_EXIT = re.compile(r"#.*?\bexits with (\d)")
_LAX = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
TYPED_S_MAX: Final = 900  # of a command in a process of its own: a busy machine is no fault of the page


class Block(NamedTuple):
    """A block of a page: what it is, what it says, and, if it is not to be run, why."""

    page: Path
    line: int
    kind: str  # console, python, doctest, program, output, or a file's name
    text: str
    not_run: str = ""

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    """Give the blocks of a page that can be run, checked or written, in order."""
    lines = page.read_text().splitlines()
    number = 0
    while number < len(lines):
        fence = re.match(r"(```+)(\S*)", lines[number])
        if fence:
            end = next(place for place in range(number + 1, len(lines)) if lines[place].startswith(fence[1]))
            text = "\n".join(lines[number + 1 : end]) + "\n"
            kind = _kind(fence[2], text, _before(lines, number))
            if kind:
                yield Block(page, number + 1, kind, text, _reason(lines, number))
            number = end
        elif lines[number].startswith("    ") and lines[number].strip().startswith(_COMMANDS):
            end = number
            while end < len(lines) and lines[end].startswith("    "):
                end += 1
            text = "\n".join(line[4:] for line in lines[number:end]) + "\n"
            yield Block(page, number + 1, "console", text, _reason(lines, number))
            number = end - 1
        number += 1


@cache
def files() -> dict[str, str]:
    """Give the files that pages show, by their names."""
    shown = [block for page in sorted(ROOT.glob("docs/**/*.md")) for block in blocks(page) if "." in block.kind]
    assert len(shown) == len({block.kind for block in shown}), "one name, one file"
    return {block.kind: block.text for block in shown}


def _before(lines: list[str], number: int) -> str:
    return next((line for line in reversed(lines[:number]) if line.strip()), "")


def _reason(lines: list[str], number: int) -> str:
    found = _NOT_RUN.search(lines[number - 1]) if number else None
    return found[1] if found else ""


def _kind(language: str, text: str, before: str) -> str | None:
    if language == "python" and "antiphon.join(" in text and "asyncio.run(" in text:
        return "program"
    if language == "python":
        return "doctest" if text.startswith(">>>") else "python"
    if language in ("console", "sh", "bash", "shell"):
        return "console"
    if language == "output":
        return "output"
    named = _NAMED.search(before)
    return named[1] if named else None


class Reader:
    """Does in a folder of its own what a page says, block by block."""

    def __init__(self, folder: Path, *, typing: bool = False) -> None:
        self.folder = folder
        self.typing = typing  # every command is a process of its own, as at a terminal
        self.names: dict[str, Any] = {"__name__": "__page__"}

    def follow(self, page: Path) -> None:
        """Do everything, in order; an AssertionError says where the page is wrong."""
        for name, text in files().items():
            (self.folder / name).write_text(text)
        (self.folder / "tests").mkdir(exist_ok=True)
        (self.folder / "tests" / "data").symlink_to(ROOT / "tests" / "data")
        printed = ""
        for block in blocks(page):
            if block.not_run or block.kind == "program":
                printed = ""
            elif block.kind == "output":
                assert printed, f"{block.where}: an output needs a block that was run before it"
                same = doctest.OutputChecker().check_output(block.text, printed, _LAX)
                assert same, f"{block.where}: this was printed instead:\n{printed}"
            elif block.kind in ("console", "python", "doctest"):
                with contextlib.chdir(self.folder):
                    printed = getattr(self, f"_{block.kind}")(block)

    def _python(self, block: Block) -> str:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block.text, block.where, "exec"), self.names)
        return printed.getvalue()

    def _doctest(self, block: Block) -> str:
        test = doctest.DocTestParser().get_doctest(block.text, self.names, block.where, block.where, block.line)
        result = doctest.DocTestRunner(optionflags=_LAX).run(test, clear_globs=False)
        assert result.attempted
        assert result.failed == 0, block.where
        return ""

    def _console(self, block: Block) -> str:
        printed = ""
        for line in block.text.replace("\\\n", " ").splitlines():
            if line.strip() and not line.startswith("#"):
                printed += self._command(line, block.where)
        return printed

    def _command(self, line: str, where: str) -> str:
        expected = _EXIT.search(line)
        words = shlex.split(line, comments=True)
        assert "..." not in words, f"{where}: an example can be typed as it stands"
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), f"{where}: {line}"
            return ""
        if words[0] == "antiphon" and not self.typing:
            code, out, err = _antiphon(words[1:])
        else:
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            done = subprocess.run(
                ["bash", "-c", line],
                capture_output=True,
                text=True,
                timeout=TYPED_S_MAX,
                env={**os.environ, "PATH": path},
            )
            code, out, err = done.returncode, done.stdout, done.stderr
        assert code == (int(expected[1]) if expected else 0), f"{where}: {line}: exit code {code}\n{out}\n{err}"
        return out


def _antiphon(words: list[str]) -> tuple[int, str, str]:
    """Run a command in this process: commands on Spark then share one JVM."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except SystemExit as left:  # argparse
            code = int(left.code or 0)
    return code, out.getvalue(), err.getvalue()
