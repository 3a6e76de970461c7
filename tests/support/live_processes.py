"""Member processes of one live group under load: started, killed, stopped, cut off, and what they have written down.

Every line that a member writes carries the instant, by the clock that all processes of a machine share. How soon a
group went on is read off these instants. The promise of three seconds is for a machine that has time for its members:
the kernel says how long each of them stood ready and got no processor, and that share of the time is not counted.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import pytest

from antiphon.trace import naive
from antiphon.trace.reader import read
from support import live_member, promises

PROMISE_S = 3.0
OVERLOADED = 0.25  # share of the time for which some member got no processor: beyond, the machine is too busy to judge
GIVE_UP_S = 60.0  # of a group that is stuck


class Members:
    """The processes of one group."""

    def __init__(
        self, addresses: list[str], folder: Path, prefixes: list[list[str]] | None = None, **settings: Any
    ) -> None:
        """Prepare members; a prefix is a command that runs a member somewhere else."""
        self.addresses, self._folder = addresses, folder
        self._prefixes = prefixes or [[] for _ in addresses]
        self._environment = {**os.environ, "SETTINGS": json.dumps({"key": os.urandom(16).hex(), **settings})}
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self._seen: dict[int, list[dict[str, Any]]] = {member: [] for member in range(len(addresses))}
        self._read_bytes = [0] * len(addresses)

    @property
    def all(self) -> tuple[int, ...]:
        return tuple(range(len(self.addresses)))

    def start(self, *members: int) -> None:
        for member in members or self.all:
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

    def end(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(GIVE_UP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def end_quietly(self) -> None:
        """Let all stop sending, wait until all have delivered the same in one view of all, then end them."""
        for process in self.processes.values():
            process.send_signal(signal.SIGUSR1)
        seen: list[list[str]] = []
        since = time.monotonic()

        def at_rest() -> bool:
            nonlocal seen, since
            now = [self._in_last_view(member) for member in self.all]
            if now != seen:
                seen, since = now, time.monotonic()
            together = all(set(self.view(member)) == set(self.addresses) for member in self.all)
            alike = len(set(map(frozenset, now))) == 1 and self.stable() <= {
                text for one in self.all for text in self.messages(one)
            }
            return together and alike and time.monotonic() - since > 0.5

        self._wait_for(at_rest, "rest")
        self.end()

    def _in_last_view(self, member: int) -> list[str]:
        events = self.seen(member)
        last = max((index for index, event in enumerate(events) if "members" in event), default=0)
        return [event["message"] for event in events[last:] if "message" in event]

    # What they have written down

    def _out(self, member: int) -> Path:
        return self._folder / f"{member}.jsonl"

    def seen(self, member: int) -> list[dict[str, Any]]:
        """Give what a member wrote so far, in all its lives."""
        if self._out(member).exists():
            with self._out(member).open("rb") as file:
                file.seek(self._read_bytes[member])
                news = file.read()
            complete = news[: news.rfind(b"\n") + 1]
            self._read_bytes[member] += len(complete)
            self._seen[member] += map(json.loads, complete.splitlines())
        return self._seen[member]

    def messages(self, member: int) -> list[str]:
        return [event["message"] for event in self.seen(member) if "message" in event]

    def stable(self) -> set[str]:
        """Give all that was ever acknowledged as stable."""
        return {event["stable"] for member in self.all for event in self.seen(member) if "stable" in event}

    def view(self, member: int) -> list[str]:
        return next((event["members"] for event in reversed(self.seen(member)) if "members" in event), [])

    # Waiting

    def _wait_for(self, condition: Callable[[], bool], what: str) -> None:
        began = time.monotonic()
        while not condition():
            for member, process in self.processes.items():
                assert process.poll() in (None, -signal.SIGKILL), f"member {member} died of itself"
            assert time.monotonic() - began < GIVE_UP_S, f"{what}: {[self.seen(m)[-3:] for m in self.all]}"
            time.sleep(0.05)

    def begin(self) -> None:
        """Wait until all are a group and deliver what all send; to start an interpreter may take its time."""
        self._wait_for(lambda: self._on_at_ns(self.all, 0) is not None, "the group begins")

    def go_on(self, *members: int, since: float | None = None) -> None:
        """See that these are a group of their own, and that each delivers new messages of each: within the promise."""
        members = members or self.all
        since_ns = int((time.monotonic() if since is None else since) * 1e9)
        waits = Waits(self.processes[member].pid for member in members)
        self._wait_for(lambda: self._on_at_ns(members, since_ns) is not None, f"{members} go on together")
        on_at_ns = self._on_at_ns(members, since_ns)
        assert on_at_ns is not None
        waits.check((on_at_ns - since_ns) / 1e9, f"members {members} to go on together")

    def _on_at_ns(self, members: Collection[int], since_ns: int) -> int | None:
        """Say when, after an instant, each had delivered something of each in one view of just these, if they have."""
        found = [self._on_in_views(member, members, since_ns) for member in members]
        common = set.intersection(*map(set, found))
        return min((max(one[view] for one in found) for view in common), default=None)

    def _on_in_views(self, member: int, members: Collection[int], since_ns: int) -> dict[int, int]:
        """Say in which views of just these a member delivered something of each after an instant, and when it had."""
        addresses = {self.addresses[other] for other in members}
        found: dict[int, int] = {}
        missing: set[str] = set()
        for event in self.seen(member):
            if "members" in event:
                missing = set(addresses) if set(event["members"]) == addresses else set()
            elif "message" in event and missing and event["at"] >= since_ns:
                missing.discard(event["message"].split("/")[0])
                if not missing:
                    found[event["view"]] = event["at"]
        return found

    def join_again(self, *members: int) -> None:
        """Restart members; the group is one again within the promise, counted from when the last of them joins."""
        self.start(*members)
        pids = {self.processes[member].pid for member in members}

        def joining() -> list[int]:
            return [event["at"] for m in members for event in self.seen(m) if event.get("joining") in pids]

        self._wait_for(lambda: len(joining()) == len(members), f"{members} start")
        self.go_on(since=max(joining()) / 1e9)


class Waits:
    """How long processes stand ready and get no processor, from now on."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._before = {pid: _waited_ns(pid) for pid in pids}
        self._began_ns = time.monotonic_ns()

    def check(self, took_s: float, what: str) -> None:
        """Fail if something took longer than promised, on a machine that has time for it."""
        longest_ns = max(_waited_ns(pid) - before for pid, before in self._before.items())
        share = min(0.9, longest_ns / (time.monotonic_ns() - self._began_ns))
        limit_s = PROMISE_S / (1 - share) if share > OVERLOADED else PROMISE_S
        print(f"{what}: {took_s:.2f} s of {limit_s:.2f} s, a member got no processor for {share:.0%} of it")
        promises.keep(limit_s, took_s, what)


