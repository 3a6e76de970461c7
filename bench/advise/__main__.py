"""What `antiphon advise` predicts beside what a live group does: python -m bench.advise [--need causal] [--rate 20] ...

Four live members, each with its own UDP sockets on the loopback address, run the composition that was recommended, in
real time; each packet is held up for as long as the network in question would take. That the program wakes up late and
so holds packets longer is measured first, on the same machine, and given to the advisor with the network's latency.
The median time to deliver (at others), the median time to stable and the bytes a second of each member are compared.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import socket
import statistics
import struct
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import antiphon
from antiphon.live.host import ThisHost
from antiphon.live.session import PlainSession
from antiphon.sim.advise import GOALS, Estimate, Goal, Question, advise
from bench.live.path import free_addresses

MEMBERS = 4
GROUP = "advice"
_STAMP = struct.Struct("<q")


class Measured(NamedTuple):
    """What a live group did."""

    deliver_ms: float
    stable_ms: float
    kb_per_s: float


class SlowSocket(socket.socket):
    """A UDP socket whose packets leave after a random time; it counts them while `counting`."""

    low_s = high_s = 0.0
    counting = False
    sent_bytes = 0
    late_s: list[float] = []  # noqa: RUF012 - one list for all
    chance = random.Random(1)

    def sendto(self, packet: bytes, to: Any) -> int:  # type: ignore[override]
        cls = SlowSocket
        if cls.counting:
            cls.sent_bytes += len(packet)
        loop = asyncio.get_running_loop()
        loop.call_at(due := loop.time() + cls.chance.uniform(cls.low_s, cls.high_s), self._leave, packet, to, due)
        return len(packet)

    def _leave(self, packet: bytes, to: Any, due: float) -> None:
        if self.fileno() < 0:
            return
        if SlowSocket.counting:
            SlowSocket.late_s.append(asyncio.get_running_loop().time() - due)
        with contextlib.suppress(OSError):  # lost
            super().sendto(packet, to)


class SlowHost(ThisHost):
    """This machine with a slow network."""

    def socket(self, family: int) -> socket.socket:
        one = SlowSocket(family, socket.SOCK_DGRAM)
        one.setblocking(False)
        return one


async def live(question: Question, best: Estimate, seconds: float) -> Measured:
    """Run the group that was recommended, and measure it once all members are there."""
    loop = asyncio.get_running_loop()
    loop.antiphon_host = SlowHost()  # type: ignore[attr-defined]
    addresses = free_addresses(question.members)
    candidate = best.candidate
    stability: dict[str, Any] = {}
    if candidate.stability is not None:
        stability = {"stability": candidate.stability, "stability_options": candidate.options}
    delivered: list[float] = []
    stable: list[float] = []
    SlowSocket.late_s.clear()

    async def listen(group: antiphon.Group, own: str) -> None:
        async for event in group:
            if isinstance(event, antiphon.Message) and SlowSocket.counting and event.sender != own:
                delivered.append((time.monotonic_ns() - _STAMP.unpack_from(event.payload)[0]) / 1e6)  # noqa: PERF401

    async def until_stable(receipt: antiphon.Receipt, began: int) -> None:
        await receipt.stable()
        stable.append((time.monotonic_ns() - began) / 1e6)

    async def send(group: antiphon.Group, rank: int, until: float) -> None:
        chance, due = random.Random(rank), time.monotonic()
        waiting = []
        while (due := due + chance.uniform(0.5, 1.5) / question.rate_per_s) < until:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            began = time.monotonic_ns()
            receipt = await group.send(_STAMP.pack(began).ljust(question.payload, b"."))
            waiting.append(asyncio.create_task(until_stable(receipt, began)))
        await asyncio.wait(waiting, timeout=5)

    with tempfile.TemporaryDirectory() as state:
        groups = [
            antiphon.join(
                GROUP,
                bind=own,
                peers=[peer for peer in addresses if peer != own],
                ordering=candidate.ordering,
                offload=False,
                state=Path(state) / str(rank),
                **stability,
            )
            for rank, own in enumerate(addresses)
        ]
        await asyncio.gather(*(group.__aenter__() for group in groups))
        listening = [asyncio.create_task(listen(*one)) for one in zip(groups, addresses, strict=True)]
        while any(len(group.status().members) < question.members for group in groups):
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
        SlowSocket.counting, SlowSocket.sent_bytes = True, 0
        until = time.monotonic() + seconds
        sending = [asyncio.create_task(send(group, rank, until)) for rank, group in enumerate(groups)]
        await asyncio.sleep(seconds)
        sent_bytes = SlowSocket.sent_bytes
        await asyncio.gather(*sending)
        SlowSocket.counting = False
        await asyncio.gather(*(group.stop() for group in groups))
        await asyncio.gather(*listening)
    each = sent_bytes / 1000 / question.members / seconds
    return Measured(statistics.median(delivered), statistics.median(stable), each)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--need", default="causal", help="fifo, causal or total (causal)")
    parser.add_argument("--rate", type=float, default=20.0, help="messages a second of each member (20)")
    parser.add_argument("--payload", type=int, default=64)
    parser.add_argument("--latency-ms", type=float, nargs=2, default=(10.0, 30.0), metavar=("LOW", "HIGH"))
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--goals", nargs="+", default=[*GOALS], choices=[*GOALS])
    options = parser.parse_args()
    low, high = options.latency_ms
    SlowSocket.low_s, SlowSocket.high_s = low / 1000, high / 1000

    def ask(goal: Goal, late_ms: float) -> Question:
        network = f"uniform {low + late_ms:.3f}ms {high + late_ms:.3f}ms"
        return Question(
            members=MEMBERS,
            need=options.need,
            rate_per_s=options.rate,
            payload=options.payload,
            latency=network,
            goal=goal,
            envelope_bytes=PlainSession.overhead + 1,
        )

    first = ask("deliver", 0.0)
    asyncio.run(live(first, advise(first).best, min(3.0, options.seconds)))
    late_ms = 1000 * statistics.median(SlowSocket.late_s)
    print(f"packets leave {late_ms:.2f} ms later than asked for (median): given to the advisor")
    print(f"{'goal':8} {'recommended':44} {'':10} {'deliver ms':>11} {'stable ms':>10} {'kB/s each':>10}")
    missed = 0
    for goal in options.goals:
        question = ask(goal, late_ms)
        best = advise(question).best
        now = asyncio.run(live(question, best, options.seconds))
        assert best.deliver_ms is not None
        told = Measured(best.deliver_ms, best.stable_ms, best.kb_per_s)
        name = f"{best.candidate.name} {best.candidate.settings}"
        for label, row in (("predicted", told), ("live", now)):
            print(f"{goal:8} {name[:44]:44} {label:10} {row[0]:11.2f} {row[1]:10.2f} {row[2]:10.2f}")
        ratios = [one / other for one, other in zip(told, now, strict=True)]
        print(f"{'':53} {'ratio':10} {ratios[0]:11.2f} {ratios[1]:10.2f} {ratios[2]:10.2f}", flush=True)
        missed += any(not 0.75 <= one <= 1.25 for one in ratios)
    print(f"{missed} of {len(options.goals)} goals have a ratio outside 0.75 to 1.25")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
