"""An asyncio loop in virtual time: one heap of callbacks, whose clock jumps to whatever comes next.

Everything that runs is one action of the simulator's kernel, so that callbacks, timers and datagrams share one order.
Nothing real happens: input, output and threads are refused with a word on what to do instead.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import random
import sys
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, TypeVarTuple, Unpack

from antiphon.protocol.machine import SECOND, Duration, Instant
from antiphon.sim.kernel import Kernel
from antiphon.testing.errors import NotSimulated, Stuck
from antiphon.testing.process import Incarnation, present_incarnation
from antiphon.testing.refusals import NothingReal, refused
from antiphon.testing.sockets import SocketReader
from antiphon.testing.virtual_clocks import replaced, virtual_clocks

if TYPE_CHECKING:
    from antiphon.testing.host import SimulatedHost

_SLICE_NS: Final = SECOND // 4
_CALLBACKS_AT_ONE_INSTANT_MAX: Final = 200_000

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


class _Future(asyncio.Future[Any]):
    """A future that hashes by its number, so that sets of futures have the same order in every run."""

    def __init__(self, number: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._number = number

    def __hash__(self) -> int:
        return self._number


class _Task(asyncio.Task[Any]):
    """The same for a task; it knows its incarnation."""

    def __init__(
        self, number: int, incarnation: Incarnation | None, coro: Coroutine[Any, Any, Any], **options: Any
    ) -> None:
        self._number, self.incarnation = number, incarnation  # first: asyncio hashes the task while it is being made
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


class _Timer(asyncio.TimerHandle):
    """A timer that is counted as long as it is pending, if it is the application's."""

    __slots__ = ("counts",)
    counts: bool


