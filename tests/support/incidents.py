"""Incidents, each with the facts that a page about it must tell at its top.

`python -m support.incidents FOLDER` (in tests/) makes their pages and pictures, to be looked at.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import antiphon
from antiphon import testing
from antiphon.pipeline.reading.mapping import load_mapping
from antiphon.report.facts import Facts
from antiphon.testing import World
from support.reports import facts_of, simulated_trace

VIEWS: dict[str, Any] = {"views": True, "ordering": "total", "network": {"loss": 0.0}}
STEADY = {"interval": "fixed 20ms"}


def killed_coordinator(folder: Path) -> Facts:
    crash = {"kind": "crash", "member": 0, "at": "500ms"}
    return _simulated(folder, members=5, messages=60, workload=STEADY, faults=[crash])


def killed_sender(folder: Path) -> Facts:
    """What member 2 sends in its last 100 ms reaches nobody."""
    cut = {"kind": "cut", "from": [2], "to": [0, 1, 3, 4], "at": "900ms"}
    crash = {"kind": "crash", "member": 2, "at": "1s"}
    return _simulated(folder, members=5, messages=80, workload=STEADY, faults=[cut, crash])


def partition_and_merge(folder: Path) -> Facts:
    partition = {"kind": "partition", "groups": [[0, 1, 2], [3, 4]], "at": "500ms", "until": "2s"}
    return _simulated(folder, members=5, messages=150, workload=STEADY, faults=[partition])


def flapping(folder: Path) -> Facts:
    """The trace does not say that somebody stops member 3 again and again, for longer than the time that was given."""
    pauses = [
        {"kind": "pause", "member": 3, "at": f"{at}ms", "until": f"{at + 900}ms"} for at in range(500, 6500, 1500)
    ]
    given = {"suspect_ns": 500_000_000}
    trace = _trace(folder, members=4, messages=350, workload=STEADY, faults=pauses, membership=given)
    _forget_faults(trace)
    return facts_of(folder / "work", trace)


def slow_reader(folder: Path) -> Facts:
    async def reader(world: World, own: str, everyone: list[str]) -> None:
        others = [one for one in everyone if one != own]
        async with antiphon.join("orders", bind=own, peers=others, inbox_bytes_max=200, window=20) as group:
            async for _ in group:
                if own.startswith("slow"):
                    await asyncio.sleep(0.4)

    async def writer(world: World, own: str, everyone: list[str]) -> None:
        others = [one for one in everyone if one != own]
        async with antiphon.join("orders", bind=own, peers=others, window=20) as group:
            await _talk(group, [b"%080d" % number for number in range(40)], pause_s=0.01)

    async def main(world: World) -> None:
        everyone = ["a:1", "b:1", "slow:1"]
        world.spawn("a", writer, world, "a:1", everyone)
        world.spawn("b", reader, world, "b:1", everyone)
        world.spawn("slow", reader, world, "slow:1", everyone)
        await asyncio.sleep(25)

    return _tested(folder, main)


def wrong_key(folder: Path) -> Facts:
    async def member(own: str, everyone: list[str], key: bytes) -> None:
        others = [one for one in everyone if one != own]
        async with antiphon.join("orders", bind=own, peers=others, key=key) as group:
            await _talk(group, [b"%d" % number for number in range(40)], pause_s=0.02)

    async def main(world: World) -> None:
        everyone = ["a:1", "b:1", "c:1", "d:1"]
        for own in everyone:
            world.spawn(own[0], member, own, everyone, b"another key!----" if own == "d:1" else b"the group's key!")
        await asyncio.sleep(4)

    return _tested(folder, main)


def lost_state(folder: Path) -> Facts:
    crash = {"kind": "crash", "member": 2, "at": "500ms", "until": "1500ms", "forgets": True}
    return _simulated(folder, members=4, messages=100, workload=STEADY, faults=[crash])


def clock_step(folder: Path) -> Facts:
    async def member(own: str, everyone: list[str]) -> None:
        others = [one for one in everyone if one != own]
        async with antiphon.join("orders", bind=own, peers=others, state=f"state-{own[0]}") as group:
            await _talk(group, [b"%d" % number for number in range(100)], pause_s=0.02)

    async def main(world: World) -> None:
        everyone = ["a:1", "b:1", "c:1"]
        for own in everyone:
            world.spawn(own[0], member, own, everyone)
        world.at("1s", world.step_clock, "c", "-30s")
        world.at("1s", world.crash, "c")
        world.at("1500ms", world.restart, "c")
        await asyncio.sleep(4)

    return _tested(folder, main)


def storm(folder: Path) -> Facts:
    """A network that loses two thirds of all datagrams."""
    return _simulated(
        folder, members=5, messages=40, ordering="fifo", views=False, network={"loss": 0.66}, workload=STEADY
    )


BROKER = """[columns]
member = "node"
step = "line"
event = "what"
sender = "author"
seq = "nr"
[events]
PUB = "send"
MSG = "deliver"
[members]
billing = 1
stock = 2
mail = 3
[constants]
run = "monday"
"""


def broker_with_loss(folder: Path) -> Facts:
    """A broker's log without times: mail never got three of billing's messages."""
    lines = ["node,line,what,author,nr"]
    for number in range(1, 31):
        lines.append(f"billing,{2 * number},PUB,billing,{number}")
        lines.append(f"billing,{2 * number + 1},MSG,billing,{number}")
        lines.append(f"stock,{number},MSG,billing,{number}")
        if number not in (11, 12, 20):
            lines.append(f"mail,{number},MSG,billing,{number}")
    folder.mkdir(parents=True)
    (folder / "broker.csv").write_text("\n".join(lines) + "\n")
    (folder / "broker.toml").write_text(BROKER)
    return facts_of(folder / "work", folder / "broker.csv", mapping=load_mapping(str(folder / "broker.toml")))


def killed_together(folder: Path) -> Facts:
    crashes = [{"kind": "crash", "member": member, "at": "300ms"} for member in (1, 2)]
    return _simulated(folder, members=5, messages=40, workload=STEADY, faults=crashes)


def left_without_majority(folder: Path) -> Facts:
    crashes = [{"kind": "crash", "member": member, "at": "300ms"} for member in (1, 2)]
    return _simulated(folder, members=3, messages=30, workload=STEADY, faults=crashes, limit="3s")


def restarted_again_and_again(folder: Path) -> Facts:
    crashes = [
        {"kind": "crash", "member": member, "at": f"{300 + 900 * at}ms", "until": f"{700 + 900 * at}ms"}
        for at, member in enumerate((1, 2, 1))
    ]
    return _simulated(folder, members=4, messages=150, workload=STEADY, faults=crashes)


def half_leave(folder: Path) -> Facts:
    leaves = [{"kind": "leave", "member": member, "at": f"{300 + member}ms"} for member in (3, 4, 5)]
    return _simulated(folder, members=6, messages=30, workload=STEADY, faults=leaves)


def paused_coordinator(folder: Path) -> Facts:
    pause = {"kind": "pause", "member": 0, "at": "300ms", "until": "1500ms"}
    return _simulated(folder, members=4, messages=100, workload=STEADY, faults=[pause])


def broken_link(folder: Path) -> Facts:
    """Members 1 and 2 do not hear each other, twice."""
    cuts = [
        {"kind": "cut", "from": [one], "to": [3 - one], "at": f"{at}ms", "until": f"{at + 700}ms"}
        for at in (300, 1800)
        for one in (1, 2)
    ]
    return _simulated(folder, members=4, messages=150, workload=STEADY, faults=cuts)


def parted_without_majority(folder: Path) -> Facts:
    partition = {"kind": "partition", "groups": [[0, 1], [2, 3], [4, 5]], "at": "300ms", "until": "1500ms"}
    return _simulated(folder, members=6, messages=80, workload=STEADY, faults=[partition])


def changed_keys(folder: Path) -> Facts:
    """All but d change from one key to another, without the step in between in which both are accepted."""

    async def member(own: str, everyone: list[str]) -> None:
        others = [one for one in everyone if one != own]
        async with antiphon.join("orders", bind=own, peers=others, key=b"the group's key!") as group:
            talking = asyncio.create_task(_talk(group, [b"%d" % number for number in range(100)], pause_s=0.02))
            await asyncio.sleep(1)
            if own != "d:1":
                group.set_keys(b"another key!----")
            await talking

    async def main(world: World) -> None:
        everyone = ["a:1", "b:1", "c:1", "d:1"]
        for own in everyone:
            world.spawn(own[0], member, own, everyone)
        await asyncio.sleep(4)

    return _tested(folder, main)


def clocks_apart(folder: Path) -> Facts:
    return _simulated(folder, members=5, messages=30, workload=STEADY, clocks={"skew": "5s"})


def broker_forgets_a_sender(folder: Path) -> Facts:
    """Nothing that stock publishes comes to mail."""
    lines = ["node,line,what,author,nr"]
    for number in range(1, 31):
        for who, other in (("billing", "stock"), ("stock", "billing")):
            lines.append(f"{who},{4 * number},PUB,{who},{number}")
            lines.append(f"{who},{4 * number + 1},MSG,{who},{number}")
            lines.append(f"{who},{4 * number + 2},MSG,{other},{number}")
        lines.append(f"mail,{number},MSG,billing,{number}")
    folder.mkdir(parents=True)
    (folder / "broker.csv").write_text("\n".join(lines) + "\n")
    (folder / "broker.toml").write_text(BROKER)
    return facts_of(folder / "work", folder / "broker.csv", mapping=load_mapping(str(folder / "broker.toml")))


def broker_repeats(folder: Path) -> Facts:
    """After the 20th message stock is given five of them again."""
    given = {"stock": [*range(1, 21), *range(16, 21), *range(21, 31)], "mail": list(range(1, 31))}
    lines = ["node,line,what,author,nr", *(f"billing,{2 * one},PUB,billing,{one}" for one in range(1, 31))]
    lines += [f"billing,{2 * one + 1},MSG,billing,{one}" for one in range(1, 31)]
    lines += [f"{who},{line},MSG,billing,{one}" for who, all_ in given.items() for line, one in enumerate(all_)]
    folder.mkdir(parents=True)
    (folder / "broker.csv").write_text("\n".join(lines) + "\n")
    (folder / "broker.toml").write_text(BROKER)
    return facts_of(folder / "work", folder / "broker.csv", mapping=load_mapping(str(folder / "broker.toml")))


def broker_of_publishers_and_consumers(folder: Path) -> Facts:
    """Billing only publishes, stock and mail only consume, and mail stops half way."""
    lines = [f"billing,{one},PUB,billing,{one}" for one in range(1, 31)]
    lines += [f"stock,{one},MSG,billing,{one}" for one in range(1, 31)]
    return _brokers(folder, [*lines, *(f"mail,{one},MSG,billing,{one}" for one in range(1, 16))])


def single_member(folder: Path) -> Facts:
    return _simulated(folder, members=1, messages=10)


def all_restarted(folder: Path) -> Facts:
    crashes = [{"kind": "crash", "member": member, "at": f"{500 + 3 * member}ms", "until": "1s"} for member in range(5)]
    return _simulated(folder, members=5, messages=60, workload=STEADY, faults=crashes)


def all_lost_state(folder: Path) -> Facts:
    crashes = [{"kind": "crash", "member": one, "at": "500ms", "until": "1s", "forgets": True} for one in range(4)]
    return _simulated(folder, members=4, messages=60, workload=STEADY, faults=crashes)


def most_lost_state(folder: Path) -> Facts:
    crashes = [{"kind": "crash", "member": one, "at": "500ms", "until": "1s", "forgets": True} for one in range(3)]
    return _simulated(folder, members=5, messages=40, workload=STEADY, faults=crashes, limit="3s")


def one_way_cut(folder: Path) -> Facts:
    cut = {"kind": "cut", "from": [3], "to": [1], "at": "500ms", "until": "1500ms"}
    return _simulated(folder, members=5, messages=100, workload=STEADY, faults=[cut])


def coordinator_leaves(folder: Path) -> Facts:
    leave = {"kind": "leave", "member": 0, "at": "600ms"}
    return _simulated(folder, members=4, messages=50, workload=STEADY, faults=[leave])


def two_partitions(folder: Path) -> Facts:
    cuts = [
        {"kind": "partition", "groups": [[0, 1, 2], [3, 4]], "at": "500ms", "until": "1500ms"},
        {"kind": "partition", "groups": [[0, 3], [1, 2, 4]], "at": "2500ms", "until": "3500ms"},
    ]
    return _simulated(folder, members=5, messages=200, workload=STEADY, faults=cuts)


def slow_links(folder: Path) -> Facts:
    links = [{"from": [3], "to": [0, 1, 2, 4], "latency": "fixed 150ms"}]
    return _simulated(folder, members=5, messages=50, workload=STEADY, network={"latency": "fixed 1ms", "links": links})


def full_disk(folder: Path) -> Facts:
    """Of member 2's log the second half is missing; the member went on."""
    trace = _trace(folder, members=4, messages=50, workload=STEADY)
    file = trace / "events.parquet"
    rows = pq.read_table(file)
    pq.write_table(rows.filter((pc.field("member") != 2) | (pc.field("step") < 300)), file)
    return facts_of(folder / "work", trace)


