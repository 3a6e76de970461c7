"""The pytest plugin: `@pytest.mark.antiphon(seeds=50, loss=0.1)` runs a test in that many simulated worlds.

    @pytest.mark.antiphon(seeds=50, loss=0.1, faults=2)
    async def test_replicas_agree(world): ...

pytest imports this file wherever Antiphon is installed, so that it imports nothing else before a test is marked.
"""

from __future__ import annotations

import inspect
import re
import shlex
import tempfile
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from antiphon.testing.reduction import Reduction
    from antiphon.testing.world import World

_MARK = "antiphon(seeds=10, **world): run the test in simulated worlds, one a seed; see antiphon.testing.World"
_SEEDS = 10
_failed: pytest.StashKey[set[str]] = pytest.StashKey()
_world: pytest.StashKey[World] = pytest.StashKey()
_not_smaller: pytest.StashKey[str] = pytest.StashKey()
_REACHED = "antiphon reached"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer the flags."""
    group = parser.getgroup("antiphon", "simulated groups (antiphon.testing)")
    group.addoption("--antiphon-seed", type=int, metavar="N", help="run marked tests with this seed only")
    group.addoption("--antiphon-seeds", type=int, metavar="COUNT", help="run marked tests with so many seeds")
    group.addoption(
        "--antiphon-reduced", metavar="JSON", help="leave so much of the seed's world out, as a report says"
    )
    group.addoption(
        "--antiphon-no-shrink", action="store_true", help="report a failing seed as it is, not made smaller"
    )
    group.addoption("--antiphon-coverage", action="store_true", help="say what the faults of all seeds reached")
    group.addoption("--antiphon-out", metavar="DIR", help="where traces and diagrams of failures are written")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark."""
    config.addinivalue_line("markers", _MARK)
    config.stash[_failed] = set()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of every seed."""
    mark = metafunc.definition.get_closest_marker("antiphon")
    if mark is None:
        return
    if "antiphon_seed" not in metafunc.fixturenames:
        metafunc.fixturenames.append("antiphon_seed")
    seeds = _seeds(metafunc.config, mark)
    metafunc.parametrize("antiphon_seed", seeds, ids=[f"seed={seed}" for seed in seeds], indirect=True)


def _seeds(config: pytest.Config, mark: pytest.Mark) -> Sequence[int]:
    if mark.args:
        raise pytest.Collector.CollectError(
            f"antiphon{mark.args}: say what it is, such as antiphon(seeds={mark.args[0]!r})"
        )
    if "seed" in mark.kwargs:
        raise pytest.Collector.CollectError(f"antiphon: there may be several; say seeds=[{mark.kwargs['seed']!r}]")
    only, count = config.getoption("--antiphon-seed"), config.getoption("--antiphon-seeds")
    if only is not None:
        return [only]
    seeds = mark.kwargs.get("seeds", _SEEDS) if count is None else count
    drawn = range(seeds) if isinstance(seeds, int) else list(seeds)
    if not drawn:
        raise pytest.Collector.CollectError(f"antiphon: seeds={seeds!r} are none, so that nothing would be tested")
    return drawn


@pytest.fixture
def antiphon_seed(request: pytest.FixtureRequest) -> int:
    """The seed of the simulated world."""
    return int(getattr(request, "param", 0))


@pytest.fixture
def world(request: pytest.FixtureRequest, antiphon_seed: int) -> World:
    """The simulated world of a test that is marked with `antiphon`."""
    if request.node.get_closest_marker("antiphon") is None:
        pytest.fail("world: mark the test with @pytest.mark.antiphon, or nothing is checked at its end", pytrace=False)
    return _make(request.node, antiphon_seed)


def _make(item: pytest.Item, seed: int, reduced: Reduction | None = None) -> World:
    from antiphon.testing.options import check_options
    from antiphon.testing.reduction import Reduction
    from antiphon.testing.world import World

    if reduced is None:
        reduced = Reduction.read(item.config.getoption("--antiphon-reduced") or "{}")
    mark = item.get_closest_marker("antiphon")
    options = {} if mark is None else {key: value for key, value in mark.kwargs.items() if key != "seeds"}
    check_options(options)
    made = item.stash[_world] = World(seed, reduced=reduced, **options)
    return made


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip the other seeds of a test after the first that fails: they would tell the same story again."""
    if item.get_closest_marker("antiphon") is not None and _without_seed(item) in item.config.stash[_failed]:
        pytest.skip("another seed failed already")


