"""Packets fit the path, whatever it carries: members in network namespaces, on interfaces of many sizes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import asyncio, json, sys
import antiphon

async def main():
    about = json.loads(sys.argv[1])
    seen, ends = [], []
    async with antiphon.join(
        "paths", bind=about["bind"], peers=about["peers"], state=about["state"], offload=about["offload"],
        key=bytes(16), ordering="total",
    ) as group:
        sizes = lambda: [path.size for path in group.transport._prober._paths.values()]
        async def send():
            number = 0
            expected = list(about["sizes"])
            while number < 6 or (expected and number < 1_500):
                size = (20_000, 200_000, 900)[number % 3]
                await group.send(b"%s %d " % (about["bind"].encode(), number) + bytes(size))
                number += 1
                if expected and sizes() == [expected[0]]:
                    print(expected.pop(0), flush=True)
                if number >= 6:
                    await asyncio.sleep(0.02)
            await group.send(b"end")
        sending = asyncio.create_task(send())
        async for event in group:
            if isinstance(event, antiphon.Message):
                if event.payload == b"end":
                    ends.append(event.sender)
                    if len(ends) == 1 + len(about["peers"]):
                        break
                else:
                    seen.append((event.payload[:30].split(b" \\0")[0].decode(), len(event.payload)))
        await sending
        print(json.dumps({"seen": seen, "sizes": sizes(), "counts": group.status().counts}))
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)
        await group.stop()

asyncio.run(asyncio.wait_for(main(), 50))
"""


def ip(*words: str) -> None:
    """Configure the network."""
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Switch:
    """Two hosts at a switch, which drops what is larger than a port's MTU without a word, as switches do."""

    def __init__(self) -> None:
        self._names = [f"antiphon-{os.getpid()}-{name}" for name in ("s", "a", "b")]

    def __enter__(self) -> Switch:
        try:
            for name in self._names:
                ip("netns", "add", name)
                ip("-n", name, "link", "set", "lo", "up")
            switch = self._names[0]
            ip("-n", switch, "link", "add", "name", "br0", "type", "bridge")
            for number, host in enumerate(self._names[1:], 1):
                port = f"port{number}"
                ip("-n", switch, "link", "add", "name", port, "type", "veth", "peer", "name", "up0", "netns", host)
                ip("-n", host, "address", "add", f"10.77.0.{number}/24", "dev", "up0")
                ip("-n", host, "address", "add", f"fd77::{number}/64", "dev", "up0", "nodad")
                ip("-n", switch, "link", "set", port, "master", "br0")
                ip("-n", switch, "link", "set", port, "up")
                ip("-n", host, "link", "set", "up0", "up")
            ip("-n", switch, "link", "set", "br0", "up")
        except (OSError, subprocess.CalledProcessError) as error:
            self.__exit__()
            pytest.skip(f"network namespaces are not permitted here: {error}")
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)

    def let_hosts_send(self, mtu: int) -> None:
        """Give all interfaces of the hosts, and those of the switch, an MTU."""
        for host in self._names[1:]:
            ip("-n", host, "link", "set", "up0", "mtu", str(mtu))
        self.let_pass(mtu)

    def let_pass(self, mtu: int) -> None:
        """Give the ports of the switch an MTU: to what is larger they are black holes."""
        for number in (1, 2):
            ip("-n", self._names[0], "link", "set", f"port{number}", "mtu", str(mtu))

    def start(self, folder: Path, *, six: bool, **about: Any) -> list[subprocess.Popen[str]]:
        """Start a member on each host."""
        hosts = ["[fd77::1]:7001", "[fd77::2]:7001"] if six else ["10.77.0.1:7001", "10.77.0.2:7001"]
        members = []
        for name, own, other in zip(self._names[1:], hosts, reversed(hosts), strict=True):
            told = {"bind": own, "peers": [other], "state": str(folder / name), **about}
            command = ["ip", "netns", "exec", name, sys.executable, "-c", PROGRAM, json.dumps(told)]
            members.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return members


def listen(members: list[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    """Wait until all have everything; everyone must have the same in the same order."""
    said = []
    try:
        for member in members:
            assert member.stdout is not None
            line = next(line for line in member.stdout if line.startswith("{"))
            said.append(json.loads(line))
    finally:
        for member in members:
            assert member.stdin is not None
            member.stdin.close()
            member.wait(20)
    assert said[0]["seen"] == said[1]["seen"]
    assert len(said[0]["seen"]) >= 12
    for one in said:
        assert not one["counts"].get("packets-unsendable", 0)
    return said


@pytest.fixture(scope="module")
def switch() -> Iterator[Switch]:
    with Switch() as one:
        yield one


@pytest.mark.parametrize(
    ("mtu", "six", "offload"),
    [
        (1_280, True, None),
        (1_280, False, False),
        (1_420, False, None),
        (1_420, False, False),
        (1_500, False, None),
        (1_500, True, False),
        (9_000, True, None),
        (9_000, False, False),
        (65_535, False, None),
        (65_535, False, False),
    ],
)
def test_packets_are_as_large_as_the_path_allows(
    mtu: int, six: bool, offload: bool | None, switch: Switch, tmp_path: Path
) -> None:
    switch.let_hosts_send(mtu)
    size = min(65_507, mtu - (48 if six else 28))
    for one in listen(switch.start(tmp_path, six=six, offload=offload, sizes=[size])):
        assert one["sizes"] == [size]
        assert not one["counts"].get("packets-too-large", 0)
        assert not one["counts"].get("packets-vanished", 0)


@pytest.mark.parametrize("offload", [None, False], ids=["offload", "plain"])
def test_what_a_switch_drops_without_a_word_is_never_relied_upon(
    offload: bool | None, switch: Switch, tmp_path: Path
) -> None:
    switch.let_hosts_send(9_000)
    switch.let_pass(1_400)
    for one in listen(switch.start(tmp_path, six=False, offload=offload, sizes=[1_372])):
        assert one["sizes"] == [1_372]
        assert not one["counts"].get("packets-vanished", 0), "the packets that vanished were empty"


def test_a_path_that_becomes_a_black_hole_is_noticed(switch: Switch, tmp_path: Path) -> None:
    """How soon is asserted on simulated machines, which are never busy: `test_transport.py`."""
    switch.let_hosts_send(9_000)
    members = switch.start(tmp_path, six=False, offload=None, sizes=[8_972, 1_252])
    for member in members:
        assert member.stdout is not None
        assert member.stdout.readline() == "8972\n"
    switch.let_pass(1_280)
    for one in listen(members):
        assert one["sizes"] == [1_252]
        assert one["counts"]["packets-vanished"] >= 1
