"""The local network of the hierarchical stability paper: hosts, routers and links on a tree, in whole nanoseconds.

What costs time, and where:

- a host has one processor that takes sends and receipts in the order in which they come;
- a node that passes a message on delays it by one millisecond, as many at a time as there are;
- each direction of a link carries one message at a time, first come first served, and hands it over complete;
- a multicast is charged to its sender once and then follows the tree; the sender's own copy costs a receipt.

Simultaneous events have one defined order at every node: its own processor, then its router, then arrivals; among
the latter two what comes from the parent, then from the children left to right. So a run depends on nothing but the
tree and the hosts, and a compiled kernel can equal it exactly.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, Literal, Protocol, get_args

import msgspec

from antiphon.errors import UsageError
from antiphon.sim.trees import Tree

HEADER_BYTES = 32
ROUTER_NS = 1_000_000

_PROCESSOR, _ROUTER, _ARRIVAL = range(3)  # the order of simultaneous events at a node
_OWN = -1  # the port by which a node's own messages come


def message_bytes(n: int) -> int:
    """The size of an ACK or INFO in a group of n: one 4-byte number a member, and the header."""
    return 4 * n + HEADER_BYTES


def send_ns(size: int) -> int:
    """t_s(u) = 338 + 47u/400 microseconds: what sending u bytes (header included) costs a host."""
    return (676_000 + 235 * size) // 2


def receive_ns(size: int) -> int:
    """t_r(u) = 1.1 t_s(u): what receiving u bytes costs a host."""
    return (1_487_200 + 517 * size) // 4


def wire_ns(size: int) -> int:
    """The time that u bytes need on a link of 100 Mbps."""
    return 80 * size


class LanSend(msgspec.Struct, frozen=True):
    """What a host asks of the network: `body`, of `size` bytes with its header, to one node or (None) to all."""

    to: int | None
    size: int
    body: Any


class LanMessage(msgspec.Struct, frozen=True):
    """What a host receives."""

    sender: int
    size: int
    body: Any


class LanHost(Protocol):
    """What runs on a node; both methods return what it sends."""

    def on_start(self, now: int) -> Sequence[LanSend]:
        """Called once, at time 0."""

    def on_receive(self, message: LanMessage, now: int) -> Sequence[LanSend]:
        """Called when the processor has finished receiving the message."""


class TimedHost(LanHost, Protocol):
    """A host that notes when a round begins and ends for it."""

    begun_ns: int | None
    ended_ns: int | None


class LanTraffic(msgspec.Struct, frozen=True):
    """What a run did to the network."""

    hops: int  # messages on all hops
    link_queue_max: int  # the most messages waiting for, or on, one direction of a link
    host_queue_max: int  # the most sends and receipts waiting for, or in, one processor
    ended_ns: int


class _Server:
    """One first-come-first-served resource: a processor, or one direction of a link."""

    __slots__ = ("free_ns", "pending", "queue_max")

    def __init__(self) -> None:
        self.free_ns = 0
        self.pending: deque[int] = deque()  # when each one taken in will be finished
        self.queue_max = 0

    def take(self, now: int, cost_ns: int) -> int:
        """Queue a job that comes now; return when it will be done."""
        pending = self.pending
        while pending and pending[0] <= now:
            pending.popleft()
        self.free_ns = max(self.free_ns, now) + cost_ns
        pending.append(self.free_ns)
        if len(pending) > self.queue_max:
            self.queue_max = len(pending)
        return self.free_ns


class _Flight(msgspec.Struct, frozen=True):
    """A message under way and, unless it is a multicast, the port by which each node on its path passes it on."""

    message: LanMessage
    wire_ns: int
    receive_ns: int
    ports: dict[int, int] | None


class Lan:
    """The network on one tree; `run` drives one host object per node until nothing is left to happen."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        # A node's ports: the parent, then the children from left to right. `_ports[node][neighbour]` numbers them.
        self._ports: list[dict[int, int]] = []
        for node, parent in enumerate(tree.parents):
            neighbours = ([parent] if parent >= 0 else []) + tree.children[node]
            self._ports.append({neighbour: port for port, neighbour in enumerate(neighbours)})

    def run(self, hosts: Sequence[LanHost]) -> LanTraffic:
        """Start every host at time 0 and return the traffic that followed."""
        assert len(hosts) == len(self.tree), "one host a node"
        # An event is (time, kind, node, port, what): the first four are never all equal, so `what` is not compared.
        events: list[tuple[int, int, int, int, Any]] = []
        processors = [_Server() for _ in hosts]
        # What a node needs to send on a port: the link, the node at its end, and the port by which it comes in there.
        links = [
            [(_Server(), neighbour, self._ports[neighbour][node]) for neighbour in ports]
            for node, ports in enumerate(self._ports)
        ]
        hops = now = 0

        def submit(node: int, sends: Sequence[LanSend]) -> None:
            for send in sends:
                done = processors[node].take(now, send_ns(send.size))
                heapq.heappush(events, (done, _PROCESSOR, node, _OWN, send))

        def receive(node: int, flight: _Flight) -> None:
            done = processors[node].take(now, flight.receive_ns)
            heapq.heappush(events, (done, _PROCESSOR, node, _OWN, flight.message))

        def put_on_links(node: int, port_in: int, flight: _Flight) -> None:
            nonlocal hops
            for port in range(len(links[node])) if flight.ports is None else (flight.ports[node],):
                if port != port_in:
                    link, target, target_port = links[node][port]
                    arrives = link.take(now, flight.wire_ns)
                    heapq.heappush(events, (arrives, _ARRIVAL, target, target_port, flight))
                    hops += 1

        for node, host in enumerate(hosts):
            submit(node, host.on_start(now))
        while events:
            now, kind, node, port, what = heapq.heappop(events)
            if kind == _ARRIVAL:
                passed_on = len(links[node]) > 1 if what.ports is None else node in what.ports
                if passed_on:
                    heapq.heappush(events, (now + ROUTER_NS, _ROUTER, node, port, what))
                if what.ports is None or not passed_on:
                    receive(node, what)
            elif kind == _ROUTER:
                put_on_links(node, port, what)
            elif isinstance(what, LanMessage):
                submit(node, hosts[node].on_receive(what, now))
            else:
                flight = self._launch(node, what)
                if flight.ports is None:
                    receive(node, flight)
                put_on_links(node, _OWN, flight)
        return LanTraffic(
            hops=hops,
            link_queue_max=max(link.queue_max for ports in links for link, _, _ in ports),
            host_queue_max=max(processor.queue_max for processor in processors),
            ended_ns=now,
        )

    def _launch(self, sender: int, send: LanSend) -> _Flight:
        ports = None
        if send.to is not None:
            path = self.tree.path(sender, send.to)
            assert len(path) > 1, "a host does not send to itself"
            ports = {node: self._ports[node][following] for node, following in pairwise(path)}
        return _Flight(LanMessage(sender, send.size, send.body), wire_ns(send.size), receive_ns(send.size), ports)


