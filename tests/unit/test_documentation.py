"""What the documentation says can be done is done here: commands and programs run, links lead somewhere."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

import pytest

from antiphon.protocol.ordering import ORDERINGS
from antiphon.protocol.stability import STABILITIES
from antiphon.trace.naive import check
from antiphon.trace.reader import read
from support.documentation import ON_SPARK, ROOT, Block, Reader, blocks
from support.live_group import free_addresses
from support.symbols import broken, defined, source_links

LINKED = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/**/*.md")]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
BLOCKS = [block for page in PAGES for block in blocks(page)]
RUN = sorted({block.page for block in BLOCKS if not block.not_run})
SPARK = [page for page in RUN if any(ON_SPARK.search(b.text) for b in BLOCKS if b.page == page and not b.not_run)]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in RUN if page not in SPARK], ids=name)
def test_a_page_can_be_followed(page: Path, tmp_path: Path) -> None:
    Reader(tmp_path).follow(page)


@pytest.mark.spark
@pytest.mark.slow
def test_the_pages_on_spark_can_be_followed(tmp_path: Path, subtests: pytest.Subtests) -> None:
    """All in one test, so that one Spark serves them all."""
    from antiphon.pipeline.session import open_session

    session = open_session("local[2]", name="antiphon documentation")
    try:
        for page in SPARK:
            with subtests.test(page=name(page)):
                folder = tmp_path / page.stem
                folder.mkdir()
                Reader(folder).follow(page)
    finally:
        session.stop()


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.not_run], ids=lambda block: block.where)
def test_what_is_not_run_says_why(block: Block) -> None:
    for path in re.findall(r"\btests/[\w/]+\.py", block.not_run):
        assert (ROOT / path).exists(), f"{block.where}: {path} is said to run it"
    pytest.skip(block.not_run)


def test_the_blocks_of_a_page_are_found(tmp_path: Path) -> None:
    page = ROOT / "docs" / "5-checking-a-trace-of-your-own-system.md"
    kinds = [block.kind for block in blocks(page)]
    assert kinds[:4] == ["broker.csv", "broker.toml", "console", "output"]
    assert len(SPARK) >= 4
    assert len(RUN) >= 15
    programs = {name(block.page) for block in BLOCKS if block.kind == "program" and not block.not_run}
    assert programs == {"README.md"}, "the next test runs it"


@pytest.mark.parametrize("page", LINKED, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if not target.startswith(("http:", "https:")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_loads_nothing(tmp_path: Path) -> None:
    for needed in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(needed)
    site = tmp_path / "site"
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-c", str(ROOT / "docs")]
    built = subprocess.run(
        [*command, "-d", str(tmp_path / "doctrees"), str(ROOT), str(site)], capture_output=True, text=True, timeout=120
    )
    assert (built.returncode, built.stderr) == (0, "")
    for page in site.rglob("*.html"):
        assert not re.findall(r'<(?:script|img|link|iframe)[^>]*(?:src|href)="(?:https?:)?//', page.read_text()), page
    assert "antiphon simulate" in (site / "docs" / "commands.html").read_text()


@pytest.mark.parametrize("protocol", [*ORDERINGS, *STABILITIES])
def test_every_protocol_has_a_page_that_names_its_options(protocol: str) -> None:
    page = (ROOT / "docs" / "protocols" / f"{protocol}.md").read_text()
    headings = re.findall(r"^## (.*)$", page, re.MULTILINE)
    assert [heading for heading in headings if heading in ("Rule", "Cost", "When to use it", "Options")] == [
        "Rule",
        "Cost",
        "When to use it",
        "Options",
    ]
    options = page.split("\n## Options\n")[1]
    for link in re.findall(r"\]\(([\w-]+\.md)\)", options):  # those that it shares with another
        options += (ROOT / "docs" / "protocols" / link).read_text().split("\n## Options\n")[1]
    known = {**ORDERINGS, **STABILITIES}[protocol].Options.__struct_fields__
    assert [option for option in known if f"`{option}`" not in options] == []


# The programs and terminals of live groups


@contextmanager
def ended(processes: list[subprocess.Popen[str]], seconds: float = 60) -> Iterator[None]:
    """End them at last: who waits for a word of theirs does not wait for ever."""

    def kill() -> None:
        for process in processes:
            process.kill()

    watchdog = Timer(seconds, kill)
    watchdog.start()
    try:
        yield
    finally:
        watchdog.cancel()
        kill()
        for process in processes:
            process.wait()


def test_the_readme_program_makes_a_group(tmp_path: Path) -> None:
    (program,) = [block.text for block in blocks(ROOT / "README.md") if block.kind == "program"]
    one, other = free_addresses(2)
    assert program.count("127.0.0.1:7001") == program.count("127.0.0.1:7002") == 1
    processes = []
    for own, peer in ((one, other), (other, one)):
        text = program.replace("127.0.0.1:7001", own).replace("127.0.0.1:7002", peer)
        environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / own.replace(":", "-")), "PYTHONUNBUFFERED": "1"}
        processes.append(
            subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True, env=environment)
        )
    with ended(processes):
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ViewChange(")
            said = (line for line in process.stdout if line.startswith("Message("))  # a busy machine may change views
            assert sorted(next(said).split("sender='")[1].split("'")[0] for _ in range(2)) == sorted([one, other])


class Terminals:
    """The three terminals of chapter 2: each starts its member with the chapter's own command, at a free port."""

    def __init__(self, folder: Path) -> None:
        page = ROOT / "docs" / "2-a-live-group.md"
        (joins,) = [block.text for block in blocks(page) if block.text.startswith("antiphon join")]
        self.folder = folder
        self.addresses = free_addresses(3)
        for number, address in enumerate(self.addresses, 1):
            joins = joins.replace(f"127.0.0.1:700{number}", address)
        self.commands = dict(zip(self.addresses, (line.split() for line in joins.splitlines()), strict=True))
        self.processes: list[subprocess.Popen[str]] = []
        self.member: dict[str, subprocess.Popen[str]] = {}  # the running process of each address

    def start(self, *addresses: str) -> None:
        for address in addresses:
            process = subprocess.Popen(
                [sys.executable, "-m", "antiphon.cli", *self.commands[address][1:]],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                cwd=self.folder,
                env={**os.environ, "XDG_STATE_HOME": str(self.folder / "state")},
            )
            self.member[address] = process
            self.processes.append(process)

    def kill(self, *addresses: str) -> None:
        for address in addresses:
            self.member[address].kill()

    def types(self, address: str, line: str) -> None:
        stdin = self.member[address].stdin
        assert stdin is not None
        stdin.write(line + "\n")
        stdin.flush()

    def control_d(self, address: str) -> None:
        process = self.member[address]
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(30) == 0

    def says(self, address: str, wanted: str) -> None:
        stdout = self.member[address].stdout
        assert stdout is not None
        assert any(line.rstrip() == wanted for line in stdout), f"{address} never said: {wanted}"

    def sees(self, address: str, members: Iterable[str]) -> list[str]:
        """Wait for a view of these members, and give it in its order, which is that of their age."""
        stdout = self.member[address].stdout
        assert stdout is not None
        for line in stdout:
            if line.startswith("# view "):
                view = [member.strip() for member in line.split(": ")[1].split(",")]
                if {*view} == {*members}:
                    return view
        raise AssertionError(f"{address} saw no view of {members}")

    def all_see(self, *members: str) -> list[str]:
        """Wait until each of them sees the view of them all, and give it in its order."""
        views = [self.sees(member, members) for member in members]
        return views[0]


