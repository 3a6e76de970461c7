"""Every counter that the code can raise is in the table of docs/operations.md, and in the log if it is an anomaly."""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import antiphon
from antiphon import testing
from antiphon.live.anomalies import Anomalies, MemberLogger
from antiphon.testing.torture.run import run
from antiphon.testing.torture.schedule import Schedule, Setup, Work

SOURCE = Path(antiphon.__file__).parent
OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"
PREFIXES = {"Refused": "refused-", "Malformed": "dropped-", "note": ""}


NORMAL = {  # of these there are some wherever a group lives; they are read from the status, and logged nowhere
    *("packets-sent", "packets-received", "packets-probing", "packets-unproven", "fragments-again"),
    *("retransmissions", "duplicates", "proposals"),
}
NOTICES = {"views", "exclusions"}  # logged with the view, or the notice, that each of them is


def raised() -> Iterator[tuple[str, str]]:
    """Yield the counters that are named in live/ and protocol/, each with where."""
    for path in sorted([*SOURCE.glob("live/*.py"), *SOURCE.glob("protocol/**/*.py")]):
        for node in ast.walk(ast.parse(path.read_text())):
            where = f"{path.relative_to(SOURCE)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Call) and node.args:
                called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                if called in PREFIXES:
                    yield from ((PREFIXES[called] + text, where) for text in texts(node.args[0]))
            elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "kind":
                yield from ((text, where) for text in texts(node.value) if "/live/" in str(path))
            elif isinstance(node, ast.Subscript) and getattr(node.value, "attr", "").endswith("counts"):
                yield from ((text, where) for text in texts(node.slice))
            elif isinstance(node, ast.Dict) and "live" in where:
                keys = [text for key in node.keys if key is not None for text in texts(key)]
                yield from ((key, where) for key in keys if re.fullmatch(r"(packets|broken|fragments|set)-\w+", key))


def texts(node: ast.expr) -> list[str]:
    """Give the text that an expression is, or those that it chooses from."""
    if isinstance(node, ast.IfExp):
        return [*texts(node.body), *texts(node.orelse)]
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


def test_every_counter_is_documented() -> None:
    words = set(re.findall(r"`([\w.-]+)`", OPERATIONS.read_text()))
    counters = dict(raised())
    assert len(counters) > 60
    lacking = {
        counter: where
        for counter, where in counters.items()
        if counter not in words and not (counter.startswith("dropped-") and counter.removeprefix("dropped-") in words)
    }
    assert not lacking, "docs/operations.md, Every counter"


def test_no_counter_is_documented_that_nothing_raises() -> None:
    table = OPERATIONS.read_text().split("### Every counter")[1].split("A `dropped-...` is")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    documented = {word for row in rows for word in re.findall(r"`([\w-]+)`", row)}
    kinds = {"vector-ack", "alive"}  # control messages are counted by their kind
    assert documented - {counter for counter, _ in raised()} - kinds == set()


def logged() -> set[str]:
    """Give the counters that are noted as anomalies, which logs them; `Refused` and `Malformed` always are."""
    kinds = set()
    for path in sorted([*SOURCE.glob("live/*.py"), *SOURCE.glob("protocol/**/*.py")]):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args:
                called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                kinds |= {PREFIXES[called] + text for text in texts(node.args[0])} if called in PREFIXES else set()
            elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "kind":
                kinds |= {*texts(node.value)}
    return kinds


def test_every_counter_of_something_that_should_not_happen_is_logged() -> None:
    counters = {counter for counter, _ in raised() if not counter.startswith("dropped-")}
    assert counters - logged() == NORMAL | NOTICES, "note it as an anomaly, or say why nobody need hear of it"


def test_what_is_dropped_of_a_view_or_refused_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The first of a kind is, the second to ninth are not, the tenth is; each says of which group and member it is."""
    anomalies = Anomalies(MemberLogger("orders", "10.0.0.1:7000"))
    with caplog.at_level("WARNING", "antiphon"):
        for kind in sorted(logged()):
            for _ in range(10):
                anomalies.note(kind, "a reason")
    for kind in logged():
        records = [record for record in caplog.records if record.getMessage().split(": ")[1].startswith(f"{kind},")]
        assert len(records) == 2
        assert {(record.group, record.member) for record in records} == {("orders", "10.0.0.1:7000")}  # type: ignore[attr-defined]


def test_a_log_names_group_and_member_whatever_signs_are_in_them(caplog: pytest.LogCaptureFixture) -> None:
    """A `%` in the name of a group once made every record an error of `logging`; names given for discovery were not
    told.
    """

    async def main(world: testing.World) -> None:
        (own,) = world.addresses(1)
        async with antiphon.join("100% %s", bind=own, discover="peers", members=1, name="50%d-1"):
            pass

    with caplog.at_level("INFO", "antiphon"):
        testing.run(main)
    assert [record.getMessage() for record in caplog.records] == [
        "100% %s 50%d-1: view 1: 50%d-1; version 2 of the wire",
        "100% %s 50%d-1: left",
    ]
    about = {(record.group, record.member, record.filename) for record in caplog.records}  # type: ignore[attr-defined]
    assert about == {("100% %s", "50%d-1", name) for name in ("upcalls.py", "member.py")}


def test_what_happens_in_views_is_in_the_status_through_all_of_them() -> None:
    """`retransmissions` and the like are those of all views so far, not of none."""

    async def main(world: testing.World) -> dict[str, int]:
        addresses = world.addresses(3)
        groups = [
            antiphon.join("test", bind=own, peers=[other for other in addresses if other != own], listen=False)
            for own in addresses
        ]
        await asyncio.gather(*(group.__aenter__() for group in groups))
        for _ in range(60):
            await groups[0].send(b"message" * 50)
            await asyncio.sleep(0.01)
        before = groups[0].status().counts
        await groups[2].leave()
        await asyncio.sleep(3)
        after = groups[0].status().counts
        assert after["views"] > before["views"]
        assert all(after[kind] >= count for kind, count in before.items())
        await asyncio.gather(*(group.leave() for group in groups))
        return before

    counts = testing.run(main, seed=1, loss=0.3)
    assert counts["retransmissions"] > 0
    assert counts["vector-ack"] > 0


def test_a_reader_that_lags_counts_and_logs_what_is_discarded(caplog: pytest.LogCaptureFixture) -> None:
    work = Work(messages=30, pause_ms=60, size=200)
    setup = Setup(ordering="causal-blocks", slow="lag", inbox_bytes_max=2_000, window=8)
    schedule = Schedule(seed=1, setup=setup, work=(work, work, Work(messages=5, deaf_ms=(800, 4_300))))
    with caplog.at_level("WARNING", "antiphon"):
        last = run(schedule).starts[2].samples[-1]
    assert last.counts["discarded"] > 5
    assert last.counts["set-aside"] > 5
    words = " ".join(record.getMessage() for record in caplog.records if record.member == last_address(schedule))  # type: ignore[attr-defined]
    assert "discarded, 1 so far: of 10.0.0." in words
    assert "set-aside, 1 so far: the inbox is full" in words


def last_address(schedule: Schedule) -> str:
    """Give the address of the last member of a schedule."""
    return f"10.0.0.{schedule.members}:7000"