def _waited_ns(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1])
    except OSError:
        return 0  # this kernel does not tell


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
        """Let the two hear each other, or not."""
        _ip("netns", "exec", self._router, "sh", "-c", f"echo {int(together)} > /proc/sys/net/ipv4/ip_forward")

    def __exit__(self, *_: object) -> None:
        for name in (self.left, self.right, self._router):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def views_lived_through(events: list[dict[str, Any]]) -> set[int]:
    """Name the views from which a member went on to the next: not those that it was thrown out of, nor its last."""
    lived, current = set(), None
    for event in events:
        if "members" in event:
            lived |= {current} - {None}
            current = event["view"]
        elif event.get("notice") == "excluded" or "joining" in event:
            current = None
    return lived


def agreed_by(events: list[dict[str, Any]]) -> list[str]:
    """Give what a member delivered, without the last view of a life that was killed.

    Unless delivery is safe, one that dies may have delivered in an order that dies with it.
    """
    agreed: list[str] = []
    in_view: list[str] = []
    for event in events:
        if "joining" in event:
            in_view = []
        elif "members" in event:
            agreed += in_view
            in_view = []
        elif "message" in event:
            in_view.append(event["message"])
    return agreed + in_view


def check_nothing_is_contradicted(members: Members, folder: Path, *, total: bool = True) -> None:
    """One order at all (where it is total), nothing twice, nothing stable lost, no guarantee violated in the traces."""
    streams = {member: members.messages(member) for member in members.all}
    for stream in streams.values():
        assert len(stream) == len(set(stream))
    agreed = [agreed_by(members.seen(member)) for member in members.all]
    for one in agreed:
        for other in agreed if total else ():
            common = set(one) & set(other)
            assert _only(one, common) == _only(other, common)
    view_of = {
        event["message"]: event["view"] for member in streams for event in members.seen(member) if "message" in event
    }
    stable = members.stable()
    assert stable <= view_of.keys(), "a message that was acknowledged as stable was delivered nowhere"
    assert stable
    for member, stream in streams.items():
        views = views_lived_through(members.seen(member))
        due = {text for text in stable if view_of[text] in views}
        assert due <= set(stream), "a message that was acknowledged as stable is lost"
    trace = read(folder / "trace")
    found = naive.check(trace.events, guarantees=trace.promised)
    assert not [name for name, verdict in found.items() if verdict.verdict == "violated"], found


def _only(stream: list[str], texts: Collection[str]) -> list[str]:
    return [text for text in stream if text in texts]
