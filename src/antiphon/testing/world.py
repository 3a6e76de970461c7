"""A simulated world: an application's own asyncio code, groups and all, under a seed, faults and virtual time.

    async def main(world):
        async with antiphon.join("orders", bind="a:1", peers=["b:1"]) as group: ...

    testing.run(main, seed=7, loss=0.1)

Inside, `antiphon.join` gives the very groups that run live; only their host is simulated. The same seed gives the same
run, to the byte. At the end the traces of all members are checked against what the groups promise.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import random
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, Unpack

from antiphon.errors import UsageError
from antiphon.live.group import Group
from antiphon.protocol.machine import SECOND, Duration
from antiphon.sim.distributions import duration
from antiphon.sim.kernel import Kernel
from antiphon.sim.network import NetworkOptions
from antiphon.testing.done import DoneFault
from antiphon.testing.faults import Faults, draw
from antiphon.testing.host import SimulatedHost
from antiphon.testing.loop import VirtualLoop
from antiphon.testing.options import Options, check_options
from antiphon.testing.process import Incarnation, Process, present_incarnation
from antiphon.testing.reduction import CALMED, DrawnNumber, Reduction
from antiphon.testing.surroundings import Surroundings
from antiphon.testing.trace import Run, Traces, is_settled
from antiphon.testing.waiting import explain
from antiphon.trace.event import Event

_SETTLING_NS: Duration = 10 * SECOND  # what is under way when the application ends may take so long

_WHOLE = Reduction()

_T = TypeVar("_T")


class World(Surroundings):
    """Everything that a simulated run consists of; made by `simulated` and by `run`."""

    def __init__(
        self,
        seed: int = 0,
        *,
        latency: str = "uniform 1ms 5ms",
        loss: float = 0.0,
        duplicate: float = 0.0,  # share of datagrams doubled
        reorder: float = 0.0,  # share of datagrams held back for up to 20 ms
        bandwidth: int = 0,  # bits per second of each link; 0: unlimited
        skew: str = "0",  # how far the members' clocks are off, at most
        faults: int | Faults = 0,  # how many are drawn by chance
        limit: str = "5min",  # virtual time after which a run is given up
        patience: str = "30s",  # virtual time without a step of the application after which it is stuck
        inline_threads: bool = False,  # run what the application gives to threads in place, instead of refusing it
        unexamined: Collection[str] = (),  # guarantees that need not have been examined
        reduced: Reduction = _WHOLE,  # what is left out of a seed's world, to make a failure smaller
    ) -> None:
        check_options({name: value for name, value in locals().items() if name not in ("self", "__class__")})
        self.seed, self.reduced = seed, reduced
        self.numbers: dict[str, DrawnNumber] = {}
        loss, duplicate, reorder = (
            0.0 if name in reduced.calm else share
            for name, share in (("loss", loss), ("duplicate", duplicate), ("reorder", reorder))
        )
        skew = "0" if "skew" in reduced.calm else skew
        network = NetworkOptions(latency=latency, loss=loss, duplicate=duplicate, reorder=reorder, bandwidth=bandwidth)
        self.faults = Faults(count=faults) if isinstance(faults, int) else faults
        self.faults.check()
        skew_ns = duration(skew, "skew")
        troubles = (loss, duplicate, reorder, skew_ns)
        self.troubled = [name for name, trouble in zip(CALMED, troubles, strict=True) if trouble]
        self._unexamined = frozenset(unexamined)
        kernel = Kernel()
        self._traces = Traces(lambda: kernel.now)
        host = SimulatedHost(kernel, seed, network, skew_ns, self._traces)
        super().__init__(kernel, host, clocks_agree=skew_ns == 0)
        self.loop = VirtualLoop(
            self.kernel,
            seed,
            limit_ns=duration(limit, "limit"),
            patience_ns=duration(patience, "patience"),
            inline_threads=inline_threads,
        )
        self.loop.antiphon_host, self.loop.explain = self.host, self._explain
        self.host.failed = self.loop.fail
        self._processes: dict[str, Process] = {}
        self._crashed: list[Incarnation] = []  # kept to the end, so that not even their `finally` runs
        self._pauses: dict[str, DoneFault] = {}  # by process, as long as it stands still
        self._known: set[str] = set()
        self._closed = False
        self._faults_over = draw(self, self.faults, reduced, random.Random(f"{seed}/faults"))

    def __repr__(self) -> str:
        return f"<simulated world of seed {self.seed} at {self.now:g} s>"

    # Running

    def run(self, main: Callable[..., Coroutine[Any, Any, _T]] | Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine, or a function that gives one, to its end in virtual time; it may take the world."""
        __tracebackhide__ = True  # from pytest: what matters is where the application failed
        if callable(main):
            main = main(self) if _takes_an_argument(main) else main()
        try:
            result: _T = self.loop.run_until_complete(main)
        except BaseException as error:
            error.add_note(f"antiphon.testing: seed {self.seed}, at {self.now:g} s of virtual time")
            raise
        return result

    def __enter__(self) -> World:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        __tracebackhide__ = True
        if error is None:
            self.close()
        else:
            with suppress(Exception):  # the first error is the one that counts
                self._end()

    def close(self) -> None:
        """End what still runs, let what is under way arrive, and check that every promise was kept.

        No process is crashed, paused or started again from here on, whatever was planned for later.
        """
        __tracebackhide__ = True
        if self._closed:
            return
        try:
            self._end()
            if self.loop.errors:
                raise self.loop.errors[0]
            if wrong := self.named - self._known - self.host.network.owners.keys():
                raise UsageError(
                    f"a fault names {min(wrong)!r}, which never joined; known are {', '.join(self._all())}"
                )
            for run in self._traces.runs.values():
                run.check(global_clock=self.clocks_agree, unexamined=self._unexamined)
        except Exception as error:
            error.add_note(f"antiphon.testing: seed {self.seed}, after {self.now:g} s of virtual time")
            raise

    def _end(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            for name in list(self._incarnations()):
                self.resume(name)
            self._traces.over()
            tasks = self.loop.pending()
            for task in tasks:
                task.cancel()
            self.loop.run_until_complete(self._ended(tasks))
            self.loop.run_for(_SETTLING_NS, self._is_settled)
            self._traces.end()
        finally:
            self.loop.close()

    async def _ended(self, tasks: Sequence[asyncio.Task[Any]]) -> None:
        if tasks:
            await asyncio.wait(tasks)  # an error that nobody asks for is told when the loop is closed
        await self.loop.shutdown_asyncgens()

    def _is_settled(self) -> bool:
        present: dict[str, list[Group]] = {}
        for group, run in self._traces.groups():
            present.setdefault(run.name, []).append(group)
        return all(map(is_settled, present.values()))

    # What there is to know

    @property
    def names(self) -> list[str]:
        """Who takes part in a group now: names of processes, and addresses of groups joined outside any."""
        return list(dict.fromkeys(member.incarnation.name for member in self.host.members.values()))

    @property
    def runs(self) -> dict[str, Run]:
        """The traces by group."""
        return self._traces.runs

    @property
    def events(self) -> list[Event]:
        """The rows of all traces."""
        return [event for run in self.runs.values() for event in run.events]

    @property
    def digest(self) -> str:
        """A fingerprint of all that happened: equal seeds give equal ones."""
        return " ".join(run.digest for run in self.runs.values())

    @property
    def network_counts(self) -> dict[str, int]:
        """What the network carried, lost, doubled."""
        return self.host.network.all_counts

    def write_trace(self, folder: Path) -> None:
        """Write the traces for `antiphon check`, each group's in a folder of its own if there are several.

        An earlier trace in the folder is replaced; anything else is left alone, with a `UsageError`.
        """
        owners = self.host.network.owners
        self._traces.write(folder, self.seed, global_clock=self.clocks_agree, owners=owners, done=self.done)

    def addresses(self, count: int) -> list[str]:
        """Give addresses for members: 10.0.0.1:7000 and so on. Any host:port will do, `alice:1` too."""
        addresses = [f"10.0.0.{number}:7000" for number in range(1, count + 1)]
        self._known.update(addresses)
        return addresses

    def _all(self) -> list[str]:
        return sorted({*self._processes, *self.host.network.owners, *self._known})

    # Processes

    def spawn(self, name: str, function: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> Process:
        """Start a process under a name: a function that can be crashed, paused and started again as a whole."""
        if name in self._processes:
            raise UsageError(f"spawn: there is a process {name!r} already; restart it, or give another name")
        process = Process(name, lambda: function(*args), self.loop.create_future())
        self._processes[name] = process
        self._known.add(name)
        self._begin(process)
        return process

    def _begin(self, process: Process) -> None:
        process.incarnation = Incarnation(process.name)
        context = contextvars.copy_context()
        context.run(present_incarnation.set, process.incarnation)
        process.task = self.loop.create_task(context.run(process.begin), name=process.name, context=context)
        process.task.add_done_callback(lambda task: self._ended_by_itself(process, task))

    def run_in(self, name: str, function: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> asyncio.Task[Any]:
        """Let a process that runs do something more, as a task of its own."""
        process = self._processes.get(name)
        if process is None or not process.running:
            raise UsageError(f"run_in: {name!r} is no process that runs")
        context = contextvars.copy_context()
        context.run(present_incarnation.set, process.incarnation)
        return self.loop.create_task(context.run(function, *args), context=context)

    def _ended_by_itself(self, process: Process, task: asyncio.Task[Any]) -> None:
        process.ended(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not process.incarnation.crashed:
            error.add_note(f"antiphon.testing: in process {process.name}")
            self.loop.fail(error)

    def crash(self, name: str) -> None:
        """Stop a process dead: nothing of it runs any more, what it wrote to disk remains.

        A group that was joined outside any process stops alone; its application sees it closed.
        """
        if self._closed:
            return  # what was planned for later than the end: what ends now is waited for
        incarnation = self._incarnation(name)
        self.note("crash", [incarnation.name])
        incarnation.crashed = True
        self._crashed.append(incarnation)
        incarnation.dead = self.loop.pending(incarnation)
        members = [member for member in self.host.members.values() if member.incarnation is incarnation]
        for one in self.host.network.sockets():
            if one.incarnation is incarnation:
                one.close()
        for member in members:
            with suppress(StopIteration):  # nothing in it waits
                member.group.stop().send(None)

    def restart(self, name: str) -> None:
        """Start a process anew, after it crashed or ended."""
        if self._closed:
            return  # nobody would end it
        process = self._processes.get(name)
        if process is None:
            raise UsageError(f"restart: {name!r} is no process that was started with spawn")
        if process.running:
            raise UsageError(f"restart: {name!r} is running; crash it first")
        self._begin(process)

    def can_restart(self, name: str) -> bool:
        """Say whether a name is that of a process that runs, and can be made to crash and come back."""
        return name in self._processes and self._processes[name].running

    def pause(self, name: str) -> None:
        """Let a process stand still, with all that comes for it waiting, until `resume`."""
        if self._closed:
            return  # it would never end
        incarnation = self._incarnation(name)
        if not incarnation.paused:
            self._pauses[incarnation.name] = self.note("pause", [incarnation.name])
        incarnation.paused = True

    def resume(self, name: str) -> None:
        """Let a process go on; one that crashed meanwhile is left alone."""
        incarnation = self._incarnations().get(name)
        if incarnation is not None and incarnation.paused:
            self.is_over(self._pauses.pop(incarnation.name))
            for action in incarnation.resume():
                self.loop.call_soon(action)

    def _incarnations(self) -> dict[str, Incarnation]:
        incarnations = {member.incarnation.name: member.incarnation for member in self.host.members.values()}
        return incarnations | {
            name: process.incarnation for name, process in self._processes.items() if process.running
        }

    def _incarnation(self, name: str) -> Incarnation:
        incarnations = self._incarnations()
        incarnation = incarnations.get(name) or incarnations.get(self.host.network.owners.get(name, ""))
        if incarnation is None:
            raise UsageError(f"{name!r} is not running; running are {', '.join(incarnations) or 'none'}")
        return incarnation

    def number(self, name: str, low: int, high: int) -> int:
        """Draw a size of the test's own, of processes or messages; a seed that fails is tried with smaller ones."""
        if not low <= high:
            raise UsageError(f"number: {name} is to lie between {low} and {high}, and nothing does")
        drawn = random.Random(f"{self.seed}/{name}").randint(low, high)
        given = max(low, min(drawn, self.reduced.numbers.get(name, drawn)))
        self.numbers[name] = DrawnNumber(low, drawn, given)
        return given

    # Scripts

    def at(self, when: float | str, action: Callable[..., object], *args: Any) -> None:
        """Do something at a virtual time: seconds, or a duration such as `250ms`."""
        at_ns = duration(when, "at") if isinstance(when, str) else round(when * SECOND)

        def act() -> None:
            if inspect.iscoroutine(done := action(*args)):
                done.close()
                raise UsageError(
                    f"at: {action!r:.60} is a coroutine function, and nobody would run it; spawn a process"
                )

        self.at_ns(at_ns, act)

    def at_ns(self, at_ns: Duration, action: Callable[[], object]) -> None:
        """Do something at a virtual nanosecond, or now, if that is past."""
        self.loop.call_at(at_ns / SECOND, action, context=_OUTSIDE)

    async def quiet(self) -> None:
        """Wait until the faults that were drawn by chance are over."""
        await asyncio.sleep(max(0, self._faults_over - self.kernel.now) / SECOND)

    def _explain(self) -> str:
        statuses = [group.status() for group, _ in self._traces.groups()]
        faults = [fault.what for fault in self.host.network.faults]
        faults += [f"{name} is paused" for name, incarnation in self._incarnations().items() if incarnation.paused]
        faults += [f"{name} crashed" for name, process in self._processes.items() if process.incarnation.crashed]
        return explain(self.loop.pending(), statuses, faults, self.kernel.now)


_OUTSIDE = contextvars.Context()  # of any process


def _takes_an_argument(main: Callable[..., Any]) -> bool:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(main).parameters.values()
    return any(one.kind in kinds and one.default is inspect.Parameter.empty for one in parameters)


def simulated(seed: int = 0, **options: Unpack[Options]) -> World:
    """Make a world, to be used with `with`: at its end every promise is checked."""
    return World(seed, **options)


def run(
    main: Callable[..., Coroutine[Any, Any, _T]] | Coroutine[Any, Any, _T], *, seed: int = 0, **options: Unpack[Options]
) -> _T:
    """Run an application's coroutine in a world of its own, check what the groups promise, and give its result."""
    with World(seed, **options) as world:
        return world.run(main)
