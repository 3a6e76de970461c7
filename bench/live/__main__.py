"""What a delivery costs in a live group: python -m bench.live [--seconds 5] [--orderings fifo,causal,total] ...

Four member processes on the loopback address, all sending, all delivering: one `send` per message, `async for` per
message, encryption on. First all flood; then each sends 1,000 messages a second and the time to every delivery is
taken. CPU is that of all four processes together.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import product
from typing import Any

from bench.live.addresses import free_addresses
from bench.live.peers import PEERS, measure_peers
from bench.live.soak import soak

MEMBERS = 4
_START_S = 25  # for members that never find each other


def measure(
    program: str = "bench.live.member",
    *,
    started: Callable[[list[int]], None] | None = None,
    stopping: Callable[[], None] | None = None,
    **about: Any,
) -> dict[str, Any]:
    """Run one group; give what its members say, summed up."""
    addresses = free_addresses(MEMBERS)
    key = os.urandom(16).hex() if about.pop("encrypted") else ""
    source = about.pop("source", None)
    environment = os.environ if source is None else {**os.environ, "PYTHONPATH": source}
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                program,
                json.dumps({**about, "key": key, "bind": own, "peers": [peer for peer in addresses if peer != own]}),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for own in addresses
    ]
    watch = threading.Timer(_START_S + about["seconds"], lambda: [process.kill() for process in processes])
    watch.start()
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", "a member did not start"
        if started is not None:
            started([process.pid for process in processes])
        _tell(processes, f"{time.monotonic() + 0.5}\n")
        said = [json.loads(process.stdout.readline()) for process in processes if process.stdout is not None]
        if stopping is not None:
            stopping()
        _tell(processes, "done\n")
    finally:
        watch.cancel()
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
    delivered, cpu_s = sum(one["delivered"] for one in said), sum(one["cpu_s"] for one in said)
    latencies = sorted(latency for one in said for latency in one["latencies_us"])
    each_ms = len(said) * about["seconds"] * 1e3
    return {
        "delivered_per_s": round(delivered / about["seconds"]),
        "cpu_us_per_delivery": round(cpu_s / delivered * 1e6, 3) if delivered else None,
        "p50_ms": statistics.median(latencies) / 1e3 if latencies else None,
        "p99_ms": latencies[len(latencies) * 99 // 100] / 1e3 if latencies else None,
        "sleeps_per_ms": round(sum(one.get("sleeps", 0) for one in said) / each_ms, 2),  # of each member
        "packets_sent_per_ms": round(sum(one.get("packets", 0) for one in said) / each_ms, 2),
        "rss_mib": max(one["rss_kib"] for one in said) // 1024,
        "retransmissions": sum(one["counts"].get("retransmissions", 0) for one in said),
        "fragments_again": sum(one["counts"].get("fragments-again", 0) for one in said),
        "views": max(one["counts"].get("views", 0) for one in said),
    }


def _tell(processes: list[subprocess.Popen[str]], line: str) -> None:
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(line)
        process.stdin.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--orderings", default="fifo,causal,total")
    parser.add_argument("--sizes", default="64,1024")
    parser.add_argument("--rate", type=int, default=1_000, help="of the latency runs; 0: none")
    parser.add_argument("--plaintext", action="store_true", help="no key")
    parser.add_argument("--fixed", action="store_true", help="no views")
    parser.add_argument("--offload", action="store_true", help="let the kernel cut and gather packets")
    parser.add_argument("--multicast", metavar="GROUP:PORT", help="what goes to all goes once, to this IPv4 group")
    parser.add_argument("--only-flood", action="store_true")
    parser.add_argument("--versions", default="", metavar="FOLDER,...", help="other versions' sources, in the same run")
    parser.add_argument("--only-rate", action="store_true", help="no flood")
    parser.add_argument("--peers", default="", help=f"other systems beside it, or all: {','.join(PEERS)}")
    parser.add_argument(
        "--soak", type=float, metavar="MINUTES", help="instead: run so long, and see that memory is flat"
    )
    args = parser.parse_args()
    sizes = [int(size) for size in args.sizes.split(",")]
    rates = (0,) if args.only_flood or not args.rate else (args.rate,) if args.only_rate else (0, args.rate)
    how = {
        "encrypted": not args.plaintext,
        "views": not args.fixed,
        "offload": None if args.offload else False,
        "multicast": args.multicast,
    }
    if args.soak:
        flat = True
        for ordering, size, rate in product(args.orderings.split(","), sizes, rates):
            result = soak(measure, args.soak, ordering=ordering, size=size, rate=rate, thin=10, **how)
            print(json.dumps({"ordering": ordering, "bytes": size, "rate": rate or "flood", **result}), flush=True)
            flat &= result["flat"]
        sys.exit(0 if flat else 1)
    peers = list(PEERS) if args.peers == "all" else [name for name in args.peers.split(",") if name]
    for size, rate in product(sizes, rates):
        for row in measure_peers(measure, peers, size=size, rate=rate, seconds=args.seconds):
            print(json.dumps(row), flush=True)
    for ordering in args.orderings.split(","):
        for size, rate, source in product(sizes, rates, [None, *filter(None, args.versions.split(","))]):
            result = measure(
                source=source,
                ordering=ordering,
                size=size,
                seconds=args.seconds,
                rate=rate,
                thin=10,
                timed=rate > 0,
                **how,
            )
            about = {"ordering": ordering, "bytes": size, "rate": rate or "flood", "offload": args.offload}
            if source is not None:
                about["version"] = source
            print(json.dumps({**about, **result}), flush=True)


if __name__ == "__main__":
    main()