class VirtualLoop(NothingReal):
    """Runs an application's asyncio code in virtual time."""

    def __init__(
        self, kernel: Kernel, seed: int, *, limit_ns: Duration, patience_ns: Duration, inline_threads: bool
    ) -> None:
        self.kernel = kernel
        self.antiphon_host: SimulatedHost
        self._limit_ns, self._patience_ns, self._inline_threads = limit_ns, patience_ns, inline_threads
        self._randomness = random.Random(f"{seed}/application").getstate()
        self._urandom = random.Random(f"{seed}/urandom")
        self._numbers = 0
        self._tasks: weakref.WeakValueDictionary[int, _Task] = weakref.WeakValueDictionary()  # by number
        # of what reads sockets
        self._incarnations: weakref.WeakKeyDictionary[object, Incarnation] = weakref.WeakKeyDictionary()
        # begun and not finished, each with the incarnation that began it
        self._generators: weakref.WeakKeyDictionary[AsyncGenerator[Any, Any], Incarnation | None]
        self._generators = weakref.WeakKeyDictionary()
        self._stopping = self._running = self._closed = False
        self._timers = 0  # of the application, not of the protocols, which beat for ever
        self._busy_at: Instant = 0  # when the application last did something
        self._instant: Instant = -1
        self._at_this_instant = 0
        self._handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None = None
        self.errors: list[BaseException] = []  # of callbacks and of tasks that nobody asked
        self.explain: Callable[[], str] = str  # who waits for what

    # Running

    def run_until_complete(self, future: Any) -> Any:
        """Run until a future or coroutine is done, and give its result."""
        __tracebackhide__ = True
        task = asyncio.ensure_future(future, loop=self)
        task.add_done_callback(self._end)
        try:
            self.run_forever()
        except BaseException:
            if task.done() and not task.cancelled():
                task.exception()  # the error that ended the run is the one that counts
            raise
        finally:
            task.remove_done_callback(self._end)
        return task.result()

    def _end(self, _: asyncio.Future[Any]) -> None:
        self.stop()

    def run_forever(self) -> None:
        """Run until `stop`, or until nothing can happen any more."""
        __tracebackhide__ = True
        with self._in_charge():
            self._stopping = False
            while not self._stopping:
                until = self.kernel.now + _SLICE_NS
                self.kernel.run(until)
                if self.errors:
                    raise self.errors.pop(0)
                if not self._stopping:
                    self._see_whether_anything_happens(until)

    def run_for(self, duration_ns: Duration, done: Callable[[], bool]) -> bool:
        """Run for some time, or until a condition holds, which is looked at now and then; return whether it holds."""
        end = self.kernel.now + duration_ns
        with self._in_charge():
            while not done() and self.kernel.now < end and not self.errors:
                until = self.kernel.now + _SLICE_NS
                self.kernel.run(until)
                if self.kernel.now < until:
                    break  # nothing is left to happen
        return done()

    def _see_whether_anything_happens(self, until: Instant) -> None:
        now = self.kernel.now
        if now < until or (not self._timers and now - self._busy_at >= self._patience_ns):
            raise Stuck(f"nothing is left to happen, and {self.explain()}")
        if now >= self._limit_ns:
            raise Stuck(f"still running after {now / SECOND:g} s of virtual time (its limit), and {self.explain()}")

    @contextmanager
    def _in_charge(self) -> Iterator[None]:
        """Make this the running loop of the thread, and its clock and randomness virtual."""
        if self._closed:
            raise RuntimeError("this loop is closed")
        if asyncio._get_running_loop() is not None:
            raise RuntimeError("a simulated world cannot run inside a running loop; call it where nothing is awaited")
        asyncio._set_running_loop(self)
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=self._begun, finalizer=self._finalize)
        outside = random.getstate()
        random.setstate(self._randomness)
        collects = gc.isenabled()
        gc.disable()  # when garbage is collected depends on all that ran before, and finalizers may run code
        self._running = True
        try:
            with (
                virtual_clocks(self.kernel, self.antiphon_host.step_ns),
                replaced(os, {"urandom": self._urandom.randbytes}),
            ):
                yield
        finally:
            self._running = False
            if collects:
                gc.enable()
            self._randomness = random.getstate()
            random.setstate(outside)
            sys.set_asyncgen_hooks(*hooks)
            asyncio._set_running_loop(None)

    def stop(self) -> None:
        """Stop after the callback that is running."""
        self._stopping = True
        self.kernel.stop()

    def is_running(self) -> bool:
        """Whether it runs now."""
        return self._running

    def is_closed(self) -> bool:
        """Whether it will never run again."""
        return self._closed

    def close(self) -> None:
        """Close the loop; tasks of crashed processes end without a warning."""
        self._closed = True
        self._report_forgotten_errors()
        for task in [task for task in self._tasks.values() if not task.done()]:
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # as asyncio itself says it
            with suppress(BaseException):  # nobody is there to hear it
                task.get_coro().close()

    # Callbacks

    def time(self) -> float:
        """Read the virtual clock, in seconds since the beginning."""
        return self.kernel.now / SECOND

    def call_soon(
        self, callback: Callable[[Unpack[_Ts]], object], *args: *_Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Call after what is due already."""
        handle = asyncio.Handle(callback, args, self, context)
        self._schedule(self.kernel.now, handle, callback, context)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[_Ts]], object], *args: *_Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Call after what is due already; there are no other threads."""
        if not self._running:
            raise NotSimulated("call_soon_threadsafe: a thread outside talks to a loop in virtual time; let it not")
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call some virtual seconds from now."""
        return self._call_at(self.kernel.now + max(0, round(delay * SECOND)), callback, args, context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call at a virtual time."""
        return self._call_at(max(self.kernel.now, round(when * SECOND)), callback, args, context)

    def _call_at(
        self,
        instant: Instant,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> asyncio.TimerHandle:
        handle = _Timer(instant / SECOND, callback, args, self, context)
        handle.counts = not self._schedule(instant, handle, callback, context)
        self._timers += handle.counts
        return handle

    def _schedule(
        self,
        instant: Instant,
        handle: asyncio.Handle,
        callback: Callable[..., object],
        context: contextvars.Context | None,
    ) -> bool:
        """Let a handle run at an instant; say whether its callback is the protocols', and not the application's."""
        target = getattr(callback, "__self__", None)
        of_protocol = _is_of_protocol(type(target).__module__)
        incarnation = present_incarnation.get() if context is None else context.get(present_incarnation)
        if incarnation is None and of_protocol:
            holder = getattr(target, "transport", target)
            incarnation = self._incarnations.get(getattr(holder, "port", holder))
        self.kernel.at(instant, self._run, (handle, incarnation, of_protocol))
        return of_protocol

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._forget(handle)

    def _forget(self, handle: asyncio.Handle) -> None:
        if type(handle) is _Timer and handle.counts:
            handle.counts = False
            self._timers -= 1

    def _run(self, scheduled: tuple[asyncio.Handle, Incarnation | None, bool]) -> None:
        handle, incarnation, of_protocol = scheduled
        if handle.cancelled():
            return
        self._forget(handle)
        if (
            incarnation is not None
            and (incarnation.crashed or incarnation.paused)
            and incarnation.stops(lambda: self._run(scheduled))
        ):
            return
        self._count_callback()
        if not of_protocol:
            self._busy_at = self.kernel.now
        handle._run()

    def add_reader(self, fd: Any, callback: Callable[[Unpack[_Ts]], object], *args: *_Ts) -> None:
        """Call whenever a simulated socket has something to read."""
        one = self.antiphon_host.network.socket_of(fd)
        if one is None:
            raise refused("add_reader")
        holder, handle = getattr(callback, "__self__", None), asyncio.Handle(callback, args, self)
        if one.incarnation is not None:
            self._incarnations.setdefault(holder, one.incarnation)
        incarnation = one.incarnation or self._incarnations.get(holder)

        def read() -> None:
            self._count_callback()
            handle._run()

        one.listen(SocketReader(one, incarnation, self.kernel, read))

    def remove_reader(self, fd: Any) -> bool:
        """Call no more."""
        one = self.antiphon_host.network.socket_of(fd)
        if one is None:
            return False
        return one.listen(None)

    def remove_writer(self, fd: Any) -> bool:
        """Nobody waits to write: a simulated socket always has room."""
        return False

    def _count_callback(self) -> None:
        if self.kernel.now != self._instant:
            self._instant, self._at_this_instant = self.kernel.now, 0
        self._at_this_instant += 1
        if self._at_this_instant > _CALLBACKS_AT_ONE_INSTANT_MAX:
            raise Stuck(f"the clock stands still: something spins without ever waiting, and {self.explain()}")

    # Tasks

    def _next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def create_future(self) -> asyncio.Future[Any]:
        """Make a future."""
        return _Future(self._next_number(), self)

    def create_task(
        self,
        coro: Any,
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
        **options: Any,
    ) -> asyncio.Task[Any]:
        """Make a task, of the incarnation that makes it."""
        number = self._next_number()
        incarnation = present_incarnation.get() if context is None else context.get(present_incarnation)
        task = _Task(number, incarnation, coro, loop=self, name=name or f"Task-{number}", context=context, **options)
        self._tasks[number] = task
        return task

    def pending(self, incarnation: Incarnation | None = None) -> list[asyncio.Task[Any]]:
        """Return the tasks that are not done, oldest first: an incarnation's own, or all that can go on."""
        return [
            task
            for task in self._tasks.values()
            if not task.done()
            and (
                task.incarnation is incarnation
                if incarnation is not None
                else not (task.incarnation and task.incarnation.crashed)
            )
        ]

    def set_task_factory(self, factory: Any) -> None:
        """Refuse: tasks of this loop are numbered."""
        raise NotSimulated("set_task_factory: the simulated loop makes its own tasks; set it only outside simulations")

    def get_task_factory(self) -> None:
        """There is none."""

    def _begun(self, generator: AsyncGenerator[Any, Any]) -> None:
        self._generators[generator] = present_incarnation.get()

    def _finalize(self, generator: AsyncGenerator[Any, Any]) -> None:
        self._generators.pop(generator, None)
        if self._running:
            self.call_soon(self.create_task, generator.aclose())

    async def shutdown_asyncgens(self) -> None:
        """Close the generators that were begun and not finished, but for those of crashed processes."""
        begun = list(self._generators.items())
        self._generators.clear()
        generators = [generator for generator, incarnation in begun if not (incarnation and incarnation.crashed)]
        ends = await asyncio.gather(*(generator.aclose() for generator in generators), return_exceptions=True)
        for generator, error in zip(generators, ends, strict=True):
            if isinstance(error, Exception):
                message = "an error while an asynchronous generator was closed"
                self.call_exception_handler({"message": message, "exception": error, "asyncgen": generator})

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """There is none."""

    # What goes wrong

    def get_debug(self) -> bool:
        """Debugging is off: it would look at real time."""
        return False

    def set_debug(self, enabled: bool) -> None:
        """Take no notice."""

    def set_exception_handler(
        self, handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None
    ) -> None:
        """Let the application see to errors of its callbacks."""
        self._handler = handler

    def get_exception_handler(self) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None:
        """Give the application's handler."""
        return self._handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """End the run with the error of a callback, or of a task that nobody awaited."""
        error, task = context.get("exception"), context.get("future")
        if isinstance(task, _Task) and task.incarnation is not None and task.incarnation.crashed:
            return  # whoever would have awaited it was stopped
        if error is not None and (context.keys() & {"task", "handle", "asyncgen"} or isinstance(task, _Task)):
            error.add_note(f"antiphon.testing: {context['message']}")
            self.fail(error)

    def _report_forgotten_errors(self) -> None:
        """Report the errors of tasks that nobody awaited and that are still in memory.

        asyncio reports such a task when it is freed. One that is part of a reference cycle, as a failed task often is,
        is freed by the garbage collector alone, which waits until the run is over.
        """
        for task in list(self._tasks.values()):
            if task.done() and task._log_traceback:  # true until somebody asks
                task._log_traceback = False
                self.call_exception_handler(
                    {"message": "Task exception was never retrieved", "exception": task.exception(), "future": task}
                )

    def fail(self, error: BaseException) -> None:
        """End the run with an error, as soon as the present callback is over."""
        self.errors.append(error)
        self.kernel.stop()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Tell the application's handler, or end the run."""
        if self._handler is None:
            self.default_exception_handler(context)
        else:
            self._handler(self, context)

    # What is real

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> list[Any]:
        """Return the name itself as the address: simulated hosts need no look-up."""
        name = "127.0.0.1" if host == "localhost" else host
        return [(0, 0, 0, "", (name, port))]

    def run_in_executor(self, executor: Any, func: Callable[[Unpack[_Ts]], _T], *args: *_Ts) -> asyncio.Future[_T]:
        """Refuse, or run the function here and now, if that was asked for."""
        if not self._inline_threads:
            raise NotSimulated(
                f"{getattr(func, '__qualname__', func)} in a thread: threads run in real time, so no seed could decide "
                f"the outcome; say inline_threads=True to have such functions run in place"
            )
        future = self.create_future()

        def run() -> None:
            if not future.cancelled():
                try:
                    future.set_result(func(*args))
                except Exception as error:
                    future.set_exception(error)

        self.call_soon(run)
        return future


@lru_cache(maxsize=1_024)
def _is_of_protocol(module: str) -> bool:
    """Say whether a callback's object, of a class of this module, is a live group's own: no step of the application."""
    return module.startswith("antiphon.live.")
