"""Functions of `time` and other modules, replaced for this thread while a simulated world runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final, NoReturn

from antiphon.protocol.machine import SECOND, Duration
from antiphon.sim.kernel import Kernel
from antiphon.testing.errors import NotSimulated

EPOCH_S: Final = 1_000_000_000  # what time.time() says when virtual time begins: 2001-09-09


@contextmanager
def virtual_clocks(kernel: Kernel, step_ns: Callable[[], Duration]) -> Iterator[None]:
    """Let the functions of `time` follow the kernel; `step_ns` says how far the wall clock was set."""

    def sleep(seconds: float) -> NoReturn:
        raise NotSimulated(f"time.sleep({seconds}) would stop the loop; write await asyncio.sleep({seconds})")

    functions: dict[str, Callable[..., Any]] = {
        "time": lambda: EPOCH_S + (kernel.now + step_ns()) / SECOND,
        "time_ns": lambda: EPOCH_S * SECOND + kernel.now + step_ns(),
        "monotonic": lambda: kernel.now / SECOND,
        "monotonic_ns": lambda: kernel.now,
        "perf_counter": lambda: kernel.now / SECOND,
        "perf_counter_ns": lambda: kernel.now,
        "sleep": sleep,
    }
    with replaced(time, functions):
        yield


@contextmanager
def replaced(module: ModuleType, functions: dict[str, Callable[..., Any]]) -> Iterator[None]:
    """Let this thread see other functions of a module for a while; all other threads see the real ones."""
    real = {name: getattr(module, name) for name in functions}
    for name, function in functions.items():
        setattr(module, name, _in_this_thread(function, real[name]))
    try:
        yield
    finally:
        for name, function in real.items():
            setattr(module, name, function)


def _in_this_thread(virtual: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
    thread = threading.get_ident()

    def chosen(*args: Any) -> Any:
        return virtual(*args) if threading.get_ident() == thread else real(*args)

    return chosen