def black_hole(folder: Path) -> Facts:
    async def main(world: World) -> None:
        _start(world, ["a:1", "b:1", "c:1"], [bytes(4_000)] * 60)
        world.at("600ms", lambda: world.link(["a", "b"], ["c"], mtu=1_000, silent=True))
        await asyncio.sleep(3)

    return _tested(folder, main)


def late_joiner(folder: Path) -> Facts:
    async def main(world: World) -> None:
        everyone = ["a:1", "b:1", "c:1", "d:1"]
        _start(world, everyone[:3], [b"%d" % number for number in range(200)], everyone, pause_s=0.005)
        world.at("600ms", lambda: _start(world, ["d:1"], [b"late"], everyone))
        await asyncio.sleep(3)

    return _tested(folder, main)


def killed_before_going_on(folder: Path) -> Facts:
    """Three of five are killed one after the other, before the others have gone on without the first."""
    crashes = [
        {"kind": "crash", "member": member, "at": f"{300 + 300 * at}ms", "until": f"{1500 + 100 * at}ms"}
        for at, member in enumerate((4, 3, 2))
    ]
    return _simulated(folder, members=5, messages=60, workload=STEADY, faults=crashes)


def killed_before_the_first_view(folder: Path) -> Facts:
    return _simulated(folder, members=3, messages=10, faults=[{"kind": "crash", "member": 2, "at": "0s"}])


