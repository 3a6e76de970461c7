"""The simulated network between sockets: who is where, which links are cut, slow or narrow, and what travels.

Latency, loss, duplication and reordering for all links are those of `sim.network`; faults and rules for single links,
one direction each, lie above it. Packets can be recorded, to be replayed by one who should not have them.
"""

from __future__ import annotations

import errno
import os
import random
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, Final, NamedTuple

import msgspec

from antiphon.errors import UsageError
from antiphon.live.addresses import Address, parse, show
from antiphon.live.path_mtu import headers_of
from antiphon.sim.distributions import Sampler, sampler
from antiphon.sim.kernel import Kernel
from antiphon.sim.network import Network, NetworkOptions
from antiphon.testing.process import Incarnation
from antiphon.testing.sockets import Packet, SimulatedSocket

_PLACES: Final = 16  # of the network, doubled when they are all taken
_FIRST_FREE_PORT: Final = 49_152
MTU: Final = 1_500  # of every machine's way out
MTU_MAX: Final = 65_535  # of links that have no rule


class LinkFault:
    """A change of some links, such as a cut, from when it is made until it is healed."""

    def __init__(
        self,
        network: SimulatedNetwork,
        what: str,
        names: Collection[str],
        concerns: Callable[[Collection[str], Collection[str]], bool],
        *,
        loss: float = 1.0,
        latency: str | None = None,
        mtu: int = MTU_MAX,
        silent: bool = False,
    ) -> None:
        self._network, self.what, self.names, self.concerns = network, what, frozenset(names), concerns
        self.loss, self.mtu, self.is_silent = loss, mtu, silent
        self.latency: Sampler | None = None if latency is None else sampler(latency, "link.latency")
        self.healed: Callable[[], None] = lambda: None  # is told, once

    def heal(self) -> None:
        """Mend the links, unless another fault concerns them too."""
        if self in self._network.faults:
            self._network.remove(self)
            self.healed()


class _Way(NamedTuple):
    """From one address to another: where both are in the network, and what concerns the link, until that changes."""

    source: int
    target: int
    rules: Sequence[LinkFault]
    mtu: int  # of the link, as far as a sender can know


