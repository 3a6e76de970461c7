"""One member of the same job on pyzmq publish/subscribe: no order, no recovery, no encryption; an upper bound."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

import zmq

from bench.live.member import cpu_s


def main() -> None:
    about: dict[str, Any] = json.loads(sys.argv[1])
    context = zmq.Context()
    out, inward = context.socket(zmq.PUB), context.socket(zmq.SUB)
    out.bind(f"tcp://{about['bind']}")
    inward.setsockopt(zmq.SUBSCRIBE, b"")
    for peer in (about["bind"], *about["peers"]):
        inward.connect(f"tcp://{peer}")
    delivered = 0

    def listen() -> None:
        nonlocal delivered
        while True:
            inward.recv()
            delivered += 1

    threading.Thread(target=listen, daemon=True).start()
    time.sleep(1)
    print("ready", flush=True)
    start = float(sys.stdin.readline())
    time.sleep(max(0.0, start - time.monotonic()))
    cpu, before, sent = cpu_s(), delivered, 0
    payload, until = b"x" * about["size"], start + about["seconds"]
    while time.monotonic() < until:
        for _ in range(256):
            out.send(payload)
        sent += 256
    said = {"cpu_s": cpu_s() - cpu, "delivered": delivered - before, "sent": sent, "latencies_us": [], "rss_kib": 0}
    print(json.dumps({**said, "counts": {}}), flush=True)
    sys.stdin.readline()
    os._exit(0)  # the listening thread waits in its socket; there is nothing to tidy up


if __name__ == "__main__":
    main()