def killed_with_fixed_membership(folder: Path) -> Facts:
    crash = {"kind": "crash", "member": 2, "at": "200ms"}
    return _simulated(folder, members=3, messages=20, workload=STEADY, views=False, faults=[crash], limit="2s")


def most_stand_still(folder: Path) -> Facts:
    pauses = [{"kind": "pause", "member": member, "at": "300ms", "until": "2300ms"} for member in (1, 2, 3)]
    return _simulated(folder, members=5, messages=60, workload=STEADY, faults=pauses)


def most_stand_still_in_turn(folder: Path) -> Facts:
    pauses = [
        {"kind": "pause", "member": member, "at": f"{500 + 20 * member}ms", "until": f"{2000 + 100 * member}ms"}
        for member in (0, 1, 4)
    ]
    return _simulated(folder, members=5, messages=100, workload=STEADY, faults=pauses)


def halted_unsaid(folder: Path) -> Facts:
    """Three of five are stopped for two seconds, which no run.json says; the view stays."""
    pauses = [{"kind": "pause", "member": member, "at": "500ms", "until": "2500ms"} for member in (0, 1, 4)]
    trace = _trace(folder, members=5, messages=100, workload=STEADY, faults=pauses)
    _forget_faults(trace)
    return facts_of(folder / "work", trace)


