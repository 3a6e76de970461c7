"""What a test can do to the surroundings of its processes: the network and its links, their disks, their clocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from antiphon.protocol.machine import SECOND
from antiphon.sim.distributions import duration
from antiphon.sim.kernel import Kernel
from antiphon.testing.disk import SimulatedDisk
from antiphon.testing.done import DoneFault
from antiphon.testing.host import SimulatedHost
from antiphon.testing.network import MTU_MAX, LinkFault, SimulatedNetwork
from antiphon.wording import duration as told
from antiphon.wording import link_quality, network_quality


class Surroundings:
    """The part of a world that is not its processes."""

    def __init__(self, kernel: Kernel, host: SimulatedHost, *, clocks_agree: bool) -> None:
        self.kernel, self.host, self.clocks_agree = kernel, host, clocks_agree
        self.named: set[str] = set()  # in faults
        self.done: list[DoneFault] = []  # what was done to the processes, for reports
        self._first_options = host.network.options
        self._changed: dict[str, DoneFault] = {}  # qualities of the network that are not as at first

    @property
    def now(self) -> float:
        """Virtual seconds since the beginning."""
        return self.kernel.now / SECOND

    @property
    def loss(self) -> float:
        """The share of datagrams that are lost."""
        return self.host.network.options.loss

    @loss.setter
    def loss(self, share: float) -> None:
        self._change(loss=share)

    @property
    def latency(self) -> str:
        """How long datagrams travel."""
        return self.host.network.options.latency

    @latency.setter
    def latency(self, distribution: str) -> None:
        self._change(latency=distribution)

    @property
    def duplicate(self) -> float:
        """The share of datagrams that are doubled."""
        return self.host.network.options.duplicate

    @duplicate.setter
    def duplicate(self, share: float) -> None:
        self._change(duplicate=share)

    @property
    def reorder(self) -> float:
        """The share of datagrams that are held back."""
        return self.host.network.options.reorder

    @reorder.setter
    def reorder(self, share: float) -> None:
        self._change(reorder=share)

    def _change(self, **change: Any) -> None:
        """Change a quality of all links from now on, and record it until it is as at first."""
        self.host.network.change(**change)
        for quality, value in change.items():
            if quality in self._changed:
                self.is_over(self._changed.pop(quality))
            if value != getattr(self._first_options, quality):
                self._changed[quality] = self.note("network", by=network_quality(quality, value))

    def partition(self, *groups: Sequence[str]) -> LinkFault:
        """Split the network: different groups cannot hear each other; whoever is in no group is in one more."""
        return self._since(self.host.network.partition(*groups), "partition", *groups)

    def cut(self, source: Sequence[str], target: Sequence[str]) -> LinkFault:
        """Cut the links from some to others, in this direction only."""
        return self._since(self.host.network.link(source, target, "cut", loss=1.0), "cut", source, target)

    def link(
        self,
        source: Sequence[str],
        target: Sequence[str],
        *,
        loss: float = 0.0,
        latency: str | None = None,  # beside that of all links
        mtu: int = MTU_MAX,  # bytes of a packet with its headers that the link can carry
        silent: bool = False,  # larger ones vanish, and nobody is told
    ) -> LinkFault:
        """Let the links from some to others lose more, take longer or carry less, in this direction only."""
        fault = self.host.network.link(source, target, "link", loss=loss, latency=latency, mtu=mtu, silent=silent)
        has = link_quality(loss, latency and f"{latency} more", None if mtu == MTU_MAX else mtu, silent=silent)
        return self._since(fault, "link", source, target, by=has)

    def _since(self, fault: LinkFault, kind: str, *sides: Sequence[str], by: str | None = None) -> LinkFault:
        self.named |= fault.names
        fault.what += f" since {self.now:g} s"
        done = self.note(kind, *sides, by=by)
        fault.healed = lambda: self.is_over(done)
        return fault

    def note(self, kind: str, *sides: Sequence[str], by: str | None = None) -> DoneFault:
        """Keep what is done to the processes, for whoever reads the trace."""
        done = DoneFault(kind, self.kernel.now, tuple(map(tuple, sides)), by)
        self.done.append(done)
        return done

    def is_over(self, done: DoneFault) -> None:
        """Keep when it ended."""
        done.until_ns = self.kernel.now

    def heal(self) -> None:
        """Mend all links."""
        for fault in list(self.host.network.faults):
            fault.heal()

    @property
    def network(self) -> SimulatedNetwork:
        """The packets of this world: recorded, injected, fragmented or not."""
        return self.host.network

    @property
    def disk(self) -> SimulatedDisk:
        """The files that survive crashes."""
        return self.host.disk

    def step_clock(self, name: str, by: str) -> None:
        """Set the wall clock of a process forward, or back if it begins with a minus; timers take no notice."""
        back = by.startswith("-")
        step_ns = duration(by.removeprefix("-"), "step_clock")
        steps = self.host.steps_ns
        steps[name] = steps.get(name, 0) + (-step_ns if back else step_ns)
        self.clocks_agree = False
        self.note("clock", [name], by=f"{'back' if back else 'forward'} by {told(step_ns)}")
