"""A protocol of one's own in place of a name: simulated, checked, live, and caught where it is wrong."""

from __future__ import annotations

import ast
import asyncio
import json
import re
import shlex
from pathlib import Path

import pytest

import antiphon
from antiphon import testing
from antiphon.cli import main
from antiphon.errors import UsageError
from antiphon.protocol.options import ordering_type, stability_type
from antiphon.protocol.ordering.fifo import Fifo
from antiphon.protocol.stability.vector_ack import VectorAck
from antiphon.protocol.wire import Data, Streamed
from antiphon.report.member_names import put_names
from antiphon.sim import view_schedules
from antiphon.sim.cluster import simulate
from antiphon.sim.network import NetworkOptions
from antiphon.sim.scenario import Scenario, from_table, to_toml
from antiphon.trace import naive
from antiphon.trace.reader import read

ROOT = Path(__file__).parents[2]
NAME = "examples.own_ordering:ByTurns"


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT))


class OwnStability(VectorAck):
    """Ours, under another name."""


def test_it_takes_fewer_than_sixty_lines() -> None:
    text = (ROOT / "examples" / "own_ordering.py").read_text()
    about = ast.get_docstring(ast.parse(text), clean=False)
    assert about is not None
    assert len([line for line in text.replace(f'"""{about}"""', "").splitlines() if line.strip()]) < 60


def test_it_keeps_what_it_promises_as_a_class_and_by_name() -> None:
    scenario = Scenario(ordering=ordering_type(NAME), stability=OwnStability, network=NetworkOptions(loss=0.2))
    run = simulate(scenario, seed=3)
    assert run.finished
    assert {"causal", "total"} <= set(scenario.promises())
    verdicts = naive.check(run.events, guarantees=scenario.promises(), global_clock=True)
    assert {verdict.verdict for verdict in verdicts.values()} == {"holds"}
    for seed in range(10):
        assert view_schedules.flaw(view_schedules.schedule(seed, NAME), seed) is None


def test_a_scenario_with_classes_can_be_written_down() -> None:
    import tomllib

    written = to_toml(Scenario(ordering=ordering_type(NAME), stability=OwnStability))
    assert from_table(tomllib.loads(written)).ordering == NAME


@pytest.mark.parametrize(("ordering", "total"), [("ByTurns", "holds"), ("Hasty", "violated")])
def test_on_the_command_line_as_documented(ordering: str, total: str, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "own-protocol.md").read_text()
    (command,) = re.findall(rf"\$ antiphon (simulate .*:{ordering} .*)", page)
    words = shlex.split(command)
    words[words.index("--out") + 1] = str(tmp_path / "trace")
    assert main(words) == 0
    about = json.loads((tmp_path / "trace" / "run.json").read_text())
    assert about["ordering"] == f"examples.own_ordering:{ordering}"
    assert about["promises"] == ["integrity", "validity", "agreement", "fifo", "causal", "total", "stability"]
    trace = read(tmp_path / "trace")
    assert trace.promised == frozenset(about["promises"])
    verdict = naive.check(trace.events)["total"]
    assert verdict.verdict == total
    if total == "violated":
        assert put_names(verdict.witnesses[0].why, "member {}".format) in " ".join(page.split())


def test_in_groups_and_worlds() -> None:
    async def chatter(world: testing.World, ordering: str) -> None:
        addresses = world.addresses(3)
        groups = [
            antiphon.join(
                "own",
                bind=own,
                peers=[peer for peer in addresses if peer != own],
                ordering=ordering_type(f"examples.own_ordering:{ordering}"),
                stability=OwnStability,
            )
            for own in addresses
        ]
        await asyncio.gather(*(group.__aenter__() for group in groups))
        for _ in range(10):
            await asyncio.gather(*(group.send(b"x") for group in groups))
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)

    for seed in range(3):
        testing.run(lambda world: chatter(world, "ByTurns"), seed=seed, loss=0.1, faults=1)
    with pytest.raises(testing.Violated, match=r"(causal|total) is violated"):
        testing.run(lambda world: chatter(world, "Hasty"), seed=0, loss=0.1)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("turns", "ordering: unknown 'turns'; choose from fifo, .* or write package.module:Class"),
        ("examples.nowhere:ByTurns", "cannot be imported: No module named 'examples.nowhere'"),
        ("examples.own_ordering:Nothing", "cannot be imported: .*no attribute 'Nothing'"),
        ("json:dumps", "json:dumps is no class"),
        ("json:JSONDecoder", "json.decoder:JSONDecoder has no PDUS; see antiphon.protocol.parts.Ordering"),
    ],
)
def test_what_cannot_be_used_is_named(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ordering_type(name)
    with pytest.raises(UsageError, match="stability: unknown 'x'"):
        stability_type("x")


def test_tags_that_are_taken_are_named() -> None:
    class Taken(Streamed, tag=1):
        """Has the tag of `Data`."""

    class Mine(Fifo):
        PDUS = (Data, Taken)

    with pytest.raises(UsageError, match="Taken and Data both have the tag 1; give yours one above 199"):
        Scenario(ordering=Mine).check()


def test_a_module_that_fails_when_it_is_imported_is_not_our_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing_protocol.py").write_text("raise RuntimeError('no such table')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match="failing_protocol:Mine cannot be imported: RuntimeError: no such table"):
        ordering_type("failing_protocol:Mine")