def healed_in_two_steps(folder: Path) -> Facts:
    parted = [
        {"kind": "partition", "groups": [[0, 1], [2, 3], [4, 5, 6]], "at": "500ms", "until": "1500ms"},
        {"kind": "partition", "groups": [[0, 1, 2, 3], [4, 5, 6]], "at": "1500ms", "until": "3s"},
    ]
    return _simulated(folder, members=7, messages=100, workload=STEADY, faults=parted)


def cut_and_killed(folder: Path) -> Facts:
    """Member 2 is killed on the side that would have gone on, and that side waits for it."""
    faults = [
        {"kind": "partition", "groups": [[0, 1], [2, 3, 4]], "at": "500ms", "until": "3s"},
        {"kind": "crash", "member": 2, "at": "1s", "until": "2s"},
    ]
    return _simulated(folder, members=5, messages=100, workload=STEADY, faults=faults)


def lossy_for_a_second(folder: Path) -> Facts:
    async def main(world: World) -> None:
        _start(world, ["a:1", "b:1", "c:1", "d:1"], [b"%d" % number for number in range(100)])
        world.at("1s", setattr, world, "loss", 0.3)
        world.at("2s", setattr, world, "loss", 0.0)
        await asyncio.sleep(4)

    return _tested(folder, main)


def each_side_goes_on(folder: Path) -> Facts:
    partition = {"kind": "partition", "groups": [[0, 1, 2], [3, 4]], "at": "300ms", "until": "1500ms"}
    each = {"partition": "each-side"}
    return _simulated(folder, members=5, messages=60, workload=STEADY, faults=[partition], membership=each)


def upgraded_one_by_one(folder: Path) -> Facts:
    """Each leaves and comes back; in the end all leave."""

    async def life(own: str, everyone: list[str], length_s: float) -> None:
        others = [one for one in everyone if one != own]
        async with antiphon.join("orders", bind=own, peers=others) as group:
            with suppress(TimeoutError):
                await asyncio.wait_for(_talk(group, [b"%d" % number for number in range(200)], 0.05), length_s)

    async def lives(own: str, everyone: list[str], turn: int) -> None:
        await life(own, everyone, 1 + turn)
        await asyncio.sleep(0.2)
        await life(own, everyone, 5 - turn)

    async def main(world: World) -> None:
        everyone = ["a:1", "b:1", "c:1"]
        for turn, own in enumerate(everyone):
            world.spawn(own[0], lives, own, everyone, turn)
        await asyncio.sleep(5)

    return _tested(folder, main)


def set_up_differently(folder: Path) -> Facts:
    async def member(own: str, everyone: list[str]) -> None:
        others = [one for one in everyone if one != own]
        ordering = "causal" if own == "d:1" else "total"
        with suppress(antiphon.UsageError):
            async with antiphon.join("orders", bind=own, peers=others, ordering=ordering) as group:
                await _talk(group, [b"%d" % number for number in range(10)], pause_s=0.02)

    async def main(world: World) -> None:
        everyone = ["a:1", "b:1", "c:1", "d:1"]
        for own in everyone:
            world.spawn(own[0], member, own, everyone)
        await asyncio.sleep(1)

    return _tested(folder, main)


def missing_log(folder: Path) -> Facts:
    """Member 2 is killed, and its log is not among those that were gathered."""
    crash = {"kind": "crash", "member": 2, "at": "300ms"}
    trace = _trace(folder, members=4, messages=30, workload=STEADY, faults=[crash])
    _rewrite(trace, lambda rows: rows.filter(pc.field("member") != 2))
    _forget_faults(trace)
    return facts_of(folder / "work", trace)


def stood_still_unsaid(folder: Path) -> Facts:
    """The coordinator is stopped for two seconds, which no run.json says."""
    pause = {"kind": "pause", "member": 0, "at": "500ms", "until": "2500ms"}
    trace = _trace(folder, members=4, messages=150, workload=STEADY, faults=[pause])
    _forget_faults(trace)
    return facts_of(folder / "work", trace)


