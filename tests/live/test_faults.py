"""Real faults: member processes that are killed, restarted, stopped and resumed, under load."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from antiphon.trace import naive
from antiphon.trace.reader import read
from support import live_member
from support.live_group import free_addresses

pytestmark = pytest.mark.faults

WAIT_S = 30.0  # of a machine that may be busy with other things


class Members:
    """Processes of one group, and what they have written down."""

    def __init__(
        self, addresses: list[str], folder: Path, prefixes: list[list[str]] | None = None, **settings: Any
    ) -> None:
        """Prepare members; a prefix is a command that runs a member somewhere else."""
        self.addresses, self._folder = addresses, folder
        self._prefixes = prefixes or [[] for _ in addresses]
        self._environment = {
            **os.environ,
            "SETTINGS": json.dumps({"key": os.urandom(16).hex(), **settings}),
        }
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, *members: int) -> None:
        for member in members:
            own = self.addresses[member]
            others = [address for address in self.addresses if address != own]
            words = [self._out(member), self._folder / "trace", self._folder / "state", "0.01", own, *others]
            self.processes[member] = subprocess.Popen(
                [*self._prefixes[member], sys.executable, str(live_member.__file__), *map(str, words)],
                env=self._environment,
            )

    def signal(self, member: int, number: int) -> None:
        self.processes[member].send_signal(number)
        if number == signal.SIGKILL:
            self.processes[member].wait()

    def end_quietly(self) -> None:
        """Let all stop sending, wait until all are in one view and nothing more is delivered, then end them."""
        for process in self.processes.values():
            process.send_signal(signal.SIGUSR1)

        def at_rest() -> bool:
            before = [self.messages(member) for member in self.processes]
            time.sleep(1.0)
            after = [self.messages(member) for member in self.processes]
            together = all(set(self.view(member)) == set(self.addresses) for member in self.processes)
            return before == after and together

        self.wait_for(at_rest, "rest")
        self.end()

    def end(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(WAIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _out(self, member: int) -> Path:
        return self._folder / f"{member}.jsonl"

    def seen(self, member: int) -> list[dict[str, Any]]:
        if not self._out(member).exists():
            return []
        lines = self._out(member).read_text().split("\n")[:-1]
        return [json.loads(line) for line in lines]

    def messages(self, member: int) -> list[str]:
        return [event["message"] for event in self.seen(member) if "message" in event]

    def view(self, member: int) -> list[str]:
        return next((event["members"] for event in reversed(self.seen(member)) if "members" in event), [])

    def wait_for(self, condition: Callable[[], bool], what: str) -> float:
        """Wait for something; give how long it took."""
        began = time.monotonic()
        while not condition():
            assert time.monotonic() - began < WAIT_S, f"{what}: {[self.seen(m)[-3:] for m in self.processes]}"
            time.sleep(0.05)
        return time.monotonic() - began

    def wait_for_view_of(self, *members: int) -> float:
        addresses = {self.addresses[member] for member in members}
        return self.wait_for(
            lambda: all(set(self.view(member)) == addresses for member in members), f"a view of {members}"
        )

    def wait_for_progress(self, *members: int) -> float:
        """Wait until each has delivered new messages of each."""
        before = {member: len(self.messages(member)) for member in members}
        addresses = {self.addresses[member] for member in members}

        def progress() -> bool:
            news = [self.messages(member)[before[member] :] for member in members]
            return all({text.split("/")[0] for text in texts} >= addresses for texts in news)

        return self.wait_for(progress, f"progress of {members}")


@pytest.fixture
def five(tmp_path: Path) -> Iterator[Members]:
    members = Members(sorted(free_addresses(5)), tmp_path, ordering="total")
    members.start(*range(5))
    yield members
    members.end()


def views_lived_through(events: list[dict[str, Any]]) -> set[int]:
    """Name the views from which a member went on to the next: not those that it was thrown out of, nor its last."""
    lived, current = set(), None
    for event in events:
        if "members" in event:
            lived |= {current} - {None}
            current = event["view"]
        elif event.get("notice") == "excluded":
            current = None
    return lived


def check_nothing_is_contradicted(members: Members, survivors: list[int], folder: Path, *, total: bool = True) -> None:
    """One order at all (where it is total), nothing twice, nothing stable lost, no guarantee violated in the traces."""
    streams = {member: members.messages(member) for member in members.processes}
    for stream in streams.values():
        assert len(stream) == len(set(stream))
    for one in streams:
        for other in streams if total else ():
            common = set(streams[one]) & set(streams[other])
            assert [text for text in streams[one] if text in common] == [
                text for text in streams[other] if text in common
            ]
    events = {member: members.seen(member) for member in members.processes}
    view_of = {event["message"]: event["view"] for seen in events.values() for event in seen if "message" in event}
    stable = {event["stable"] for seen in events.values() for event in seen if "stable" in event}
    assert stable <= view_of.keys()
    for survivor in survivors:
        views = views_lived_through(events[survivor])
        due = {text for text in stable if view_of[text] in views}
        assert due <= set(streams[survivor]), "a message that was acknowledged as stable is lost"
    trace = read(folder / "trace")
    found = naive.check(trace.events, guarantees=trace.promised)
    assert not [name for name, verdict in found.items() if verdict.verdict == "violated"], found


def test_members_are_killed_and_restarted_and_the_group_goes_on(five: Members, tmp_path: Path) -> None:
    five.wait_for_view_of(0, 1, 2, 3, 4)
    five.wait_for_progress(0, 1, 2, 3, 4)
    five.signal(3, signal.SIGKILL)
    five.wait_for_view_of(0, 1, 2, 4)
    five.wait_for_progress(0, 1, 2, 4)
    five.signal(0, signal.SIGKILL)  # the first of the view: it proposes changes
    five.wait_for_view_of(1, 2, 4)
    five.wait_for_progress(1, 2, 4)
    five.start(0, 3)
    five.wait_for_view_of(0, 1, 2, 3, 4)
    five.wait_for_progress(0, 1, 2, 3, 4)
    five.end_quietly()
    check_nothing_is_contradicted(five, [1, 2, 4], tmp_path)


def test_a_member_that_was_stopped_comes_back(five: Members, tmp_path: Path) -> None:
    five.wait_for_view_of(0, 1, 2, 3, 4)
    five.wait_for_progress(0, 1, 2, 3, 4)
    five.signal(2, signal.SIGSTOP)
    five.wait_for_view_of(0, 1, 3, 4)
    five.wait_for_progress(0, 1, 3, 4)
    five.signal(2, signal.SIGCONT)
    five.wait_for_view_of(0, 1, 2, 3, 4)
    five.wait_for_progress(0, 1, 2, 3, 4)
    assert {"notice": "excluded"} in five.seen(2)
    five.end_quietly()
    check_nothing_is_contradicted(five, [0, 1, 3, 4], tmp_path)


class Namespaces:
    """Two networks with a router between them that can be told to forward nothing."""

    def __init__(self) -> None:
        self.left, self.right, self._router = (f"antiphon-{os.getpid()}-{name}" for name in ("l", "r", "m"))

    def __enter__(self) -> Namespaces:
        try:
            for name in (self.left, self.right, self._router):
                _ip("netns", "add", name)
                _ip("-n", name, "link", "set", "lo", "up")
            for number, name in enumerate((self.left, self.right), 1):
                port = f"port{number}"
                _ip("-n", self._router, "link", "add", port, "type", "veth", "peer", "name", "up0", "netns", name)
                _ip("-n", self._router, "address", "add", f"10.77.{number}.254/24", "dev", port)
                _ip("-n", name, "address", "add", f"10.77.{number}.1/24", "dev", "up0")
                _ip("-n", self._router, "link", "set", port, "up")
                _ip("-n", name, "link", "set", "up0", "up")
                _ip("-n", name, "route", "add", "default", "via", f"10.77.{number}.254")
            self.connect(True)
        except (OSError, subprocess.CalledProcessError) as error:
            self.__exit__()
            pytest.skip(f"network namespaces are not permitted here: {error}")
        return self

    def connect(self, together: bool) -> None:
        _ip("netns", "exec", self._router, "sh", "-c", f"echo {int(together)} > /proc/sys/net/ipv4/ip_forward")

    def __exit__(self, *_: object) -> None:
        for name in (self.left, self.right, self._router):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def test_a_partition_between_networks_heals(tmp_path: Path) -> None:
    with Namespaces() as namespaces:
        left, right = ["ip", "netns", "exec", namespaces.left], ["ip", "netns", "exec", namespaces.right]
        addresses = ["10.77.1.1:7001", "10.77.1.1:7002", *(f"10.77.2.1:{port}" for port in (7001, 7002, 7003))]
        members = Members(addresses, tmp_path, [left, left, right, right, right], ordering="causal")
        try:
            members.start(*range(5))
            members.wait_for_view_of(0, 1, 2, 3, 4)
            members.wait_for_progress(0, 1, 2, 3, 4)
            namespaces.connect(False)
            members.wait_for_view_of(2, 3, 4)
            members.wait_for_progress(2, 3, 4)
            before = [members.messages(member) for member in (0, 1)]
            time.sleep(0.5)
            assert before == [members.messages(member) for member in (0, 1)], "the minority goes on"
            namespaces.connect(True)
            members.wait_for_view_of(0, 1, 2, 3, 4)
            members.wait_for_progress(0, 1, 2, 3, 4)
            members.end_quietly()
            check_nothing_is_contradicted(members, [2, 3, 4], tmp_path, total=False)
        finally:
            members.end()