class LanRound(msgspec.Struct, frozen=True):
    """One execution of a stability protocol: its round-trip time at the root, and its traffic."""

    rtt_ns: int
    traffic: LanTraffic


# parts: the very parts that members are made of; objects: hosts reduced to who sends when; kernel: compiled. All agree.
Engine = Literal["auto", "parts", "objects", "kernel"]

# The stability protocols that run in rounds on this network, by the names of the command line, and the paper's names.
ROUND_PROTOCOLS = {
    "coordinator": "CoordP",
    "full-distribution": "FullDist",
    "train": "Train",
    "tree-coordinator": "S_CoordP",
    "tree-train": "S_Train",
}

_HOPS_IN_PYTHON = 50_000  # about a second; beyond that a kernel is worth its compilation


def run_round(tree: Tree, stability: str, engine: Engine = "auto") -> LanRound:
    """One round of a stability protocol on a network at rest."""
    if stability not in ROUND_PROTOCOLS:
        raise UsageError(
            f"stability {stability!r} does not run in rounds; the LAN model runs {', '.join(ROUND_PROTOCOLS)}"
        )
    if engine not in get_args(Engine):
        raise UsageError(f"engine {engine!r}: choose one of {', '.join(get_args(Engine))}")
    if engine == "auto":
        hops = len(tree) ** 2 if stability == "full-distribution" else 2 * len(tree) + sum(tree.depths)
        engine = "parts" if hops <= _HOPS_IN_PYTHON else "kernel" if find_spec("numba") else "objects"
    if engine == "kernel":
        from antiphon.sim.kernels import run_kernel

        return run_kernel(tree, stability)
    hosts: Sequence[TimedHost]
    if engine == "parts":
        from antiphon.sim.part_hosts import part_hosts

        hosts = part_hosts(tree, stability)
    else:
        from antiphon.sim.rounds import ROUND_HOSTS

        hosts = [ROUND_HOSTS[stability](tree, node) for node in range(len(tree))]
    traffic = Lan(tree).run(hosts)
    root = hosts[tree.root]
    assert root.begun_ns is not None, "a round begins"
    assert root.ended_ns is not None, "a round that nothing disturbs comes to its end"
    return LanRound(root.ended_ns - root.begun_ns, traffic)


def simulate_rounds(tree: Tree, stability: str, rounds: int, engine: Engine = "auto") -> list[dict[str, int]]:
    """Rounds of a stability protocol one after the other: round-trip time, messages on all hops, largest network queue.

    >>> from antiphon.sim.trees import near_complete
    >>> simulate_rounds(near_complete(2, 5, 1), "tree-train", 1)
    [{'rtt_ns': 15882450, 'hops': 153, 'queue_max': 1}]
    """
    if rounds < 1:
        raise UsageError(f"rounds {rounds}: at least one round is needed")
    # A round starts when the network has come to rest and nothing in it is random, so each one repeats the first.
    first = run_round(tree, stability, engine)
    return [
        {"rtt_ns": first.rtt_ns, "hops": first.traffic.hops, "queue_max": first.traffic.link_queue_max}
        for _ in range(rounds)
    ]