def leaves_again_and_again(folder: Path) -> Facts:
    async def comes_and_goes(own: str, others: list[str]) -> None:
        for _ in range(3):
            async with antiphon.join("orders", bind=own, peers=others):
                await asyncio.sleep(0.3)

    async def main(world: World) -> None:
        everyone = ["a:1", "b:1", "c:1", "d:1"]
        _start(world, everyone[:3], [b"%d" % number for number in range(100)], everyone)
        world.spawn("d", comes_and_goes, "d:1", everyone[:3])
        await asyncio.sleep(3)

    return _tested(folder, main)


def two_of_one_name(folder: Path) -> Facts:
    """Two processes publish as billing, and each numbers its messages from 1."""
    numbers = [number for number in range(1, 11) for _ in range(2)]
    lines = [f"billing,{2 * at},PUB,billing,{number}" for at, number in enumerate(numbers)]
    lines += [f"billing,{2 * at + 1},MSG,billing,{number}" for at, number in enumerate(numbers)]
    lines += [f"stock,{line},MSG,billing,{number}" for line, number in enumerate(numbers)]
    return _brokers(folder, lines)


def only_deliveries(folder: Path) -> Facts:
    return _brokers(folder, [f"{who},{n},MSG,billing,{n}" for who in ("stock", "mail") for n in range(1, 11)])


def half_of_the_logs(folder: Path) -> Facts:
    trace = _trace(folder, members=6, messages=20, workload=STEADY)
    _rewrite(trace, lambda rows: rows.filter(pc.field("member") < 3))
    return facts_of(folder / "work", trace)


def clocks_hours_apart(folder: Path) -> Facts:
    """No two clocks are alike; one of the members is killed."""
    crash = {"kind": "crash", "member": 1, "at": "600ms"}
    trace = _trace(folder, members=4, messages=50, workload=STEADY, faults=[crash])
    hours = {0: 0.0, 1: 3.0, 2: -5.0, 3: 0.3}

    def moved(rows: pa.Table) -> pa.Table:
        pairs = zip(rows["time_ns"].to_pylist(), rows["member"].to_pylist(), strict=True)
        times = pa.array([time + int(hours[member] * 3_600 * 10**9) for time, member in pairs], pa.int64())
        return rows.set_column(rows.schema.get_field_index("time_ns"), "time_ns", times)

    _rewrite(trace, moved)
    _forget_faults(trace)
    about = json.loads((trace / "run.json").read_text())
    (trace / "run.json").write_text(json.dumps({**about, "clock": "local"}))
    return facts_of(folder / "work", trace)


def cut_for_good(folder: Path) -> Facts:
    partition = {"kind": "partition", "groups": [[0, 1, 2], [3, 4]], "at": "500ms"}
    return _simulated(folder, members=5, messages=50, workload=STEADY, faults=[partition], limit="3s")


def cut_short_without_ends(folder: Path) -> Facts:
    """No log has an end, as those of most systems, and half of one is missing."""
    trace = _trace(folder, members=4, messages=40, workload=STEADY)
    _rewrite(trace, lambda rows: rows.filter(pc.field("event") != "end"))
    _rewrite(trace, lambda rows: rows.filter((pc.field("member") != 1) | (pc.field("step") < 200)))
    return facts_of(folder / "work", trace)


def copied_twice(folder: Path) -> Facts:
    trace = _trace(folder, members=3, messages=10, workload=STEADY)
    pq.write_table(pq.read_table(trace / "events.parquet"), trace / "copy.parquet")
    return facts_of(folder / "work", trace)


def _brokers(folder: Path, lines: list[str]) -> Facts:
    folder.mkdir(parents=True)
    (folder / "broker.csv").write_text("\n".join(["node,line,what,author,nr", *lines]) + "\n")
    (folder / "broker.toml").write_text(BROKER)
    return facts_of(folder / "work", folder / "broker.csv", mapping=load_mapping(str(folder / "broker.toml")))


