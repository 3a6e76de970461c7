"""A large state brought to a joiner while its group delivers: python -m bench.live.transfer [--mib 1024]

Two member processes on the loopback address send and deliver; each has a state of so many MiB in a file of its own, and
a hash over all that it delivered. Then a third process joins. Says how long that took, for how long at most deliveries
stopped at any process and when, for how long its loop stood still, how much more memory any process took than before,
and whether all ended with the same state.
Exits with 1 if the states differ, or if more memory was taken or deliveries stopped for longer than is promised.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import antiphon
from antiphon.protocol.machine import MILLISECOND
from antiphon.protocol.membership.options import MembershipOptions
from bench.live.addresses import free_addresses

MORE_MIB_MAX = 64
STOPPED_S_MAX = 1.0
_PIECE_BYTES = 256 << 10
_QUIET_S = 60.0  # for what is under way
_HEAD_BYTES = 40  # a hash over the stream, and how many messages that is


class Application:
    """A file, and a hash over all that was delivered."""

    def __init__(self, file: Path, size: int) -> None:
        self._file, self._size = file, size
        self.chain, self.count = bytes(32), 0
        self.delivered_at = 0.0
        self.stopped_s, self.stopped_at = 0.0, 0.0  # the longest time between two deliveries, and when it ended
        self.stood_still_s, self.stood_still_at = 0.0, 0.0  # the same of turns of the loop

    def fill(self) -> None:
        """Make a state that compresses badly, the same for everyone."""
        digest = blake2b(b"state")
        with self._file.open("wb") as file:
            for _ in range(self._size // 64 // 1_024):
                digest.update(b".")
                file.write(digest.digest() * 1_024)

    def snapshot(self) -> AsyncIterator[bytes]:
        return _with_head(self.chain + self.count.to_bytes(8, "big"), self._file)

    async def restore(self, pieces: AsyncIterator[bytes]) -> None:
        head = b""
        with self._file.open("wb") as file:
            async for piece in pieces:
                if len(head) < _HEAD_BYTES:
                    head, piece = (head + piece)[:_HEAD_BYTES], (head + piece)[_HEAD_BYTES:]
                await asyncio.to_thread(file.write, piece)  # a disk that is busy must not keep the loop from the group
        self.chain, self.count = head[:32], int.from_bytes(head[32:], "big")

    def deliver(self, payload: bytes) -> None:
        now = time.monotonic()
        if self.delivered_at and now - self.delivered_at > self.stopped_s:
            self.stopped_s, self.stopped_at = now - self.delivered_at, now
        self.delivered_at = now
        self.count += 1
        self.chain = blake2b(self.chain + payload, digest_size=32).digest()

    async def watch_the_loop(self) -> None:
        """Note for how long at most nothing else had its turn."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            now = time.monotonic()
            if now - before > self.stood_still_s:
                self.stood_still_s, self.stood_still_at = now - before, now

    def digest(self) -> str:
        with self._file.open("rb") as file:
            whole = blake2b(self.chain)
            while piece := file.read(_PIECE_BYTES):
                whole.update(piece)
        return whole.hexdigest()[:16]


async def _with_head(head: bytes, path: Path) -> AsyncIterator[bytes]:
    yield head
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


def memory_kib(what: str) -> int:
    """Give what the kernel says of this process' memory: VmRSS now, VmHWM at most."""
    return next(int(line.split()[1]) for line in _status() if line.startswith(what))


def _status() -> list[str]:
    return Path("/proc/self/status").read_text().splitlines()


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