def test_chapter_2_with_three_terminals(tmp_path: Path) -> None:
    """Start the three, type, kill one, two at once and one after the other; the text says what each shows."""
    terminals = Terminals(tmp_path)
    one, two, three = terminals.addresses
    with ended(terminals.processes, 120):
        terminals.start(one, two, three)
        terminals.all_see(one, two, three)
        terminals.types(one, "hello from one")
        for address in (one, two, three):
            terminals.says(address, f"{one}\thello from one")
        terminals.kill(three)
        terminals.all_see(one, two)
        terminals.start(three)
        terminals.all_see(one, two, three)

        terminals.kill(two, three)
        terminals.says(one, "# stalled")
        terminals.types(one, "is anybody there")
        terminals.start(two)
        terminals.says(one, "# resumed")
        terminals.sees(two, (one, two))
        terminals.says(one, f"{one}\tis anybody there")
        terminals.start(three)
        terminals.all_see(one, two, three)

        terminals.kill(three)
        eldest, younger = terminals.all_see(one, two)
        terminals.kill(younger)
        assert terminals.sees(eldest, (eldest,)) == [eldest]
        terminals.start(younger)
        assert terminals.all_see(eldest, younger) == [eldest, younger]
        terminals.kill(eldest)
        terminals.says(younger, "# stalled")


