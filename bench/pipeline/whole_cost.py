"""What a command costs with all that it starts: CPU seconds and peak memory of the whole tree of processes.

    python -m bench.pipeline.whole_cost antiphon check OUT --from otlp

Each process is looked at five times a second, so that the last moments of short ones may be missed; Spark's JVM and its
Python workers are long ones.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def sample(session: int, cpu: dict[tuple[int, int], float]) -> int:
    """Note the CPU seconds of every process of a session; return the memory that all hold, each page shared out."""
    memory = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) != session:
                continue
            cpu[int(entry.name), int(fields[19])] = (int(fields[11]) + int(fields[12])) / TICK
            rollup = (entry / "smaps_rollup").read_text().splitlines()
            memory += next(int(line.split()[1]) for line in rollup if line.startswith("Pss:")) * 1024
        except (OSError, StopIteration, IndexError):
            continue
    return memory


def main() -> None:
    begun = time.monotonic()
    child = subprocess.Popen(sys.argv[1:], start_new_session=True)
    cpu: dict[tuple[int, int], float] = {}
    peak = 0
    while child.poll() is None:
        peak = max(peak, sample(child.pid, cpu))
        time.sleep(0.2)
    print(
        f"exit {child.returncode}; {sum(cpu.values()):.1f} CPU-s in {len(cpu)} processes, "
        f"{time.monotonic() - begun:.1f} s, peak {peak / 2**20:,.0f} MiB"
    )


if __name__ == "__main__":
    main()
