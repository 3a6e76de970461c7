"""The same four members in one process, whose caches stay warm: python -m bench.live.together [--orderings fifo,total]

Beside `python -m bench.live --only-rate` it shows what it costs that each member is a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time

from bench.live.addresses import group_here
from bench.live.member import Listener, cpu_s, pace

MEMBERS = 4
_SIZE = 64


async def measure(ordering: str, rate: int, seconds: float) -> float:
    """Return the CPU microseconds that a delivery takes."""
    listener = Listener()
    async with group_here(MEMBERS, ordering) as groups:
        listening = [asyncio.create_task(listener.messages(group)) for group in groups]
        await asyncio.sleep(0.5)
        cpu, delivered = cpu_s(), listener.delivered
        await asyncio.gather(*(pace(group, _SIZE, rate, time.monotonic() + seconds) for group in groups))
        cpu, delivered = cpu_s() - cpu, listener.delivered - delivered
        for task in listening:
            task.cancel()
    return cpu / delivered * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orderings", default="fifo,causal,sequencer,total,tomp")
    parser.add_argument("--rate", type=int, default=700, help="of each member; one core has to do for all")
    parser.add_argument("--seconds", type=float, default=2.0)
    args = parser.parse_args()
    for ordering in args.orderings.split(","):
        cost = asyncio.run(measure(ordering, args.rate, args.seconds))
        print(json.dumps({"ordering": ordering, "rate": args.rate, "cpu_us_per_delivery": round(cost, 1)}), flush=True)


if __name__ == "__main__":
    main()
