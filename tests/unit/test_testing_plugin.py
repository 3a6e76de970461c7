"""The pytest plugin: a test a seed, and on a failure the seed, the command, the diagram; nothing for anyone else."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet  # noqa: F401 - pytester forgets what its tests import, and this cannot be imported twice
import pytest

import antiphon.testing.story  # noqa: F401 - nor numpy

pytest_plugins = ("pytester",)

TESTS = """
import asyncio
import pytest
import antiphon


async def hello(world):
    addresses = world.addresses(2)
    groups = [antiphon.join("g", bind=a, peers=[b for b in addresses if b != a]) for a in addresses]
    await asyncio.gather(*(group.__aenter__() for group in groups))
    await (await groups[0].send(b"hello")).stable()


@pytest.mark.antiphon(seeds=4, loss=0.1)
async def test_good(world, tmp_path):
    await hello(world)
    assert world.loss == 0.1


@pytest.mark.antiphon(seeds=4)
async def test_bad(world):
    await hello(world)
    assert world.seed != 2


@pytest.mark.antiphon(seeds=[11, 12])
class TestClass:
    async def test_method(self, world, antiphon_seed):
        await hello(world)
        assert world.seed == antiphon_seed in (11, 12)

    def test_not_asynchronous(self, world):
        world.run(hello)


@pytest.mark.antiphon(seeds=2)
async def test_without_the_fixture():
    await asyncio.sleep(60)


@pytest.mark.parametrize("letter", ["a", "b"])
@pytest.mark.antiphon(seeds=2)
async def test_with_other_parameters(letter, world):
    assert letter in "ab"


def test_plain():
    pass
"""


def test_a_test_a_seed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    result = pytester.runpytest("--strict-markers", "-p", "no:xdist")
    result.assert_outcomes(passed=4 + 2 + 2 + 2 + 2 + 4 + 1, failed=1, skipped=1)
    said = result.stdout.str()
    assert "antiphon: seed 2" in said
    assert re.search(r"seconds +10\.0\.0\.1:7000 +10\.0\.0\.2:7000\n", said), "a diagram in the terminal"
    assert "send own 1" in said
    assert re.search(r"deliver 10\.0\.0\.1/1 “", said), "what a message says stands at its deliveries too"
    page = Path(re.findall(r"its diagram lies in (\S+)", said)[0])
    assert "<svg" in page.read_text()
    assert (Path(re.findall(r"its traces lie in (\S+)", said)[0]) / "events.parquet").exists()

    (command,) = re.findall(r"to run it again: pytest (.*)", said)
    again = pytester.runpytest(*shlex.split(command), "-p", "no:xdist")
    again.assert_outcomes(failed=1)


def test_flags_choose_the_seeds_and_the_place(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    pytester.runpytest("-k", "test_good", "--antiphon-seeds", "7", "-p", "no:xdist").assert_outcomes(passed=7)
    result = pytester.runpytest("-k", "test_bad", "--antiphon-seed", "2", "--antiphon-out", "here", "-p", "no:xdist")
    result.assert_outcomes(failed=1)
    assert list((pytester.path / "here").rglob("diagram.html"))


def test_a_violated_guarantee_fails_the_test_with_its_witness(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import asyncio, pytest, antiphon
        from antiphon.protocol.ordering.fifo import Fifo

        class Liar(Fifo):
            PROMISES = ("total",)

        @pytest.mark.antiphon(seeds=1, latency="uniform 1ms 50ms")
        async def test_order(world):
            addresses = world.addresses(3)
            peers = {a: [b for b in addresses if b != a] for a in addresses}
            groups = [antiphon.join("g", bind=a, peers=peers[a], ordering=Liar) for a in addresses]
            await asyncio.gather(*(group.__aenter__() for group in groups))
            for number in range(10):
                await asyncio.gather(*(group.send(b"x") for group in groups))
                await asyncio.sleep(0.01)
            await asyncio.sleep(1)
        """
    )
    result = pytester.runpytest("-p", "no:xdist")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*Violated: group g: total is violated: member 0*", "seconds * 0: 10.0.0.1:7000 *", "*[*]deliver*"]
    )


