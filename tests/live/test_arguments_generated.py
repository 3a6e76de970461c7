"""Values that nobody should give, for every argument of every public call: each is taken and works, or is named.

Which arguments there are is read off the signatures, so that a new one is tried without a word here. Whatever is
taken must work: a group of one is entered with it, sends a message and leaves. Whatever is refused leaves nothing
behind: no socket, no task, no thread that died.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

import antiphon
from antiphon import testing
from antiphon.live.anomalies import Anomalies, MemberLogger
from antiphon.live.state import StateKeeper
from antiphon.protocol.membership.options import MembershipOptions
from antiphon.protocol.ordering import ORDERINGS
from antiphon.protocol.stability import STABILITIES
from antiphon.testing.host import InlineExecutor
from support.live_group import free_addresses, run

PATIENCE_S: Final = 20.0
_ADDRESS: Final = free_addresses(1)[0]  # of one after the other, since each leaves no socket behind


class Unprintable:
    """Stands for any object of the application's."""

    def __fspath__(self) -> bytes:
        return b"bytes"


def odd(folder: Path) -> list[Any]:
    """Give values of every kind, of which any argument wants at most a few."""
    file = folder / "file"
    file.write_text("x")
    texts = [
        "",
        " ",
        "x",
        "9",
        "é",
        "\0",
        "\ud800",
        "x" * 70_000,
        "peers",
        "dns:",
        "dns:\0",
        "dns:x:y",
        "dns:x",
        "host",
    ]
    texts += [
        f"{host}:{port}" for host in ("127.0.0.1", "[::1]", "", "é", "\0", "a b", "a" * 70) for port in ("-1", "0")
    ]
    texts += ["127.0.0.1", "127.0.0.1:99999", "127.0.0.1:x", "127.0.0.1:7.0", "239.1.2.3:7", "run:1", str(file)]
    numbers = [0, 1, -1, 2, 255, 256, 2**31, 2**32, 2**63, 2**70, -(2**70), 0.5, -0.5, 1e300, 1j]
    numbers += [math.nan, math.inf, -math.inf]
    sets_of = [
        [],
        (),
        {},
        set(),
        [""],
        [None],
        [1],
        ["\ud800:1"],
        ["\0:1"],
        ["127.0.0.1:1"] * 2,
        [b"x" * 16] * 2,
        [b""],
    ]
    sets_of += [{"x": 1}, {1: 2}, {"\ud800": 1}, iter([b"x", 7]), range(3)]
    binary = [b"", b"x", bytes(15), bytes(16), bytearray(16), memoryview(bytes(16)), memoryview(bytes(16))[::2]]
    paths = [
        Path("run"),
        folder,
        file,
        file / "under",
        folder / "a\0b",
        folder / "n",
        Path("/proc/nowhere"),
        Unprintable(),
    ]
    objects = [None, True, False, object(), print, int, Exception, Exception("x"), lambda: 1, lambda one: one, ...]
    return [*texts, *numbers, *sets_of, *binary, *paths, *objects]


def sockets() -> int:
    """Count the sockets that this process has open."""
    return sum(opened(number).startswith("socket") for number in os.listdir("/proc/self/fd"))


def opened(number: str) -> str:
    """Say what a descriptor stands for; nothing, if it was closed meanwhile."""
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except FileNotFoundError:
        return ""


@asynccontextmanager
async def leaving_nothing_behind(died: list[str]) -> AsyncIterator[None]:
    """See that no socket, no task and no thread's death is left of what happens inside."""
    before = sockets(), asyncio.all_tasks()
    yield
    for _ in range(100):
        if (sockets(), asyncio.all_tasks()) == before:
            break
        await asyncio.sleep(0.01)
    assert (sockets(), asyncio.all_tasks()) == before
    assert not died


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let relative paths lie where they do no harm."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))