def _without_seed(item: pytest.Item) -> str:
    seed = item.callspec.params["antiphon_seed"] if hasattr(item, "callspec") else 0
    return item.nodeid.replace(f"seed={seed}", "seed")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a marked test in its world, and check what the groups promise."""
    if pyfuncitem.get_closest_marker("antiphon") is None:
        return None
    __tracebackhide__ = True
    function = pyfuncitem.obj
    if not inspect.iscoroutinefunction(function):
        wrapped = inspect.unwrap(function)  # another plugin for asynchronous tests may have got hold of it
        function = wrapped if inspect.iscoroutinefunction(wrapped) else function
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    made = pyfuncitem.stash.get(_world, None) or _make(
        pyfuncitem, cast(int, pyfuncitem.callspec.params["antiphon_seed"])
    )

    def run(world: World) -> None:
        __tracebackhide__ = True
        given = arguments | {"world": world} if "world" in arguments else arguments
        with world:
            done = function(**given)
            if inspect.iscoroutine(done):
                world.run(done)
            elif inspect.isasyncgen(done) or inspect.isgenerator(done):
                pytest.fail(f"{pyfuncitem.name}: a test that yields is never run", pytrace=False)

    try:
        run(made)
    except (Exception, pytest.fail.Exception) as error:
        raise _smaller(pyfuncitem, made, error, run) from None
    finally:
        if pyfuncitem.config.getoption("--antiphon-coverage"):
            import msgspec

            from antiphon.testing.reached import reached

            pyfuncitem.user_properties.append((_REACHED, msgspec.to_builtins(reached(made))))
    return True


def _smaller(item: pytest.Function, made: World, error: BaseException, run: Callable[[World], None]) -> BaseException:
    """Find the same failure in a smaller world of the seed, to be reported instead."""
    from antiphon.testing.reduction import Failure, make_smaller

    own = {"world", "antiphon_seed", *(item.callspec.params if hasattr(item, "callspec") else ())}
    others = [name for name in item._fixtureinfo.argnames if name not in own]
    if item.config.getoption("--antiphon-no-shrink") or item.config.getoption("--antiphon-reduced"):
        return error
    if others:
        item.stash[_not_smaller] = f"not made smaller: the fixture {others[0]} cannot be made anew for each try"
        return error

    def again(reduced: Reduction) -> Failure | None:
        world = _make(item, made.seed, reduced)
        try:
            run(world)
        except (Exception, pytest.fail.Exception) as error:
            return Failure(world, error)
        return None

    smallest = make_smaller(Failure(made, error), again)
    item.stash[_world] = smallest.world
    return smallest.error


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    """Say how to run the seed that failed again, and show what led to it."""
    report = (yield).get_result()
    made = item.stash.get(_world, None)
    if made is not None and report.failed and call.when == "call" and call.excinfo is not None:
        item.config.stash[_failed].add(_without_seed(item))
        report.sections.append((f"antiphon: seed {made.seed}", _account(item, made, call.excinfo.value)))


def _account(item: pytest.Item, made: World, error: BaseException) -> str:
    from antiphon.testing.reduction import Reduction
    from antiphon.testing.story import tell, write

    here, there = item.config.invocation_params.dir, item.path
    where = there.relative_to(here) if there.is_relative_to(here) else there
    test = f"{where}::{item.nodeid.partition('::')[2]}"
    story = tell(made, error)
    again = f"pytest {shlex.quote(test)} --antiphon-seed {made.seed}"
    lines = [f"to run it again: {again}"]
    if made.reduced != Reduction():
        lines.append(f"made smaller: {made.reduced.told(made)}; this is told of below, and runs again with")
        lines.append(f"    {again} --antiphon-reduced {shlex.quote(made.reduced.text())}")
    elif reason := item.stash.get(_not_smaller, None):
        lines.append(reason)
    try:
        lines += write(made, story, _folder(item, made.seed))
    except OSError as failure:
        lines.append(f"its traces could not be written: {failure}; choose another folder with --antiphon-out")
    return "\n".join(lines if story is None else [*lines, "", story.title, "", story.text()])


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say what the faults reached, test by test, over all seeds; the reports bring it from other processes too."""
    if not config.getoption("--antiphon-coverage"):
        return
    import msgspec

    from antiphon.testing.reached import Reached

    tests: dict[str, Reached] = {}
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        for name, value in getattr(report, "user_properties", ()):
            if name == _REACHED and report.when == "call":
                test = re.sub(r"\[?-?seed=\d+-?\]?", "", report.nodeid)
                tests[test] = tests.get(test, Reached()) + msgspec.convert(value, Reached)
    terminalreporter.section("antiphon: what the faults reached")
    for test, reached in sorted(tests.items()):
        terminalreporter.write_line(test)
        for line in reached.lines():
            terminalreporter.write_line(f"    {line}")


def _folder(item: pytest.Item, seed: int) -> Path:
    """Find a folder that lasts: where the flag says, else in pytest's cache."""
    out = item.config.getoption("--antiphon-out")
    cache: Any = getattr(item.config, "cache", None)
    if out is not None:
        base = Path(out)
    elif cache is not None:
        base = Path(cache.mkdir("antiphon"))
    else:
        base = Path(tempfile.mkdtemp(prefix="antiphon-"))
    name = "".join(letter if letter.isalnum() else "-" for letter in item.name.partition("[")[0])
    return base / f"{item.path.stem}-{name}-{seed}"
