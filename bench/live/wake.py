"""What waking up costs a Python process: python -m bench.live.wake [--processes 4]

A little work of the kind that a member does with a packet (decode, decrypt, look up, put in order) is timed in a loop,
and then each time after a sleep of 0.7 ms. What it takes longer then is what the caches lost meanwhile, to the kernel
and to the other processes.
"""

from __future__ import annotations

import argparse
import heapq
import json
import multiprocessing
import time
from collections.abc import Callable

import msgspec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_SLEEP_S = 0.0007
_TIMES = 1_500


class _Record(msgspec.Struct, array_like=True):
    number: int
    payload: bytes


_cipher = AESGCM(bytes(16))
_decode = msgspec.msgpack.Decoder(_Record).decode


def work() -> None:
    for number in range(5):
        nonce = number.to_bytes(12, "big")
        sealed = _cipher.encrypt(nonce, msgspec.msgpack.encode(_Record(number, b"x" * 64)), b"head")
        record = _decode(_cipher.decrypt(nonce, sealed, b"head"))
        by_number: dict[int, list[_Record]] = {}
        for other in range(6):
            by_number.setdefault(other, []).append(record)
        queue: list[tuple[int, int, _Record]] = []
        for other in range(4):
            heapq.heappush(queue, (other, number, record))
        while queue:
            heapq.heappop(queue)


def cpu_us(do: Callable[[], None]) -> float:
    before = time.process_time_ns()
    for _ in range(_TIMES):
        do()
    return (time.process_time_ns() - before) / _TIMES / 1e3


def measure(_: int) -> dict[str, float]:
    def sleep() -> None:
        time.sleep(_SLEEP_S)

    def sleep_and_work() -> None:
        time.sleep(_SLEEP_S)
        work()

    cpu_us(work)
    hot, asleep, woken = cpu_us(work), cpu_us(sleep), cpu_us(sleep_and_work)
    return {"sleep_us": asleep, "work_us": hot, "work_when_woken_us": woken - asleep}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=4)
    args = parser.parse_args()
    with multiprocessing.get_context("spawn").Pool(args.processes) as pool:
        for said in pool.map(measure, range(args.processes), chunksize=1):
            print(json.dumps({key: round(value, 1) for key, value in said.items()}))


if __name__ == "__main__":
    main()
