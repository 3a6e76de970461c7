"""`make bench`: run the quick benchmarks one after the other; each has its own command for more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
BENCHES = {
    "the simulator beside SimPy": ["-m", "bench.simulator"],
    "compiled kernels beside SimPy and ns-3": ["bench/kernels/run.py"],
    "what stability costs": ["-m", "bench.stability", "--sizes", "8", "64"],
    "repair on slow links and by receivers that overrun": ["-m", "bench.repair", "--quick"],
}


def main() -> int:
    failed = 0
    for title, command in BENCHES.items():
        print(f"\n== {title}: python {' '.join(command)}", flush=True)
        failed += subprocess.run([sys.executable, *command], cwd=ROOT).returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