async def take_part(about: dict[str, Any]) -> None:
    """Be a member: say `ready`, then do what comes on the standard input, a word a line."""
    application = Application(Path(about["file"]), about["mib"] << 20)
    if about["elder"]:
        application.fill()
    stream = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), sys.stdin)
    before_kib = memory_kib("VmRSS")
    forget_peak()
    async with antiphon.join(
        "transfer",
        bind=about["bind"],
        peers=about["peers"],
        key=bytes.fromhex(about["key"]),
        ordering=about["ordering"],
        state=Path(about["state"]),
        snapshot=application.snapshot,
        restore=application.restore,
        membership=MembershipOptions(suspect_ns=about["suspect_ms"] * MILLISECOND),
    ) as group:

        async def listen() -> None:
            async for event in group:
                if isinstance(event, antiphon.Message):
                    application.deliver(event.payload)

        async def send() -> None:
            sent, began = 0, time.monotonic()
            while True:
                while sent < (time.monotonic() - began) * about["rate"]:
                    await group.send(os.urandom(about["bytes"]))
                    sent += 1
                await asyncio.sleep(0.5 / about["rate"])

        tasks = [asyncio.create_task(listen()), asyncio.create_task(application.watch_the_loop())]
        sending = asyncio.create_task(send()) if about["elder"] else None
        while not application.count:
            await asyncio.sleep(0.01)
        say(ready=True)
        while word := (await stream.readline()).decode().strip():
            match word:
                case "measure":
                    before_kib, application.stopped_s, application.stood_still_s = memory_kib("VmRSS"), 0.0, 0.0
                    forget_peak()
                    say(members=len(group.status().members))
                case "silence":
                    if sending is not None:
                        sending.cancel()
                    say(
                        more_kib=memory_kib("VmHWM") - before_kib,
                        stopped=[application.stopped_s, application.stopped_at],
                        stood_still=[application.stood_still_s, application.stood_still_at],
                    )
                case "count":
                    say(count=application.count)
                case "state":
                    say(
                        digest=await asyncio.to_thread(application.digest),
                        count=application.count,
                        counts=group.status().counts,
                    )
        await group.stop()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def say(**about: Any) -> None:
    print(json.dumps(about), flush=True)


class Member:
    """A member's process."""

    def __init__(self, **about: Any) -> None:
        command = [sys.executable, "-m", "bench.live.transfer", "--member", json.dumps(about)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "a member ended by itself"
        told: dict[str, Any] = json.loads(line)
        return told

    def ask(self, word: str) -> dict[str, Any]:
        self.tell(word)
        return self.hear()


def wait_for_quiet(members: list[Member]) -> None:
    """Wait until all have delivered the same number, and no more comes."""
    before: set[int] = set()
    give_up_at = time.monotonic() + _QUIET_S
    while time.monotonic() < give_up_at:
        counts = {member.ask("count")["count"] for member in members}
        if len(counts) == 1 and counts == before:
            return
        before = counts
        time.sleep(0.5)


def measure(**about: Any) -> dict[str, Any]:
    addresses, key = free_addresses(3), os.urandom(16).hex()
    members: list[Member] = []
    with tempfile.TemporaryDirectory() as folder:

        def start(own: str, elder: bool) -> Member:
            peers = [peer for peer in addresses if peer != own]
            files = {"file": f"{folder}/{own}", "state": folder}
            return Member(bind=own, peers=peers, key=key, elder=elder, **files, **about)

        try:
            members += [start(own, True) for own in addresses[:2]]
            for member in members:
                member.hear()
            time.sleep(2)
            for member in members:
                member.ask("measure")
            began = time.monotonic()
            members.append(start(addresses[2], False))
            members[2].hear()
            took_s = time.monotonic() - began
            time.sleep(2)
            for member in members:
                member.tell("silence")
            grown = [member.hear() for member in members]
            wait_for_quiet(members)
            states = [member.ask("state") for member in members]
        finally:
            for member in members:
                if member.process.poll() is None:
                    member.tell("")
                member.process.wait(20)
    return {
        "mib": about["mib"],
        "ordering": about["ordering"],
        "messages_per_s": 2 * about["rate"],
        "seconds": round(took_s, 1),
        "more_mib": [round(one["more_kib"] / 1_024, 1) for one in grown],
        "stopped_s": [round(one["stopped"][0], 3) for one in grown],
        "stopped_at_s": [round(one["stopped"][1] - began, 1) for one in grown],
        "stood_still_s": [round(one["stood_still"][0], 3) for one in grown],
        "stood_still_at_s": [round(one["stood_still"][1] - began, 1) for one in grown],
        "delivered": [one["count"] for one in states],
        "alike": len({one["digest"] for one in states}) == 1,
        "views": [one["counts"]["views"] for one in states],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=1_024, help="of the state")
    parser.add_argument("--rate", type=int, default=500, help="messages a second of each of the two")
    parser.add_argument("--bytes", type=int, default=200, help="of a message")
    parser.add_argument("--ordering", default="total")
    parser.add_argument("--suspect-ms", type=int, default=500, help="a silence of this length ends a member's view")
    parser.add_argument("--member", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.member:
        asyncio.run(take_part(json.loads(args.member)))
        return 0
    about = {key: value for key, value in vars(args).items() if key != "member"}
    result = measure(**about)
    print(json.dumps(result))
    kept = max(result["more_mib"]) <= MORE_MIB_MAX and max(result["stopped_s"]) <= STOPPED_S_MAX
    return 0 if result["alike"] and kept else 1


if __name__ == "__main__":
    sys.exit(main())
