"""Whether memory stays flat: a group that sends for minutes, and what each of its processes takes, second by second."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

GROWTH_KIB_MAX = 1_024  # or a fiftieth, whichever is more: an allocator is never quite still


def soak(measure: Callable[..., dict[str, Any]], minutes: float, **about: Any) -> dict[str, Any]:
    """Run a group for so long; give what `measure` gives, and how each process grew after the first quarter."""
    samples: dict[int, list[int]] = {}
    over = threading.Event()

    def sample() -> None:
        while not over.wait(0.5):
            for pid, series in samples.items():
                series.append(_rss_kib(pid))

    watch = threading.Thread(target=sample, daemon=True)

    def started(pids: list[int]) -> None:
        samples.update((pid, []) for pid in pids)
        watch.start()

    result = measure(seconds=60 * minutes, started=started, stopping=over.set, timed=False, **about)
    growth = [_growth(series) for series in samples.values()]
    return {
        **{key: result[key] for key in ("delivered_per_s", "cpu_us_per_delivery", "views")},
        "minutes": minutes,
        "rss_kib": [series[-1] for series in samples.values()],
        "growth_kib": [after - before for before, after in growth],
        "flat": all(after - before <= max(GROWTH_KIB_MAX, before // 50) for before, after in growth),
    }


def _growth(series: list[int]) -> tuple[int, int]:
    """Compare the second quarter of a run with its last one."""
    quarter = max(1, len(series) // 4)
    return round(statistics.median(series[quarter : 2 * quarter])), round(statistics.median(series[-quarter:]))


def _rss_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