def test_chapter_2_ends_with_a_check(tmp_path: Path) -> None:
    """Three members say a line each and end with Ctrl-D, one after the other: the verdicts are as the text says."""
    terminals = Terminals(tmp_path)
    with ended(terminals.processes):
        terminals.start(*terminals.addresses)
        terminals.all_see(*terminals.addresses)
        for address in terminals.addresses:
            terminals.types(address, "hello")
        for address in terminals.addresses:
            for _ in terminals.addresses:
                next(line for line in terminals.member[address].stdout or () if line.endswith("\thello\n"))
        time.sleep(1)  # nobody's fingers are quicker; by then all know that the lines are stable
        for address in terminals.addresses:
            terminals.control_d(address)
    events = read(tmp_path / "out" / "live").events
    verdicts = {name: found.verdict for name, found in check(events).items()}
    assert verdicts.pop("causal") in ("holds", "unknown")
    left = {event.member for event in events if event.event == "leave"}
    stayed = {event.member for event in events} - left  # on a busy machine one gives up before it has left
    assert verdicts.pop("validity") == ("holds" if stayed else "unknown")
    assert verdicts == dict.fromkeys(verdicts, "holds")


# Words, and where each thing is


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")], ids=name)
def test_links_into_the_source_lead_to_what_they_name(page: Path) -> None:
    assert [found for link in source_links(page) if (found := broken(link))] == []


# A stranger looks up the papers' words in the glossary; what the link leads to must be marked as that rule.
PAPERS_RULES = {
    "R4.1": "R4.1",
    "delivery rule of section IV": "Section IV, delivery rule",
    "R5.0": "R5.0",
    "stability at delivery time": "stability at delivery time",
    "ACC condition": "ACC condition",
    "PACK condition": "PACK condition",
    "ACK condition": "ACK condition",
    "CPI operation": "CPI operation",
    "flow condition": "flow condition",
    "dissemination phase": "dissemination phase",
    "decision phase": "decision phase",
    "reception queue": "conditions (1) and (2)",
    "message timestamps": "message timestamps",
    "acknowledgment timestamps": "acknowledgment timestamps",
    "null messages, T_send": "null messages",
    "START, ACK, INFO of CoordP": "CoordP: the round ends",
    "all rows are in": "FullDist: the round ends",
    "Train's two laps": "Train",
}


@pytest.mark.parametrize("words", PAPERS_RULES)
def test_a_stranger_finds_a_rule_of_a_paper_in_one_step(words: str) -> None:
    sought = re.compile(rf"\b{re.escape(words)}")
    (link,) = [link for link in source_links(ROOT / "docs" / "glossary.md") if sought.search(link.line)]
    found = defined(link.path, link.symbol)
    assert isinstance(found, ast.FunctionDef)
    marks = [ast.unparse(mark) for mark in found.decorator_list]
    assert any(mark.startswith("rule(") and PAPERS_RULES[words] in mark for mark in marks), marks


# The same for membership: by the words of its rules.
MEMBERSHIP_RULES = [
    "decides what follows it",
    "no ballot below one that was promised",
    "who proposes",
    "who has told what it holds stops",
    "the highest ballot is proposed again",
    "at most as many join as stay",
    "per sender, the longest prefix",
    "a vote is given only with the whole cut",
    "on disk before they are spoken of",
    "every start is a new incarnation",
    "data is a sign of life",
    "a leaver delivers nothing beyond the cut",
]


@pytest.mark.parametrize("words", MEMBERSHIP_RULES)
def test_a_stranger_finds_a_rule_of_membership_in_one_step(words: str) -> None:
    (link,) = [link for link in source_links(ROOT / "docs" / "glossary.md") if words in link.line]
    assert isinstance(defined(link.path, link.symbol), ast.FunctionDef)
