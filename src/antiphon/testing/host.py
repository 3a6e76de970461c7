"""The simulated host of a group: the simulator's network in place of UDP, a disk in memory, traces that are kept.

A packet carries one protocol datagram in the group's own envelope, sealed where the group has a key. What live groups
do besides, gathering and cutting datagrams to packets of 1,400 bytes, is left out: here a datagram is lost as a whole.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context, copy_context
from pathlib import Path
from typing import Any

import msgspec

from antiphon.errors import UsageError
from antiphon.live.addresses import Address, show
from antiphon.live.group import Group
from antiphon.live.recording import Origin
from antiphon.live.security import Envelope, Refused
from antiphon.protocol.clock import SkewedClock
from antiphon.protocol.machine import Duration, Instant
from antiphon.protocol.membership.process import Journal
from antiphon.sim.kernel import Kernel
from antiphon.sim.network import Network, NetworkOptions
from antiphon.testing.process import Life, present_life
from antiphon.testing.trace import Traces

_PLACES = 16  # of the network, doubled when they are all taken


class SimulatedCarrier:
    """One member's way in and out of the simulated network."""

    def __init__(
        self,
        host: SimulatedHost,
        life: Life,
        group: Group,
        addresses: Mapping[int, Address],
        me: int,
        envelope: Envelope,
        receive: Callable[[list[bytes]], None],
    ) -> None:
        self._host, self.life, self.group, self._me = host, life, group, me
        self._envelope, self._receive = envelope, receive
        self.addresses = [show(address) for address in addresses.values()]  # by name: from 0, without a gap
        self.address = self.addresses[me]
        self._others = tuple(name for name in range(len(addresses)) if name != me)
        self._outbox: list[tuple[tuple[int, ...], bytes]] = []
        self._context: Context = copy_context()  # whatever follows from a packet is of this life
        self.counts: Counter[str] = Counter()
        self.lose: Callable[[bytes], bool] | None = None
        self.broken = 0
        self.open, self.started = True, False

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to listen."""
        self.started = True

    def close(self) -> None:
        """Give the address back."""
        if self.open:
            self.open = False
            self._host.closed(self)

    def know(self, name: int, address: Address) -> None:
        """Learn nothing: all are known, since nobody is discovered here."""

    def queue(self, to: tuple[int, ...] | None, datagram: bytes) -> None:
        """Take a protocol datagram for the next flush."""
        self._outbox.append((self._others if to is None else to, datagram))

    def flush(self) -> None:
        """Send all that was queued."""
        outbox, self._outbox = self._outbox, []
        if not self.open:
            return
        for to, datagram in outbox:
            targets = [self.addresses[name] for name in to if name < len(self.addresses)]
            self.counts["packets-sent"] += len(targets)
            self._host.send(self.address, targets, self._envelope.seal(datagram))

    def arrive(self, packet: bytes) -> None:
        """Take a packet from the network."""
        if not self.open or self.life.stops(lambda: self.arrive(packet)):
            return
        if self.lose is not None and self.lose(packet):
            return
        self.counts["packets-received"] += 1
        try:
            sender, datagram = self._envelope.open(packet)
            if sender >= len(self.addresses):
                raise Refused("unknown-sender")
            if sender == self._me:
                raise Refused("own-name")
        except Refused as refused:
            self.counts["refused-" + refused.reason] += 1
            return
        self._context.run(self._receive, [datagram])


class SimulatedHost:
    """Where all members of a simulated world run; `network` says how what is between them behaves."""

    def __init__(self, kernel: Kernel, seed: int, network: NetworkOptions, skew_ns: Duration, traces: Traces) -> None:
        self._kernel, self._seed, self._skew_ns, self._traces = kernel, seed, skew_ns, traces
        self._members = random.Random(f"{seed}/members")
        self._chance = random.Random(f"{seed}/network")
        self._places: dict[str, int] = {}  # of addresses in the network
        self._addresses: list[str] = []  # by place
        self._disk: dict[Path, bytes] = {}
        self.carriers: dict[str, SimulatedCarrier] = {}  # open ones by address
        self.owners: dict[str, str] = {}  # by address, the name of whoever took it last
        self.is_cut: Callable[[str, str], bool] = lambda source, target: False  # whether a fault parts two addresses
        self.failed: Callable[[BaseException], None]  # is told of a member that broke an invariant
        self.counts: Counter[str] = Counter()  # of networks that gave way to others
        self.options = network
        self._network = self._lay(_PLACES)

    # The network

    def _lay(self, size: int) -> Network:
        self._size = size
        network = Network(self._kernel, size, self.options, self._chance, self._arrive)
        network.drop = self._drop
        return network

    def change(self, **options: Any) -> None:
        """Let the network behave otherwise from now on; what is under way arrives as it would have."""
        self.options = msgspec.structs.replace(self.options, **options)
        self.options.check(self._size)
        self.counts.update(self._network.counts)
        self._network = self._lay(self._size)

    @property
    def network_counts(self) -> dict[str, int]:
        """What was sent, and what became of what did not arrive once and in time."""
        return dict(sorted((self.counts + Counter(self._network.counts)).items()))

    def send(self, source: str, targets: Sequence[str], packet: bytes) -> None:
        """Let a packet travel."""
        self._network.send(self._place(source), [self._place(target) for target in targets], packet)

    def _place(self, address: str) -> int:
        place = self._places.get(address)
        if place is None:
            place = self._places[address] = len(self._addresses)
            self._addresses.append(address)
            if place >= self._size:
                self._size *= 2
                self.change()
        return place

    def _drop(self, source: int, target: int, packet: bytes, now: Instant) -> bool:
        return self.is_cut(self._addresses[source], self._addresses[target])

    def _arrive(self, arrival: tuple[int, bytes]) -> None:
        carrier = self.carriers.get(self._addresses[arrival[0]])
        if carrier is not None:
            carrier.arrive(arrival[1])

    # What a group asks for

    def clock(self) -> Callable[[], Instant]:
        """Give a clock that is off by as much as clocks may be."""
        skew_ns = self._skew_ns
        clock = SkewedClock(self._members.randint(0, 2 * skew_ns) if skew_ns else 0, 0)
        return lambda: clock.read(self._kernel.now)

    def seed(self) -> int:
        """Draw the seed of the next member."""
        return self._members.getrandbits(64)

    def carrier(
        self,
        group: Group,
        me: int,
        addresses: Mapping[int, Address],
        envelope: Envelope,
        *,
        bind: Address,
        multicast: Address | None,
        ttl: int,
        offload: bool | None,
        receive: Callable[[list[bytes]], None],
    ) -> SimulatedCarrier:
        """Take an address in the network."""
        address = show(addresses[me])
        if address in self.carriers:
            raise UsageError(f"bind: {address} is in use; another member has this name, or give another port")
        life = present_life.get() or Life(address)
        self.owners[address] = life.name
        made = SimulatedCarrier(self, life, group, addresses, me, envelope, receive)
        life.carriers[address] = self.carriers[address] = made
        self._place(address)
        return made

    def closed(self, carrier: SimulatedCarrier) -> None:
        """Free an address."""
        del self.carriers[carrier.address]
        del carrier.life.carriers[carrier.address]
        group = carrier.group
        drained = carrier.started and not carrier.life.crashed and not group.status().held
        self._traces.stopped(group, drained=drained)
        if group.failure is not None:
            self.failed(group.failure)

    def read(self, path: Path) -> bytes:
        """Read from the disk in memory."""
        if path not in self._disk:
            raise FileNotFoundError(path)
        return self._disk[path]

    def write(self, path: Path, content: bytes) -> None:
        """Write to the disk in memory."""
        self._disk[path] = content

    def journals(self, group: Group, origin: Origin) -> Callable[[int], Journal]:
        """Keep the traces of a member's lives."""
        (carrier,) = (carrier for carrier in self.carriers.values() if carrier.group is group)
        return self._traces.journals(group, origin, carrier.addresses)
