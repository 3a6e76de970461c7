"""What it costs, and how long it takes until stable, that large groups report less often: `crowd` of vector-ack.

    python -m bench.stability.crowd --sizes 4,8,16,64 --crowds 0,4,8

Up to eight members send 64 bytes, 20 times a second on average; links take 0.1 to 1 ms; all else is as live groups have
it. Counted are all datagrams, those that carry messages and repeat them among them.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

from antiphon.protocol.machine import MILLISECOND, SECOND
from antiphon.sim.cluster import simulate
from antiphon.sim.network import NetworkOptions
from antiphon.sim.scenario import Scenario, Workload

SENDERS = 8


def measure(size: int, crowd: int, ordering: str, messages: int) -> tuple[float, float, float]:
    """Return the median time to stable in ms, datagrams per second that each member takes in, and CPU seconds."""
    scenario = Scenario(
        members=size,
        messages=messages,
        ordering=ordering,
        stability_options={"crowd": crowd},
        workload=Workload(interval="exponential 50ms", payload=64, senders=list(range(min(size, SENDERS)))),
        network=NetworkOptions(latency="uniform 100us 1ms"),
    )
    began = time.process_time()
    run = simulate(scenario, 1)
    cpu_s = time.process_time() - began
    assert run.finished
    waits: list[int] = []
    for log in run.logs:
        sent: list[int] = []  # when this member sent each of its own messages
        marked = 0
        for event in log.rows("bench"):
            if event.sender == event.member and event.event == "send":
                sent.append(event.time_ns)
            elif event.sender == event.member and event.event == "stable" and event.seq is not None:
                waits += [event.time_ns - at for at in sent[marked : event.seq]]
                marked = event.seq
    taken_in = run.stats["network"]["datagrams"] / size / (run.ended_ns / SECOND)
    return median(waits) / MILLISECOND, taken_in, cpu_s


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.stability.crowd", description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="4,8,16,64")
    parser.add_argument("--crowds", default="0,4,8")
    parser.add_argument("--ordering", default="fifo")
    parser.add_argument("--messages", type=int, default=20, help="of each sender")
    args = parser.parse_args()
    print("| n | crowd | ms to stable | datagrams taken in per second, each | CPU s |\n|---|---|---|---|---|")
    for size in map(int, args.sizes.split(",")):
        for crowd in map(int, args.crowds.split(",")):
            stable_ms, taken_in, cpu_s = measure(size, crowd, args.ordering, args.messages)
            print(f"| {size} | {crowd} | {stable_ms:.0f} | {taken_in:,.0f} | {cpu_s:.1f} |", flush=True)


if __name__ == "__main__":
    main()