@pytest.fixture
def died(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What threads died of, and callbacks of the loop."""
    found: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: found.append(repr(args.exc_value)))
    return found


async def taken_or_named(name: str, settings: dict[str, Any], died: list[str]) -> bool:
    """Enter a group of one with these settings, send and leave; give whether that went well, or was refused."""
    asyncio.get_running_loop().set_exception_handler(lambda _, about: died.append(str(about)))
    settings = {"group": "g", "bind": _ADDRESS, "leave_s": 0.5, **settings}
    async with leaving_nothing_behind(died):
        try:
            async with asyncio.timeout(PATIENCE_S), antiphon.join(settings.pop("group"), **settings) as group:
                await (await group.send(b"x")).stable()
                assert group.failure is None
        except antiphon.UsageError as error:
            check_named(name, error)
            return False
    return True


def check_named(name: str, error: antiphon.UsageError) -> None:
    """See that an error says in one line which argument is wrong."""
    words = str(error)
    assert name in words.partition(": ")[0], f"{words!r} does not name {name}"
    assert "\n" not in words


# The signature of `join`

WITH: Final[dict[str, dict[str, Any]]] = {  # what an argument makes sense with
    "snapshot": {"restore": print},
    "restore": {"snapshot": bytes},
    "ordering_options": {"ordering": "co"},
}


@pytest.mark.parametrize("name", inspect.signature(antiphon.join).parameters)
def test_join(name: str, tmp_path: Path, died: list[str]) -> None:
    """Anything at all for one argument; numbers so large that they are years or terabytes are refused or work."""

    async def test() -> None:
        refused = 0
        for value in odd(tmp_path):
            settings = {**WITH.get(name, {}), name: value}
            try:
                refused += not await taken_or_named(name.removesuffix("_options"), settings, died)
            except Exception as error:
                error.add_note(f"{name}={value!r:.80}")
                raise
        assert refused > 20

    run(test())


@pytest.mark.parametrize("name", ["name", "members"])
def test_join_with_discovery(name: str, tmp_path: Path) -> None:
    """In simulated time: who declares more members than there are waits for them, and can be left."""

    async def main(world: testing.World) -> None:
        refused = 0
        for number, value in enumerate(odd(tmp_path)):  # each founds a group of its own
            settings = {"bind": world.addresses(1)[0], "discover": "239.1.2.3:7", name: value}
            try:
                async with asyncio.timeout(30), antiphon.join(f"g{number}", **settings) as group:
                    await (await group.send(b"text")).stable()
            except antiphon.UsageError as error:
                refused += 1
                check_named(name, error)
            except TimeoutError:
                assert name == "members"
            except Exception as error:
                error.add_note(f"{name}={value!r:.80}")
                raise
        assert refused > 20

    testing.run(main)


def part_options() -> Iterator[tuple[str, str, str]]:
    """Yield every option of every ordering and stability protocol."""
    for kind, parts in (("ordering", ORDERINGS), ("stability", STABILITIES)):
        for part, implementation in parts.items():
            yield from ((kind, part, option) for option in implementation.Options.__struct_fields__)


@pytest.mark.parametrize(("kind", "part"), dict.fromkeys((kind, part) for kind, part, _ in part_options()))
def test_options_of_protocols(kind: str, part: str, tmp_path: Path, died: list[str]) -> None:
    async def test() -> None:
        options = [option for *which, option in part_options() if which == [kind, part]]
        for number, option in enumerate(options):
            for value in odd(tmp_path)[number % 3 :: 3]:  # most options are those of all protocols
                settings = {"ordering": "fifo", kind: part, f"{kind}_options": {option: value}}
                try:
                    await taken_or_named(kind, settings, died)
                except Exception as error:
                    error.add_note(f"{part}.{option}={value!r:.80}")
                    raise

    run(test())


def test_options_of_views(tmp_path: Path, died: list[str]) -> None:
    async def test() -> None:
        for option in MembershipOptions.__struct_fields__:
            for value in odd(tmp_path):
                settings = {"membership": MembershipOptions(**{option: value})}
                try:
                    await taken_or_named("membership.", settings, died)
                except Exception as error:
                    error.add_note(f"{option}={value!r:.80}")
                    raise

    run(test())


# The methods of a group and of a receipt

GOOD: Final = {"payload": b"x", "payloads": [b"x"], "key": bytes(16)}  # for arguments that have no default


def calls(kind: type) -> Iterator[tuple[str, inspect.Parameter, list[inspect.Parameter]]]:
    """Yield each argument of each public method, with all of the method's."""
    for method, function in inspect.getmembers(kind, inspect.isfunction):
        arguments = list(inspect.signature(function).parameters.values())[1:]
        if not method.startswith("_"):
            yield from ((method, one, arguments) for one in arguments)


async def call(
    function: Callable[..., Any], argument: inspect.Parameter, arguments: list[inspect.Parameter], value: object
) -> None:
    """Call with a value for one argument, and good ones for those that have no default."""
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for one in arguments:
        if one is not argument and one.name not in GOOD:
            continue
        given = value if one is argument else GOOD[one.name]
        if one.kind is inspect.Parameter.KEYWORD_ONLY:
            keywords[one.name] = given
        else:
            positional.append(given)
    result = function(*positional, **keywords)
    if inspect.isawaitable(result):
        result = await result
    if isinstance(result, antiphon.Receipt):
        await result.stable()


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_methods_of_a_group(ordering: str, tmp_path: Path, died: list[str]) -> None:
    """Each is refused by its name, or taken and stable; the group is as well afterwards as before."""

    async def test() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, about: died.append(str(about)))
        settings = {"bind": free_addresses(1)[0], "ordering": ordering, "key": bytes(16), "leave_s": 0.5}
        tried, refused = 0, 0
        async with antiphon.join("g", **settings) as group:
            for method, argument, arguments in calls(antiphon.Group):
                for value in odd(tmp_path):
                    if method in ("leave", "stop") and isinstance(value, bool):
                        continue  # that ends it
                    tried += 1
                    try:
                        async with asyncio.timeout(PATIENCE_S):
                            await call(getattr(group, method), argument, arguments, value)
                    except antiphon.UsageError as error:
                        refused += 1
                        check_named("key" if method == "set_keys" else argument.name, error)
                    except Exception as error:
                        error.add_note(f"{method}({argument.name}={value!r:.80})")
                        raise
                    assert group.failure is None
                    assert not died
            await (await group.send(b"still there")).stable()
        assert refused > tried / 2

    run(test())