@pytest.mark.slow
def test_a_failure_is_told_with_names_lives_and_what_was_said(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import asyncio, pytest, antiphon

        async def member(own, peers):
            async with antiphon.join("g", bind=own, peers=peers) as group:
                await group.send(b"hello from " + own.encode())
                async for _ in group:
                    pass

        @pytest.mark.antiphon(seeds=1)
        async def test_it(world):
            addresses = dict(zip(("alice", "bob", "carol"), world.addresses(3)))
            for name, own in addresses.items():
                world.spawn(name, member, own, [peer for peer in addresses.values() if peer != own])
            await asyncio.sleep(1)
            world.crash("bob")
            await asyncio.sleep(2)
            world.restart("bob")
            await asyncio.sleep(2)
            assert False
        """
    )
    result = pytester.runpytest("-p", "no:xdist", "--antiphon-no-shrink")
    result.stdout.re_match_lines(
        ["seconds +alice +bob +carol +bob, 2nd life$", ".*“hello from", ".*deliver bob, 2nd life/1"]
    )


def test_under_xdist(pytester: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_subprocess("-n", "1", "-k", "test_bad")
    result.stdout.fnmatch_lines(["*antiphon: seed 2*", "to run it again: pytest *seed=2*"])
    assert result.parseoutcomes()["failed"] == 1


@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_beside_pytest_asyncio(pytester: pytest.Pytester, mode: str) -> None:
    pytest.importorskip("pytest_asyncio")
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_subprocess(f"--asyncio-mode={mode}", "-p", "no:xdist")
    result.assert_outcomes(passed=17, failed=1, skipped=1)


def test_others_pay_nothing() -> None:
    code = "import sys, antiphon.testing.plugin; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {name for name in modules if name.startswith("antiphon")} == {
        "antiphon",
        "antiphon.testing",
        "antiphon.testing.plugin",
    }
    assert not {"msgspec", "numpy", "pyarrow"} & set(modules)


SIZES = """
import asyncio
import pytest
import antiphon


@pytest.mark.antiphon(seeds=[1], loss=0.1, faults=3)
async def test_nobody_hears_three(world):
    addresses = world.addresses(world.number("processes", 2, 6))
    messages = world.number("messages", 1, 20)
    heard = set()

    async def member(own):
        async with antiphon.join("g", bind=own, peers=[peer for peer in addresses if peer != own]) as group:
            for number in range(messages):
                await group.send(bytes([number]))
            async for event in group:
                if isinstance(event, antiphon.Message):
                    heard.add(event.sender)

    for own in addresses:
        world.spawn(own, member, own)
    await asyncio.sleep(6)
    assert len(heard) < 3


@pytest.mark.antiphon(seeds=[1], faults=2)
async def test_with_a_fixture(world, tmp_path):
    assert world.number("processes", 1, 5) < 1
"""


def test_a_failing_seed_is_made_smaller(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SIZES)
    result = pytester.runpytest("-p", "no:xdist", "-k", "three")
    said = result.stdout.str()
    assert "made smaller: 0 of 3 faults, processes 3 instead of" in said, "three must be there for three to be heard"
    assert "messages 1 instead of" in said
    assert "no loss" in said
    words = shlex.split(re.findall(r"^ +pytest (.*--antiphon-reduced.*)$", said, re.MULTILINE)[0])
    again = pytester.runpytest("-p", "no:xdist", *words)
    again.assert_outcomes(failed=1)
    assert "10.0.0.3:7000" in again.stdout.str()
    assert "10.0.0.4:7000" not in again.stdout.str()


def test_what_is_not_made_smaller_says_why(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SIZES)
    said = pytester.runpytest("-p", "no:xdist", "-k", "fixture").stdout.str()
    assert "not made smaller: the fixture tmp_path cannot be made anew" in said
    whole = pytester.runpytest("-p", "no:xdist", "-k", "three", "--antiphon-no-shrink").stdout.str()
    assert "made smaller" not in whole


def test_a_reduction_that_cannot_be_read_is_one_line(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(SIZES)
    said = pytester.runpytest("-p", "no:xdist", "-k", "three", "--antiphon-reduced", "{faults}").stdout.str()
    assert "UsageError: a reduced world: " in said


@pytest.mark.slow
def test_what_the_faults_reached_is_told(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
import asyncio
import pytest
import antiphon
from antiphon import testing


async def member(own, addresses):
    async with antiphon.join("g", bind=own, peers=[peer for peer in addresses if peer != own]) as group:
        while True:
            await group.send(b"x")
            await asyncio.sleep(0.02)


@pytest.mark.antiphon(seeds=2, faults=testing.Faults(count=1, kinds=["pause", "cut"]))
async def test_first(world):
    addresses = world.addresses(3)
    for own in addresses:
        world.spawn(own, member, own, addresses)
    world.at("4s", world.crash, addresses[0])
    await asyncio.sleep(8)
"""
    )
    for scheduler in (["-p", "no:xdist"], ["-n", "2"]):
        said = pytester.runpytest("--antiphon-coverage", *scheduler).stdout.str()
        assert re.search(r"crash: +in 2 of 2 seeds; of a view's first member 2, with messages under way 2", said)
        assert re.search(r"the view changed: +in 2 of 2 seeds", said)


def test_a_test_that_would_test_nothing_fails(pytester: pytest.Pytester) -> None:
    """Each of these once passed, or was skipped, without a word; a coroutine that a plain function gave was not run."""
    pytester.makepyfile(
        """
        import functools, pytest

        def decorated(function):
            @functools.wraps(function)
            def wrapper(*args, **keywords):
                return function(*args, **keywords)
            del wrapper.__wrapped__
            return wrapper

        async def fails(world):
            assert False

        def test_without_a_mark(world):
            pass

        @pytest.mark.antiphon(seeds=1)
        async def test_that_yields(world):
            yield

        @pytest.mark.antiphon(seeds=1)
        def test_that_gives_a_coroutine(world):
            return fails(world)

        @pytest.mark.antiphon(seeds=1, los=0.1)
        async def test_of_a_world_that_is_not_there(world):
            pass

        @pytest.mark.antiphon(seeds=1, unexamined=["totl"])
        async def test_that_forgives_what_is_not_there(world):
            pass
        """
    )
    result = pytester.runpytest("-p", "no:xdist")
    result.assert_outcomes(failed=2, errors=3)
    result.stdout.fnmatch_lines_random(
        [
            "*world: mark the test with @pytest.mark.antiphon*",
            "*a test that yields is never run*",
            "*unexamined: 'totl' is none of integrity, *",
            "*los: a world has no such keyword (did you mean loss[?])*",
        ]
    )


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("50", "*antiphon(seeds=50)*"),
        ("seed=3", "*say seeds=[[]3]*"),
        ("seeds=0", "*seeds=0 are none*"),
        ("seeds=[]", "*seeds=[[]] are none*"),
    ],
)
def test_marks_that_would_test_nothing_are_told(pytester: pytest.Pytester, mark: str, said: str) -> None:
    pytester.makepyfile(f"import pytest\n@pytest.mark.antiphon({mark})\nasync def test_it(world): assert False")
    result = pytester.runpytest("-p", "no:xdist")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([said])
