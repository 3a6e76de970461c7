"""What a test can do to the surroundings of its processes: the network and its links, their disks, their clocks."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.protocol.machine import SECOND
from antiphon.sim.distributions import duration
from antiphon.sim.kernel import Kernel
from antiphon.testing.disk import SimulatedDisk
from antiphon.testing.host import SimulatedHost
from antiphon.testing.network import MTU, LinkFault, SimulatedNetwork


class Surroundings:
    """The part of a world that is not its processes."""

    def __init__(self, kernel: Kernel, host: SimulatedHost, *, clocks_agree: bool) -> None:
        self.kernel, self.host, self.clocks_agree = kernel, host, clocks_agree
        self.named: set[str] = set()  # in faults

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
        self.host.network.change(loss=share)

    @property
    def latency(self) -> str:
        """How long datagrams travel."""
        return self.host.network.options.latency

    @latency.setter
    def latency(self, distribution: str) -> None:
        self.host.network.change(latency=distribution)

    @property
    def duplicate(self) -> float:
        """The share of datagrams that are doubled."""
        return self.host.network.options.duplicate

    @duplicate.setter
    def duplicate(self, share: float) -> None:
        self.host.network.change(duplicate=share)

    @property
    def reorder(self) -> float:
        """The share of datagrams that are held back."""
        return self.host.network.options.reorder

    @reorder.setter
    def reorder(self, share: float) -> None:
        self.host.network.change(reorder=share)

    def partition(self, *groups: Sequence[str]) -> LinkFault:
        """Part the network: who is in different groups, or who is in one and who in none, cannot hear each other."""
        return self._since(self.host.network.partition(*groups))

    def cut(self, source: Sequence[str], target: Sequence[str]) -> LinkFault:
        """Cut the links from some to others, in this direction only."""
        return self._since(self.host.network.link(source, target, "cut", loss=1.0))

    def link(
        self,
        source: Sequence[str],
        target: Sequence[str],
        *,
        loss: float = 0.0,
        latency: str | None = None,  # beside that of all links
        mtu: int = MTU,  # bytes of a packet with its headers that the link can carry
    ) -> LinkFault:
        """Let the links from some to others lose more, take longer or carry less, in this direction only."""
        return self._since(self.host.network.link(source, target, "link", loss=loss, latency=latency, mtu=mtu))

    def _since(self, fault: LinkFault) -> LinkFault:
        self.named |= fault.names
        fault.what += f" since {self.now:g} s"
        return fault

    def heal(self) -> None:
        """Mend all links."""
        self.host.network.faults.clear()

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