def test_receipts_take_no_argument_of_the_application() -> None:
    """But for `mark` and `end`, which are the group's."""
    assert {method for method, *_ in calls(antiphon.Receipt)} == {"mark", "end"}


# What the application's functions give


def identity(value: object) -> object:
    return value


def is_refused(keeper: StateKeeper) -> bool:
    """Say whether the snapshot that a keeper takes is refused, by its name."""
    try:
        keeper.due(1, [])
        keeper.capture(1)
    except antiphon.UsageError as error:
        check_named("snapshot", error)
        return True
    return False


def test_what_a_snapshot_gives(tmp_path: Path) -> None:
    async def test() -> None:
        refused = 0
        for value in odd(tmp_path):
            anomalies = Anomalies(MemberLogger("g", "m"))
            keeper = StateKeeper(partial(identity, value), print, lambda _: None, anomalies, InlineExecutor())
            if is_refused(keeper):
                refused += 1
            keeper.close()
        assert refused > 20

    run(test())


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("metrics", lambda: None),
        ("metrics", lambda one, two: None),
        ("snapshot", lambda one: b""),
        ("restore", lambda: None),
        ("restore", lambda one, two: None),
    ],
)
def test_a_function_that_cannot_be_called_is_named(name: str, function: Callable[..., Any]) -> None:
    settings = {"snapshot": bytes, "restore": print, name: function}
    with pytest.raises(antiphon.UsageTypeError, match=f"^{name}: is called with "):
        antiphon.join("g", bind="127.0.0.1:7001", **settings)


def test_metrics_that_raise_are_counted_and_the_group_goes_on() -> None:
    async def test() -> None:
        def metrics(status: antiphon.Status) -> None:
            raise ValueError("broken")

        async with antiphon.join("g", bind=free_addresses(1)[0], metrics=metrics) as group:
            await (await group.send(b"x")).stable()
            assert group.status().counts["metrics-failed"] == 1

    run(test())


def test_a_user_without_a_home_is_told_to_name_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs under a number which no list of users has."""

    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    async def test() -> None:
        monkeypatch.delenv("XDG_STATE_HOME")
        monkeypatch.setattr(Path, "home", nowhere)
        with pytest.raises(antiphon.UsageError, match=r"^state: this user has no home"):
            await antiphon.join("g", bind=free_addresses(1)[0]).__aenter__()

    run(test())


def test_a_trace_may_lie_in_a_folder_whose_name_looks_like_a_scheme() -> None:
    """Arrow once took it for a URI: the thread that writes died, and nobody was told."""

    async def test() -> None:
        async with antiphon.join("g", bind=free_addresses(1)[0], trace="run:1") as group:
            await (await group.send(b"x")).stable()
        assert "trace-ended" not in group.status().counts

    run(test())
    assert list(Path("run:1").glob("*.parquet"))
