"""One member of the same job on pyzmq publish/subscribe: no order, no recovery, no encryption; an upper bound."""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time
from typing import Any

import zmq

from bench.live.member import _STAMP, cpu_s


def main() -> None:
    about: dict[str, Any] = json.loads(sys.argv[1])
    context = zmq.Context()
    out, inward = context.socket(zmq.PUB), context.socket(zmq.SUB)
    out.bind(f"tcp://{about['bind']}")
    inward.setsockopt(zmq.SUBSCRIBE, b"")
    for peer in (about["bind"], *about["peers"]):
        inward.connect(f"tcp://{peer}")
    size, rate = about["size"], about["rate"]
    delivered, latencies_us = 0, []

    def listen() -> None:
        nonlocal delivered
        while True:
            payload = inward.recv()
            delivered += 1
            if rate and delivered % about["thin"] == 0:
                latencies_us.append((time.monotonic_ns() - _STAMP.unpack_from(payload)[0]) // 1_000)

    threading.Thread(target=listen, daemon=True).start()
    time.sleep(1)
    print("ready", flush=True)
    start = float(sys.stdin.readline())
    time.sleep(max(0.0, start - time.monotonic()))
    cpu, before, sent = cpu_s(), delivered, 0
    payload, until = b"x" * size, start + about["seconds"]
    while (now := time.monotonic()) < until:
        if rate:
            while sent < (now - start) * rate:
                out.send(_STAMP.pack(time.monotonic_ns()).ljust(size, b"."))
                sent += 1
            time.sleep(max(0.0, start + sent / rate - time.monotonic()))
        else:
            for _ in range(256):
                out.send(payload)
            sent += 256
    said = {
        "cpu_s": cpu_s() - cpu,
        "delivered": delivered - before,
        "sent": sent,
        "latencies_us": latencies_us,
        "rss_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "counts": {},
    }
    print(json.dumps(said), flush=True)
    sys.stdin.readline()  # until all are done
    os._exit(0)  # the listening thread waits in its socket; there is nothing to tidy up


if __name__ == "__main__":
    main()