def _rewrite(trace: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    file = trace / "events.parquet"
    pq.write_table(change(pq.read_table(file)), file)


def _forget_faults(trace: Path) -> None:
    """Let run.json say nothing of what was done to the group."""
    about = json.loads((trace / "run.json").read_text())
    about["parameters"]["faults"] = []
    (trace / "run.json").write_text(json.dumps(about))


class Prepared(NamedTuple):
    """How an incident is made, and what the top of its page must say; the times are for the eye alone."""

    make: Callable[[Path], Facts]
    headline: tuple[str, ...]


AFTER = r"after [\d.]+ m?s"
INCIDENTS: dict[str, Prepared] = {
    "killed coordinator": Prepared(
        killed_coordinator,
        (
            rf"Member 0, the coordinator, was killed at 500 ms; the other four went on {AFTER}; no message of it was",
            "lost; what it had delivered alone: 0. All 8 promised guarantees hold.",
        ),
    ),
    "killed sender": Prepared(
        killed_sender,
        (
            "Nothing got from member 2 to members 0, 1, 3 and 4 from 900 ms on.",
            rf"Member 2 was killed at 1 s; the other four went on {AFTER}; 5 messages of it were never delivered;",
            "what it had delivered alone: 0.",
        ),
    ),
    "partition and merge": Prepared(
        partition_and_merge,
        (
            r"The network was cut into members 0, 1 and 2 \| members 3 and 4 from 500 ms to 2 s;",
            rf"members 0, 1 and 2 went on {AFTER}; members 3 and 4 were excluded; all were together again {AFTER}.",
        ),
    ),
    "flapping": Prepared(
        flapping, (r"Member 3 was excluded four times and came back four times, from [\d.]+ s to [\d.]+ s: it flaps.",)
    ),
    "slow reader": Prepared(
        slow_reader,
        (
            r"The application of slow did not keep up: its inbox was full from [\d.]+ ms to [\d.]+ s;",
            r"the others waited up to [\d.]+ s for it alone, over \d+ messages.",
        ),
    ),
    "wrong key": Prepared(
        wrong_key, ("d never got into the group: no view lists it .another key, other settings or no link",)
    ),
    "lost state": Prepared(
        lost_state,
        (
            rf"Member 2 was killed at 500 ms; the other three went on {AFTER};",
            rf"it was back {AFTER}, as a newcomer without its state.",
        ),
    ),
    "clock step": Prepared(
        clock_step,
        (
            rf"c was killed at 1 s; the other two went on {AFTER};",
            rf"it was back {AFTER}.",
            "The clock of c was set back by 30 s at 1 s.",
        ),
    ),
    "storm": Prepared(
        storm, (r"Repairs became a storm: [\d,]+ repairs for 200 messages of 5 members, [\d.]+ for each.",)
    ),
    "broker with loss": Prepared(
        broker_with_loss,
        (
            "mail lacks 3 messages of billing that others delivered.",
            "Agreement and Causal order are broken.",
        ),
    ),
}
OTHERS: dict[str, Prepared] = {  # whose headlines are tested without their pages
    "killed together": Prepared(
        killed_together,
        (
            rf"Members 1 and 2 were killed at 300 ms; the other three went on {AFTER}; no message of theirs was lost;",
            "what they had delivered alone: 0. All 8 promised guarantees hold.",
        ),
    ),
    "left without a majority": Prepared(
        left_without_majority,
        (
            "Members 1 and 2 were killed at 300 ms;",
            "the other one could not go on: 1 of 3 is no majority;",
        ),
    ),
    "restarted again and again": Prepared(
        restarted_again_and_again,
        (
            r"Three times a member was killed \(member 1 twice and member 2 once\), from 300 ms to 2.1 s;",
            r"the others went on each time, after [\d.]+ m?s at most; all came back; no message of theirs was lost;",
            "what they had delivered alone: 0. All 8 promised guarantees hold.",
        ),
    ),
    "half leave": Prepared(
        half_leave, (r"Members 3, 4 and 5 left between 3\d\d ms and \d+ ms; the other three went on. All 8 promised",)
    ),
    "paused coordinator": Prepared(
        paused_coordinator,
        (
            rf"Member 0, the coordinator, stood still from 300 ms to 1.5 s; the other three went on {AFTER};",
            " it was excluded and came back. All 8 promised",
        ),
    ),
    "broken link": Prepared(
        broken_link,
        (
            "Nothing got between member 1 and member 2 twice from 300 ms to 2.5 s;",
            "was excluded .*and came back. All 8 promised",
        ),
    ),
    "parted without a majority": Prepared(
        parted_without_majority,
        (
            r"The network was cut into members 0 and 1 \| members 2 and 3 \| members 4 and 5 from 300 ms to 1.5 s;",
            "no side",
        ),
    ),
    "changed keys": Prepared(
        changed_keys,
        (
            "a, b and c changed the group's keys at 1 s; d did not.",
            r"From \d+ ms on d delivered nothing, until the run ended at [\d.]+ s: \d+ messages of it waited",
        ),
    ),
    "clocks apart": Prepared(
        clocks_apart,
        (
            r"The clocks of members 0, 2 and 4 were up to [\d.]+ s behind the others' .inferred from when.*",
            "View synchrony had nothing to examine; the other 7 promised guarantees hold.",
        ),
    ),
    "broker forgets a sender": Prepared(
        broker_forgets_a_sender,
        (
            "30 deliveries of messages that others delivered are missing; the first ten, of stock, at mail.",
            "Agreement, Causal order and Total order are broken.",
        ),
    ),
    "broker repeats": Prepared(
        broker_repeats,
        (
            "^stock delivers message 16 of billing again, and there are 4 more like it[.]",
            " Integrity and Sender order are broken[.]",
        ),
    ),
    "all restarted": Prepared(
        all_restarted,
        (
            "Members 0, 1, 2, 3 and 4 were killed between 500 ms and 512 ms; nobody was left;",
            "; all were back after [45][0-9]{2} ms[.] ",
        ),
    ),
    "all restarted without state": Prepared(
        all_lost_state,
        ("Members 0, 1, 2 and 3 were killed at 500 ms; .*; all were back .*, as newcomers without their state[.] ",),
    ),
    "most restarted without state": Prepared(
        most_lost_state,
        (
            "Members 0, 1 and 2 were killed at 500 ms; the other two could not go on: 2 of 5 is no majority;",
            "; they were started again, but never got back into the group[.]",
        ),
    ),
    "one-way cut": Prepared(
        one_way_cut,
        ("Nothing got from member 3 to member 1 from 500 ms to 1.5 s; member . was excluded and came back",),
    ),
    "coordinator leaves": Prepared(
        coordinator_leaves, (r"Member 0, the coordinator, left at 6\d\d ms; the other three went on. All 8 promised",)
    ),
    "two partitions": Prepared(
        two_partitions,
        (
            r"into members 0, 1 and 2 \| members 3 and 4 from 500 ms to 1.5 s; members 0, 1 and 2 went on",
            r"into members 0 and 3 \| members 1, 2 and 4 from 2.5 s to 3.5 s;",
            "went on after [0-9]+ ms; members 0 and 3 were excluded; all were together again after",
        ),
    ),
    "slow links": Prepared(
        slow_links,
        ("The links from member 3 to members 0, 1, 2 and 4 had a latency of fixed 150ms from the beginning on[.] ",),
    ),
    "full disk": Prepared(
        full_disk,
        (
            r"Member 2 fell silent at \d+ ms or soon after \(its log ends there without a word\);",
            "the others kept it in the view:",
            r"perhaps only its log was cut short \(a full disk, a missing file\)[.] ",
        ),
    ),
    "black hole": Prepared(
        black_hole,
        (
            "The links from a and b to c had an MTU of 1,000 bytes",
            "larger packets vanish without a word.* from 600 ms on",
        ),
    ),
    "late joiner": Prepared(late_joiner, (r"^d joined at \d+ ms[.] ",)),
    "killed before the others went on": Prepared(
        killed_before_going_on,
        (
            "Members 2, 3 and 4 were killed between 300 ms and 900 ms;",
            rf"the other two could not go on .2 of 5 is no majority. until member 4 was back {AFTER};",
            rf"all were back {AFTER}; nobody delivered anything from 29\d ms to 1[.]\d+ s[.] ",
        ),
    ),
    "killed before the first view": Prepared(
        killed_before_the_first_view, (r"^Member 2 was killed at 0 s, before it got into the group\. [A-Z]",)
    ),
    "killed where membership is fixed": Prepared(
        killed_with_fixed_membership,
        (
            "^Member 2 was killed at 200 ms; membership is fixed, so it stayed a member;",
            r"From [\d.]+ ms on nothing was delivered, until the run ended at 2 s: 2\d messages waited in vain[.] ",
        ),
    ),
    "most stand still": Prepared(
        most_stand_still,
        (
            r"^Members 1, 2 and 3 stood still from 300 ms to 2.3 s; ",
            r"nobody delivered anything from 29\d ms to 2[.]\d+ s[.] ",
        ),
    ),
    "most stand still in turn": Prepared(
        most_stand_still_in_turn,
        (
            r"^Members 0, 1 and 4 stood still at times that overlap, from 500 ms to 2.4 s; ",
            r"nobody delivered anything from 49\d ms to 2[.]\d+ s[.] All 8 promised",
        ),
    ),
    "halted, unsaid": Prepared(
        halted_unsaid,
        (r"^Nobody delivered anything from 49\d ms to 2[.]5\d s, although messages waited .inferred from",),
    ),
    "healed in two steps": Prepared(
        healed_in_two_steps,
        (
            r"members 4, 5 and 6 from 500 ms to 1.5 s; no side went on by itself; nobody delivered anything",
            r" s[.] The network was cut into members 0, 1, 2 and 3 [|] members 4, 5 and 6 from 1.5 s to 3 s; ",
            rf"members 0, 1, 2 and 3 went on {AFTER}; members 4, 5 and 6 were excluded; all were together",
        ),
    ),
    "cut and killed": Prepared(
        cut_and_killed,
        (
            rf"from 500 ms to 3 s; members 2, 3 and 4 went on {AFTER}; members 0 and 1 were excluded;",
            r"Member 2 was killed at 1 s; two of the other four could not go on .2 of 5 is no majority. until member 2",
        ),
    ),
    "lossy for a second": Prepared(
        lossy_for_a_second,
        (
            r"^The network had a loss of 30% from 1 s to 2 s; the view stayed[.] ",
            "View synchrony had nothing to examine; the other 7 promised guarantees hold",
        ),
    ),
    "each side goes on": Prepared(
        each_side_goes_on,
        (
            rf"members 0, 1 and 2 went on {AFTER}; members 3 and 4 went on {AFTER};",
            rf"members 3 and 4 gave way to the others; all were together again {AFTER}[.] ",
        ),
    ),
    "upgraded one by one": Prepared(
        upgraded_one_by_one,
        (r"^a, b and c left one after the other, from [\d.]+ m?s to [\d.]+ s; each was back within \d+ ms[.] ",),
    ),
    "set up differently": Prepared(
        set_up_differently, ("^d never took part: no view lists it, and there is no log of it .not started, another",)
    ),
    "missing log": Prepared(
        missing_log,
        (r"^Member 2 dropped out of the view at \d+ ms \(it crashed, left or was excluded: there is no log of it\)",),
    ),
    "stood still, unsaid": Prepared(
        stood_still_unsaid,
        (
            r"^Member 0, the coordinator, recorded nothing for 2[.]?\d* s from \d+ ms on .it stood still.*;",
            rf" the other three went on {AFTER}; it was excluded and came back[.] All 8 promised",
        ),
    ),
    "leaves again and again": Prepared(
        leaves_again_and_again,
        (r"^d left three times, from \d+ ms to [\d.]+ s; it came back twice, within \d+ ms[.] ",),
    ),
    "two of one name": Prepared(
        two_of_one_name,
        ("^billing uses its number 1 again .two senders under one name would do that., and there are 29 more like it",),
    ),
    "publishers and consumers": Prepared(
        broker_of_publishers_and_consumers,
        (
            "^45 deliveries of messages that others delivered are missing.*",
            "; billing never delivers anything: if it only publishes, a topic .topic = .NAME. under .constants. of",
        ),
    ),
    "only deliveries": Prepared(
        only_deliveries,
        ("^No log says that anything was sent, only what was delivered .--sends unrecorded, if nobody logs what",),
    ),
    "half of the logs": Prepared(
        half_of_the_logs,
        ("^There is no log of members 3, 4 and 5, of which the views tell .perhaps a file is missing.[.] ",),
    ),
    "clocks hours apart": Prepared(
        clocks_hours_apart,
        (
            "The clocks of members 1, 2 and 3 were up to 3 h ahead of and up to 5 h behind the others'",
            rf"Member 1 crashed at [56]\d\d ms; the other three went on {AFTER}; no message of it was lost;",
        ),
    ),
    "cut for good": Prepared(
        cut_for_good,
        (
            rf"from 500 ms on; members 0, 1 and 2 went on {AFTER}; members 3 and 4 did not[.] ",
            r"From 4\d\d ms on members 3 and 4 delivered nothing, until the run ended at 3 s: \d+ messages of theirs",
        ),
    ),
    "cut short without ends": Prepared(
        cut_short_without_ends,
        (r"The log of member 1 ends \d+ ms before the last of the others .perhaps it stopped, or the file is not",),
    ),
    "copied twice": Prepared(
        copied_twice,
        (r"^[\d,]+ rows could not be read .a second row with the same run, member and step.: 7 of 8 promised",),
    ),
    "single member": Prepared(
        single_member,
        ("Agreement, Total order and View synchrony had nothing to examine; the other 5 promised guarantees hold.",),
    ),
}


def _start(
    world: World, some: list[str], payloads: list[bytes], everyone: list[str] | None = None, pause_s: float = 0.02
) -> None:
    """Start members, each of which says its payloads."""

    async def member(own: str) -> None:
        others = [one for one in everyone or some if one != own]
        async with antiphon.join("orders", bind=own, peers=others) as group:
            await _talk(group, payloads, pause_s)

    for own in some:
        world.spawn(own[0], member, own)


async def _talk(group: antiphon.Group, payloads: list[bytes], pause_s: float) -> None:
    """Send with a pause after each, while reading what comes; then read on for good."""

    async def drain() -> None:
        async for _ in group:
            pass

    reading = asyncio.create_task(drain())
    for payload in payloads:
        await group.send(payload)
        await asyncio.sleep(pause_s)
    await reading


def _tested(folder: Path, main: Callable[[World], Any], seed: int = 3) -> Facts:
    world = testing.simulated(seed)
    with world:
        world.run(main)
    world.write_trace(folder / "trace")
    return facts_of(folder / "work", folder / "trace")


def _trace(folder: Path, **table: Any) -> Path:
    return simulated_trace(folder / "trace", seed=3, **{**VIEWS, **table})


def _simulated(folder: Path, **table: Any) -> Facts:
    return facts_of(folder / "work", _trace(folder, **table))


if __name__ == "__main__":
    from antiphon.report.headline import headline
    from antiphon.report.incidents import incidents
    from antiphon.report.trace_page import trace_page

    for name, prepared in (INCIDENTS | OTHERS).items():
        if len(sys.argv) > 2 and name not in sys.argv[2:]:
            continue
        place = Path(sys.argv[1]) / name.replace(" ", "-")
        facts = prepared.make(place)
        place.with_suffix(".html").write_text(trace_page(facts))
        print(f"{name}: {headline(facts)}")
        for one in incidents(facts):
            print(f"    - {one.text}")
