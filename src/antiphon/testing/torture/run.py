"""Run a schedule: a simulated world, its applications, and the faults at their times; gives what everyone saw."""

from __future__ import annotations

import asyncio
import errno
import random
from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path

import msgspec

from antiphon.errors import UsageError
from antiphon.testing.network import LinkFault
from antiphon.testing.torture.application import Application, keywords
from antiphon.testing.torture.log import ApplicationStart, Viewed
from antiphon.testing.torture.schedule import PlannedFault, Schedule
from antiphon.testing.world import World

_KEYS = [bytes([number]) * 16 for number in range(40)]
_LOOK_S = 0.25  # between two looks whether all is over
_TWO_DAYS = "172800s"  # clocks are set back by at most one


class Outcome(msgspec.Struct):
    """What the applications saw, and what ended the run before its time, if anything did."""

    schedule: Schedule
    addresses: list[str]
    starts: list[ApplicationStart]
    error: BaseException | None = None


class Tortured:
    """A schedule that runs."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        net = schedule.net
        self.world = World(
            schedule.seed,
            latency=net.latency,
            loss=net.loss,
            duplicate=net.duplicate,
            reorder=net.reorder,
            bandwidth=net.bandwidth,
            skew=net.skew,
            limit="60min",
            patience="60min",
        )
        self.addresses = self.world.addresses(schedule.members)
        self.starts: list[ApplicationStart] = []
        self._spawned: set[int] = set()
        self._present: dict[int, Application] = {}
        self._keys = [_KEYS[:1] for _ in self.addresses]  # by member
        self._stale: set[int] = set()  # who keep their keys for good
        self._keys_used = 1
        self._broken_disks: set[int] = set()
        self._forgot_at: dict[int, float] = {}  # when a member lost its state folder
        self._copies: dict[PlannedFault, dict[Path, bytes]] = {}  # of state folders, to be put back
        self._lying: set[int] = set()  # whose disks only say that they have synced
        self._failures = [{"snapshot": one.snapshot_fails, "restore": one.restore_fails} for one in schedule.work]
        self._returning: set[int] = set()  # who joins again as soon as it has left
        self._torn: dict[int, PlannedFault] = {}  # who stops dead at its next write
        self._chance = random.Random(f"{schedule.seed}/strangers")
        self.happened: set[str] = set()  # which faults hit somebody

    def run(self) -> Outcome:
        """Run to the end of the schedule."""
        outcome = Outcome(self.schedule, self.addresses, self.starts)
        try:
            self.world.run(self._main)
        except Exception as error:  # a broken invariant, or something that spins
            outcome.error = error
        finally:
            for application in self._present.values():
                application.over = True
            self.world.loop.close()
        return outcome

    async def _main(self) -> None:
        world, schedule = self.world, self.schedule
        world.network.offload = schedule.net.offload
        world.network.interface_mtu = schedule.net.mtu
        world.loop.antiphon_host.failed = self._failed
        world.disk.fails = lambda path: errno.ENOSPC if int(path.parts[1]) in self._broken_disks else None
        world.disk.lies = lambda path: int(path.parts[1]) in self._lying
        for place in ("writing", "written", "synced"):
            setattr(world.disk, place, partial(self._tear, place=place))
        if any(fault.kind in ("replay", "forge") for fault in schedule.faults):
            world.network.recorded = deque(maxlen=3_000)
        for member, work in enumerate(schedule.work):
            world.step_clock(self.addresses[member], _TWO_DAYS)
            world.at(work.start_ms / 1000, self._start, member)
        for fault in schedule.faults:
            world.at(fault.at / 1000, self._begin, fault)
            if fault.old_ms:
                world.at((fault.at - fault.old_ms) / 1000, self._begin_to_forget, fault)
        world.at(schedule.calm_ms / 1000, self._calm)
        await self._until(schedule.settled_ms, lambda: self._all_are(Application.has_settled))
        longer_ms = await self._while_what_was_sent_before_goes_on()
        self._probe()
        await self._until(schedule.end_ms + longer_ms, lambda: self._all_are(Application.has_finished))
        if any(application.sends for application in self._present.values()):
            await self._let_what_is_under_way_arrive()
        for application in self._present.values():
            application.sample()
            if self._takes_part(application):
                application.note_outcomes()

    async def _let_what_is_under_way_arrive(self) -> None:
        """Let nobody send any more: what one has and another has not at the end says nothing in the midst of it."""
        for application in self._present.values():
            application.stop_sending()
        await asyncio.sleep(1 + 20 * self.schedule.latency_ms / 1000)

    async def _while_what_was_sent_before_goes_on(self) -> int:
        """Wait as long as the backlog moves, a window at a time, at most as long again; return the milliseconds.

        How many windows it fills is not known beforehand: bursts become small where copies are needed.
        """
        began, schedule = self.world.now, self.schedule
        end = began + (schedule.settled_ms - schedule.calm_ms) / 1000
        while self.world.now < end and any(
            self._takes_part(one) and one.has_backlog() for one in self._present.values()
        ):
            before = self._delivered()
            await asyncio.sleep(schedule.window_ms / 1000)
            if self._delivered() == before:
                break
        return int(1000 * (self.world.now - began))

    def _delivered(self) -> int:
        """Count the bursts that anyone delivered."""
        return sum(log.count("deliver") for run in self.world.runs.values() for log in run.logs)

    async def _until(self, limit_ms: int, done: Callable[[], bool]) -> None:
        """Wait until a time, or until something is the case after the calm, unless the schedule lingers.

        A cut that lasts may not have been noticed as yet, when all seems well.
        """
        schedule, end = self.schedule, limit_ms / 1000
        first = (schedule.calm_ms + schedule.setup.suspect_ms) / 1000
        waits = schedule.lingers or any(
            fault.kind in ("cut", "partition") and fault.until is None for fault in schedule.faults
        )
        await asyncio.sleep((end if waits else min(first, end)) - self.world.now)
        while self.world.now < end and not done():
            await asyncio.sleep(min(_LOOK_S, end - self.world.now))

    def _all_are(self, so: Callable[[Application, Collection[Application]], bool]) -> bool:
        """Say whether something is the case with all applications that are alike, none of which is missing."""
        alike = [application for member, application in self._present.items() if not self._is_odd(member)]
        there = [one for one in alike if self._takes_part(one)]
        return len(there) == sum(not one.start.ended for one in alike) and all(so(one, there) for one in there)

    def _is_odd(self, member: int) -> bool:
        return self.schedule.odd is not None and member == self.schedule.members - 1

    def _failed(self, error: BaseException) -> None:
        is_told = not self.schedule.setup.views and isinstance(error, UsageError)  # that it was started again
        if not isinstance(error.__cause__, OSError) and not is_told:  # the disk's doing is what was drawn
            self.world.loop.fail(error)

    # Applications

    def _start(self, member: int) -> None:
        name = self.addresses[member]
        if member not in self._spawned:  # it may not have begun yet
            self._spawned.add(member)
            self.world.spawn(name, partial(self._application, member))
        elif not self.world.can_restart(name):
            self.world.restart(name)

    async def _application(self, member: int) -> None:
        schedule, world = self.schedule, self.world
        number = 1 + sum(start.member == member for start in self.starts)
        start = ApplicationStart(member, self.addresses[member], number, world.now)
        self.starts.append(start)
        setup = schedule.setup
        if schedule.odd is not None and self._is_odd(member):
            setup = schedule.odd
        work, calm_s = schedule.work[member], schedule.calm_ms / 1000
        application = Application(start, work, setup, lambda: world.now, calm_s, self._failures[member])
        self._present[member] = application
        settings = keywords(setup, start.address, self.addresses, self._keys[member], Path(f"/{member}"))
        await application.run(settings)
        if member in self._returning and start.crashed_at is None:  # it may have, in the midst of its own write
            self._returning.discard(member)
            self.happened.add("returned at once")
            await self._application(member)

    def _probe(self) -> None:
        for application in self._present.values():
            if self._takes_part(application):
                self.world.run_in(application.start.address, partial(self._send_probe, application))

    def _takes_part(self, application: Application) -> bool:
        start = application.start
        return start.joined_at is not None and not start.ended and self.world.can_restart(start.address)

    async def _send_probe(self, application: Application) -> None:
        await application.send(probe=True)

    # Faults

    def _names(self, members: Sequence[int]) -> list[str]:
        return [self.addresses[member] for member in members]

    def _begin(self, fault: PlannedFault) -> None:
        world, names = self.world, self._names(fault.members)
        later = None if fault.until is None else fault.until / 1000
        match fault.kind:
            case "crash":
                for member in fault.members:
                    had = world.disk.files(Path(f"/{member}"))
                    self._crash(member, forgets=fault.forgets, power=fault.power)
                    if fault.old_ms:
                        self._go_back(member, fault, had)
                    if later is not None:
                        world.at(later, self._start, member)
            case "pause":
                for name in names:
                    if world.can_restart(name):
                        self.happened.add("pause")
                        world.pause(name)
                        world.at(later or 0, world.resume, name)
                if len(names) == self.schedule.members and all(map(world.can_restart, names)):
                    self.happened.add("everyone paused")
            case "partition":
                self._heal_later(world.partition(names), fault)
            case "cut":
                self._heal_later(world.cut(names, self._names(fault.others)), fault)
            case "link":
                delay = f"fixed {fault.delay_ms}ms" if fault.delay_ms else None
                link = world.link(names, self._names(fault.others), loss=fault.share, latency=delay)
                self._heal_later(link, fault)
            case "narrow":
                link = world.link(names, self._names(fault.others), mtu=fault.size, silent=fault.silent)
                self._heal_later(link, fault)
            case "clock":
                for name in names:
                    self.happened |= {f"clock {fault.delay_ms}"} if world.can_restart(name) else set()
                    world.step_clock(name, f"{fault.delay_ms // 1000}s")
            case "disk":
                self._broken_disks.update(fault.members)
                world.at(later or 0, self._mend_disks, fault)
            case "torn":
                self._torn.update(dict.fromkeys(fault.members, fault))
                world.at(later or 0, self._mend_torn, fault)
            case "leave":
                for member in fault.members:
                    if member in self._present and world.can_restart(self.addresses[member]):
                        self.happened.add(f"left {fault.how}")
                        self._returning |= {member} if fault.how == "return" else set()
                        world.run_in(self.addresses[member], self._present[member].leave, fault.how)
                    if later is not None:
                        world.at(later, self._start, member)
            case "cancel":
                for member in fault.members:
                    application = self._present.get(member)
                    if application is not None and self._takes_part(application):
                        world.run_in(application.start.address, partial(self._cancel, application))
            case "keys":
                self._rotate(fault)
            case "replay" | "forge":
                self._be_a_stranger(fault, world.now)

    def _heal_later(self, link: LinkFault, fault: PlannedFault) -> None:
        if fault.until is not None:
            self.world.at(fault.until / 1000, link.heal)

    def _crash(self, member: int, *, forgets: bool = False, power: bool = False) -> None:
        name = self.addresses[member]
        if member in self._present and self.world.can_restart(name):  # one that has not begun yet cannot crash
            self.happened.add("crash")
            self.world.crash(name)
            self._present[member].start.crashed_at = self.world.now
            self._present[member].over = True
        if power and self.world.disk.lose_power(Path(f"/{member}")):
            self.happened.add("unsynced write lost")
        if forgets and self._can_forget(member):
            self.happened |= {"state folder lost"} if self.world.disk.files(Path(f"/{member}")) else set()
            self.world.disk.replace(Path(f"/{member}"), {})
            self._forgot_at[member] = self.world.now

    def _begin_to_forget(self, fault: PlannedFault) -> None:
        """Keep a copy of state folders, or let their disks lie from now on."""
        if fault.lies:
            self._lying.update(fault.members)
        else:
            folders = map(self.world.disk.files, self._folders(fault))
            self._copies[fault] = {path: content for files in folders for path, content in files.items()}

    def _go_back(self, member: int, fault: PlannedFault, had: dict[Path, bytes]) -> None:
        """Let a state folder hold what it held some time ago; of what a lying disk had not synced nothing is left."""
        folder, disk = Path(f"/{member}"), self.world.disk
        if fault.lies:
            self._lying.discard(member)
        else:
            copy = {path: content for path, content in self._copies[fault].items() if path.is_relative_to(folder)}
            disk.replace(folder, copy)
        if disk.files(folder) != had:
            self.happened.add("disk lied" if fault.lies else "old copy put back")

    def _folders(self, fault: PlannedFault) -> list[Path]:
        return [Path(f"/{member}") for member in fault.members]

    def _can_forget(self, member: int) -> bool:
        """Say whether the others remember enough: a majority of names that know of no view founds the group anew."""
        if not self.schedule.setup.views or self.schedule.setup.partition == "each-side":
            return True
        know = {
            start.member
            for start in self.starts
            if start.at >= self._forgot_at.get(start.member, 0.0)
            and any(isinstance(one, Viewed) for one in start.stream)
        }
        return 2 * len(know - {member}) >= self.schedule.members

    def _mend_disks(self, fault: PlannedFault) -> None:
        for member in fault.members:
            self._broken_disks.discard(member)
            if member in self._present and self._present[member].start.ended_by is not None:
                self.happened.add("write failed")
                self._start(member)

    def _tear(self, path: Path, *, place: str) -> None:
        """Crash whoever writes now, if that is due at this place of a write."""
        member = int(path.parts[1])
        fault = self._torn.get(member)
        if fault is not None and fault.place == place and member in self._present:
            del self._torn[member]
            self.happened.add(f"torn {place}")
            self._crash(member, power=fault.power)
            raise OSError(errno.EIO, "the process is dead", str(path))  # nothing else follows

    def _mend_torn(self, fault: PlannedFault) -> None:
        for member in fault.members:
            self._torn.pop(member, None)
            self._start(member)

    async def _cancel(self, application: Application) -> None:
        self.happened |= {"tasks cancelled"} if application.start.stream else set()
        application.begin_tasks()

    def _rotate(self, fault: PlannedFault) -> None:
        old, new = _KEYS[self._keys_used - 1], _KEYS[self._keys_used]
        self._keys_used += 1
        each = ((fault.until or fault.at) - fault.at) / (3 * self.schedule.members)  # milliseconds
        if fault.stale:
            self._stale.update(fault.members)
        turns = [(keys, member) for keys in ([old, new], [new, old], [new]) for member in range(self.schedule.members)]
        for turn, (keys, member) in enumerate(turns):
            self.world.at((fault.at + turn * each) / 1000, self._set_keys, member, keys)

    def _set_keys(self, member: int, keys: list[bytes]) -> None:
        if member in self._stale:
            return
        self._keys[member] = keys
        if member in self._present:
            application = self._present[member]
            application.set_keys(keys)
            self.happened |= {"keys changed"} if application.start.stream else set()

    def _be_a_stranger(self, fault: PlannedFault, now: float) -> None:
        """Send what was recorded again and again, or garbage that looks like it."""
        packets = list(self.world.network.recorded)
        until = (fault.until or fault.at) / 1000

        def act() -> None:
            if self.world.now >= until or not packets:
                return
            self.happened.add(fault.kind)
            for packet in self._chance.choices(packets, k=5):
                data = bytes(packet)
                if fault.kind == "forge":
                    where = self._chance.randrange(len(data))
                    data = data[:where] + bytes([data[where] ^ 1 << self._chance.randrange(8)]) + data[where + 1 :]
                self.world.network.inject(data, packet.source, packet.target)
            self.world.at(self.world.now + 0.05, act)

        act()

    def _calm(self) -> None:
        """End what does not end by itself: loss and disorder; cuts and crashes for good remain."""
        self.world.loss, self.world.duplicate, self.world.reorder = 0.0, 0.0, 0.0


def run(schedule: Schedule) -> Outcome:
    """Run a schedule, and give what everyone saw."""
    return Tortured(schedule).run()
