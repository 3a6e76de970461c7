"""ARCHITECTURE.md is true: its modules, its paths, its limits."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import antiphon.commands.spark_options
from antiphon.cli import main
from antiphon.live.group import Group
from antiphon.pipeline.inline import Inline
from support.documentation import ROOT
from support.live_group import members, run
from support.source import Module, attributes, methods, modules
from support.stations import calls, stations, walked

PAGE = ROOT / "ARCHITECTURE.md"
sys.path.insert(0, str(ROOT / "scripts"))

import list_modules  # noqa: E402

LIMITED = ("protocol", "live")
METHODS_MAX, ATTRIBUTES_MAX, LINES_MAX = 25, 15, 400


@pytest.mark.slow
def test_every_module_is_listed_with_its_one_idea() -> None:
    assert PAGE.read_text() == list_modules.written(), "run: python scripts/list_modules.py"


@pytest.mark.slow
def test_the_list_is_of_all_modules_and_no_idea_is_empty() -> None:
    listed = re.findall(r"^\| `([\w/]+\.py)` \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    assert [path for path, idea in listed if len(idea) < 20] == []
    assert {path for path, _ in listed} == {module.path for module in modules() if not _is_bare_package(module)}


def _is_bare_package(module: Module) -> bool:
    return module.is_empty and module.path.endswith("__init__.py")


# Sizes


def test_what_is_larger_than_the_limits_is_explained() -> None:
    """The table of ARCHITECTURE.md says of each why it is one idea; what has become small again leaves it."""
    section = PAGE.read_text().split("\n## Larger than the limits\n")[1].split("\n## ")[0]
    explained = dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", section, re.MULTILINE))
    assert all(len(why) > 40 for why in explained.values())
    assert {*explained} == {*too_large()}


def too_large() -> Iterator[str]:
    for module in modules():
        if module.package in LIMITED:
            if module.lines > LINES_MAX:
                yield module.path
            for node in module.classes():
                if len(methods(node)) > METHODS_MAX or len(attributes(node)) > ATTRIBUTES_MAX:
                    yield f"{module.path}: {node.name}"


# Paths


def test_a_datagram_passes_the_stations_in_order(tmp_path: Path) -> None:
    async def talk() -> None:
        async with members(2, tmp_path, ordering="fifo", key=b"0123456789abcdef0123456789abcdef") as groups:
            for _ in range(20):  # between two stations of one, another may be read: one undisturbed walk will do
                await groups[0].send(b"hello")
                await asyncio.gather(*map(first_message, groups))

    async def first_message(group: Group) -> None:
        async for event in group:
            if isinstance(event, antiphon.Message):
                return

    path = stations(PAGE, "## A datagram, from the socket to the application")
    assert len(path) >= 10
    assert walked(path, calls(lambda: run(talk()))) == (len(path), None)


@pytest.mark.slow
def test_a_row_passes_the_stations_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def inline(*_: object) -> Iterator[Inline]:
        yield Inline()

    trace = str(tmp_path / "trace")
    assert main(["simulate", "--members", "3", "--ordering", "total", "--messages", "5", "--out", trace]) == 0
    monkeypatch.setattr(antiphon.commands.spark_options, "spark_session", inline)
    path = stations(PAGE, "## A row, from a file to a verdict")
    assert len(path) >= 8
    assert walked(path, calls(lambda: main(["check", trace]))) == (len(path), None)


def test_a_station_that_is_not_called_is_noticed() -> None:
    path = stations(PAGE, "## A datagram, from the socket to the application")
    seen = [(station.path, station.symbol) for station in path]
    assert walked(path, seen) == (len(path), None)
    assert walked(path, [*seen[:4], *seen[5:]]) == (4, path[4].symbol)
    assert walked(path, [*seen[:5], seen[0], *seen[5:]]) == (5, path[5].symbol)  # a second datagram began
    assert walked(path, seen[::-1]) == (1, path[1].symbol)
