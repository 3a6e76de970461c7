"""Ten incidents, each with the facts that a page about it must tell at its top.

`python -m support.incidents FOLDER` (in tests/) makes their pages and pictures, to be looked at.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

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
    """The trace does not say that somebody stops member 3 again and again."""
    pauses = [
        {"kind": "pause", "member": 3, "at": f"{at}ms", "until": f"{at + 900}ms"} for at in range(500, 6500, 1500)
    ]
    trace = _trace(folder, members=4, messages=350, workload=STEADY, faults=pauses)
    about = json.loads((trace / "run.json").read_text())
    about["parameters"]["faults"] = []
    (trace / "run.json").write_text(json.dumps(about))
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
            await _talk(group, [b"%080d" % number for number in range(120)], pause_s=0.01)

    async def main(world: World) -> None:
        everyone = ["a:1", "b:1", "slow:1"]
        world.spawn("a", writer, world, "a:1", everyone)
        world.spawn("b", reader, world, "b:1", everyone)
        world.spawn("slow", reader, world, "slow:1", everyone)
        await asyncio.sleep(70)

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
        slow_reader, (r"slow held the others up: they waited up to [\d.]+ s for it alone, over \d+ messages.",)
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
            "3 deliveries of messages that others delivered are missing, at mail.",
            "Agreement and Causal order are broken.",
        ),
    ),
}


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
    from antiphon.report.incidents import incidents
    from antiphon.report.trace_page import headline, trace_page

    for name, prepared in INCIDENTS.items():
        if len(sys.argv) > 2 and name not in sys.argv[2:]:
            continue
        place = Path(sys.argv[1]) / name.replace(" ", "-")
        facts = prepared.make(place)
        place.with_suffix(".html").write_text(trace_page(facts))
        print(f"{name}: {headline(facts)}")
        for one in incidents(facts):
            print(f"    - {one.text}")