class SimulatedNetwork:
    """Carries packets between the sockets of a world."""

    def __init__(self, kernel: Kernel, seed: int, options: NetworkOptions) -> None:
        self._kernel = kernel
        self._chance = random.Random(f"{seed}/network")
        self._rules_chance = random.Random(f"{seed}/links")
        self._places: dict[Address, int] = {}  # of addresses in the network
        self._addresses: list[Address] = []  # by place
        self._numbers = 0
        self._bound: dict[Address, SimulatedSocket] = {}  # by address
        self._groups: dict[Address, list[SimulatedSocket]] = {}  # by multicast address
        self._free_port = _FIRST_FREE_PORT
        self._last_bound: SimulatedSocket | None = None
        self.closed: Callable[[SimulatedSocket], None] = lambda one: None  # is told of sockets that are closed
        self.owners: dict[str, str] = {}  # by address, the name of whoever took it last
        self.faults: list[LinkFault] = []
        self._ways: dict[tuple[Address, Address], _Way] = {}  # as long as nothing changes
        self.offload = False  # whether hosts cut and gather packets
        self.fragments = True  # whether a packet that is too large for its link is fragmented, or vanishes
        self.interface_mtu = MTU  # the largest packet, headers included, that leaves a machine
        self.recorded: deque[Packet] = deque(maxlen=0)  # set a length to keep packets for a replay
        self.counts: Counter[str] = Counter()  # of networks that gave way to others, and of what happens above them
        self.options = options
        self._size = _PLACES
        self._network = self._lay()

    def _lay(self) -> Network:
        return Network(self._kernel, self._size, self.options, self._chance, self._arrive)

    def change(self, **options: Any) -> None:
        """Change the network's qualities from now on; packets under way are not affected."""
        self.options = msgspec.structs.replace(self.options, **options)
        self.options.check(self._size)
        self.counts.update(self._network.counts)
        self._network = self._lay()

    @property
    def all_counts(self) -> dict[str, int]:
        """What was sent, and what became of what did not arrive once and in time."""
        return dict(sorted((self.counts + Counter(self._network.counts)).items()))

    # Sockets

    def socket(self, family: int) -> SimulatedSocket:
        """Make a socket."""
        self._numbers += 1
        return SimulatedSocket(self, self._numbers, family)

    def bind(self, one: SimulatedSocket, address: Address) -> None:
        """Give a socket an address; a multicast address may have many."""
        host, port = address[0], address[1]
        if _is_multicast(host):
            one.address = host, port
            self._groups.setdefault(one.address, []).append(one)
            return
        if not port:
            self._free_port += 1
            port = self._free_port
        elif one.incarnation is None:
            one.incarnation = Incarnation(show((host, port)))
        if (host, port) in self._bound:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        one.address = host, port
        if address[1]:
            self._last_bound = one
        self._hold(one, one.address)

    def _hold(self, one: SimulatedSocket, address: Address) -> None:
        self._ways.clear()
        self._bound[address] = one
        self.owners[show(address)] = address[0] if one.incarnation is None else one.incarnation.name
        self._place(address)

    def known_as(self, text: str) -> SimulatedSocket:
        """Return the socket of the member known by an address, wherever it is bound now."""
        address = parse(text, "address")
        if address not in self._bound:
            assert self._last_bound is not None
            self._hold(self._last_bound, address)
        return self._bound[address]

    def unbind(self, one: SimulatedSocket) -> None:
        """Free a socket's addresses."""
        for address in [address for address, bound in self._bound.items() if bound is one]:
            del self._bound[address]
        if one.address is not None and one in self._groups.get(one.address, ()):
            self._groups[one.address].remove(one)
        self.closed(one)

    def sockets(self) -> Iterator[SimulatedSocket]:
        """Give all sockets that have an address."""
        yield from list(self._bound.values())
        for group in self._groups.values():
            yield from list(group)

    def socket_of(self, descriptor: int) -> SimulatedSocket | None:
        """Find a socket by the number that the loop knows."""
        return next((one for one in self.sockets() if one.fileno() == descriptor), None)

    def _names_of(self, address: Address) -> Sequence[str]:
        """Give the names under which faults may speak of an address: its own and its process's.

        A free port that was taken outside any process is meant by all addresses of its machine.
        """
        text, (host, port) = show(address), address
        owner = self.owners.get(text, text)
        if owner != host and port:
            return text, owner
        named = (name for fault in self.faults for name in fault.names)
        return text, *(name for name in named if name.rpartition(":")[0] == host)

    # Packets

    def send(self, packet: Packet, *, whole: bool = False) -> None:
        """Let a packet travel; `whole`: raise if it does not fit the link, rather than fragment it."""
        group = self._groups.get(packet.target) if self._groups else None
        if group is not None:
            for one in list(group):
                copy = Packet(packet)
                copy.source, copy.target, copy.heard_by = packet.source, packet.target, one
                self._send_to(copy, self._home(one))
            return
        if whole and _bytes_on_the_way(packet) > self.mtu(packet.source, packet.target):
            raise OSError(errno.EMSGSIZE, os.strerror(errno.EMSGSIZE))
        self._send_to(packet, packet.target)

    def inject(self, data: bytes, source: Address, target: Address) -> None:
        """Let a stranger send a packet that claims to come from an address."""
        packet = Packet(data)
        packet.source, packet.target = source, target
        self._kernel.after(0, self._arrive, (self._place(target), packet))

    def _home(self, one: SimulatedSocket) -> Address:
        """Give an address by which faults know the host of a socket that hears a multicast address."""
        others = (
            other
            for other, bound in self._bound.items()
            if one.incarnation is not None and bound.incarnation is one.incarnation
        )
        return next(others, (one.interface, 0))

    def _send_to(self, packet: Packet, target: Address) -> None:
        if self.recorded.maxlen:
            self.recorded.append(packet)
        delay, way = 0, self._way(packet.source, target)
        for rule in way.rules:
            if rule.loss and (rule.loss >= 1 or self._rules_chance.random() < rule.loss):
                self.counts["cut" if rule.loss >= 1 else "lost"] += 1
                return
            if _bytes_on_the_way(packet) > rule.mtu and (rule.is_silent or not self.fragments):
                self.counts["too-large"] += 1
                return
            if rule.latency is not None:
                delay += rule.latency(self._rules_chance)
        if delay:
            self._kernel.after(delay, self._travel, (way, packet))
        else:
            self._network.send(way.source, (way.target,), packet)

    def _travel(self, travelling: tuple[_Way, Packet]) -> None:
        way, packet = travelling
        self._network.send(way.source, (way.target,), packet)

    def mtu(self, source: Address, target: Address) -> int:
        """Give the largest packet, headers and all, that fits the link as far as its sender can know."""
        return min(self.interface_mtu, self._way(source, target).mtu)

    def _way(self, source: Address, target: Address) -> _Way:
        way = self._ways.get((source, target))
        if way is None:
            one, other = self._names_of(source), self._names_of(target)
            rules = [fault for fault in self.faults if fault.concerns(one, other)]
            mtu = min((rule.mtu for rule in rules if not rule.is_silent), default=MTU_MAX)
            way = self._ways[source, target] = _Way(self._place(source), self._place(target), rules, mtu)
        return way

    def _arrive(self, arrival: tuple[int, bytes]) -> None:
        packet = arrival[1]
        assert type(packet) is Packet
        one = packet.heard_by or self._bound.get(self._addresses[arrival[0]])
        if one is not None and not one.closed and not one.arrive(packet):
            self.counts["overrun"] += 1

    def _place(self, address: Address) -> int:
        place = self._places.get(address)
        if place is None:
            place = self._places[address] = len(self._addresses)
            self._addresses.append(address)
            if place >= self._size:
                self._size *= 2
                self.change()
        return place

    # Faults

    def partition(self, *groups: Sequence[str]) -> LinkFault:
        """Split the network: different groups cannot hear each other; whoever is in no group is in one more."""
        sides = [_names(group) for group in groups]
        if sum(map(len, sides)) > len(set().union(*sides)):
            raise UsageError("partition: a member is in two groups")

        def side(names: Collection[str]) -> int:
            return next((index for index, group in enumerate(sides) if not group.isdisjoint(names)), -1)

        what = " | ".join(", ".join(sorted(group)) for group in sides)
        names = set().union(*sides)
        return self._add(
            LinkFault(self, f"partition {what}", names, lambda source, target: side(source) != side(target))
        )

    def link(self, source: Sequence[str], target: Sequence[str], what: str, **rule: Any) -> LinkFault:
        """Let the links from some to others behave otherwise, in this direction only."""
        ends = _names(source), _names(target)
        what = f"{what} from {', '.join(sorted(ends[0]))} to {', '.join(sorted(ends[1]))}"
        return self._add(
            LinkFault(
                self,
                what,
                ends[0] | ends[1],
                lambda one, other: not ends[0].isdisjoint(one) and not ends[1].isdisjoint(other),
                **rule,
            )
        )

    def _add(self, fault: LinkFault) -> LinkFault:
        self._ways.clear()
        self.faults.append(fault)
        return fault

    def remove(self, fault: LinkFault) -> None:
        """Let a fault concern nothing any more."""
        self._ways.clear()
        self.faults.remove(fault)


def _bytes_on_the_way(packet: Packet) -> int:
    return len(packet) + headers_of(packet.target[0])


def _names(group: Sequence[str]) -> set[str]:
    return {group} if isinstance(group, str) else set(group)


@lru_cache(maxsize=64)
def _is_multicast(host: str) -> bool:
    try:
        return ip_address(host).is_multicast
    except ValueError:
        return False  # a name
