"""One member of the same job on pysyncobj (Raft): every message is a command in the replicated log. No encryption."""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time
from typing import Any

from pysyncobj import SyncObj, SyncObjConf, replicated

from bench.live.member import _STAMP, cpu_s

_OUTSTANDING_MAX = 1_000  # own commands that may wait; the library's queue would take any number


class Log(SyncObj):  # type: ignore[misc]
    def __init__(self, own: str, others: list[str], thin: int) -> None:
        self.delivered, self.timed, self.latencies_us = 0, False, []
        self._thin = thin
        super().__init__(own, others, SyncObjConf(commandsQueueSize=10 * _OUTSTANDING_MAX))

    @replicated  # type: ignore[untyped-decorator]
    def put(self, payload: bytes) -> None:
        self.delivered += 1
        if self.timed and self.delivered % self._thin == 0:
            self.latencies_us.append((time.monotonic_ns() - _STAMP.unpack_from(payload)[0]) // 1_000)


def main() -> None:
    about: dict[str, Any] = json.loads(sys.argv[1])
    log = Log(about["bind"], about["peers"], about["thin"])
    while not log.isReady():
        time.sleep(0.05)
    time.sleep(1)  # for the others
    print("ready", flush=True)
    start = float(sys.stdin.readline())
    time.sleep(max(0.0, start - time.monotonic()))
    size, rate, until = about["size"], about["rate"], start + about["seconds"]
    room = threading.Semaphore(_OUTSTANDING_MAX)
    cpu, before, sent, log.timed = cpu_s(), log.delivered, 0, rate > 0
    while (now := time.monotonic()) < until:
        while sent < ((now - start) * rate if rate else sent + 1) and room.acquire(timeout=0.1):
            log.put(_STAMP.pack(time.monotonic_ns()).ljust(size, b"."), callback=lambda *_: room.release())
            sent += 1
            if not rate:
                break
        if rate:
            time.sleep(max(0.0, start + sent / rate - time.monotonic()))
    said = {
        "cpu_s": cpu_s() - cpu,
        "delivered": log.delivered - before,
        "sent": sent,
        "latencies_us": log.latencies_us,
        "rss_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "counts": {},
    }
    print(json.dumps(said), flush=True)
    sys.stdin.readline()  # until all are done
    os._exit(0)  # its thread works on what is left


if __name__ == "__main__":
    main()
