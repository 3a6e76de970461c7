"""What one vector acknowledgment costs to take in: `python -m bench.stability.reports`.

The worst order for its minima: members report in turn, each report higher than the last in every entry, so that the
reporter is the least of all in every column and each report moves every minimum.
"""

from __future__ import annotations

import random
import time

import numpy as np

from antiphon.protocol.parts import PartContext
from antiphon.protocol.stability.rounds import VectorOptions
from antiphon.protocol.stability.vector_ack import Report, VectorAck
from antiphon.protocol.stability.vectors import pack_whole

LAPS = 4


def microseconds_a_report(size: int) -> float:
    part = VectorAck(PartContext(0, size, random.Random(0)), VectorOptions())
    part.held = np.full(size, 10**6, np.int64)
    held = np.zeros(size, np.int64)
    reports = []
    for lap in range(LAPS):
        for source in range(1, size):
            held += 1
            reports.append((source, Report(lap + 1, False, pack_whole(held), False)))
    began = time.process_time()
    for source, report in reports:
        part.receive(source, report, 0)
    return (time.process_time() - began) / len(reports) * 1e6


if __name__ == "__main__":
    for size in (8, 64, 512, 2048):
        print(f"n = {size}: {microseconds_a_report(size):.0f} us a report")
