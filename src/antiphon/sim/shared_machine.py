"""A group with views whose members share the cores of one machine, so that they may have more to do than it can.

A member takes its turn when a core is free: it is given all that has come for it, a timer that is due, and what its
application wants to send. A turn takes time, by what was taken in, delivered and sent, and what follows from it leaves
when the turn is over: one packet for each receiver, as live. So timers go off late, packets wait in sockets, and
whoever says less leaves time for others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec

from antiphon.protocol.machine import Deliver, Duration, Effect, Instant, ReceiveMany, Send, Wake
from antiphon.sim.cluster import Node
from antiphon.sim.scenario import Scenario
from antiphon.sim.view_cluster import ViewCluster

_PACKETS_MAX = 64  # that one turn takes in
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[bytes]).decode


class MachineOptions(msgspec.Struct, frozen=True):
    """How many cores there are, and how long what takes."""

    cores: int = 2
    turn_ns: Duration = 40_000  # for anything at all
    receive_ns: Duration = 15_000  # for each packet that is taken in
    send_ns: Duration = 10_000  # for each packet that is sent
    datagram_ns: Duration = 10_000  # for each datagram in a packet, whichever way it goes
    deliver_ns: Duration = 10_000  # for each message


class SharedMachineCluster(ViewCluster):
    """Members in simulated time, on one simulated machine."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        machine: MachineOptions,
        drop: Callable[[int, int, bytes, Instant], bool] | None = None,
    ) -> None:
        self._machine, self._free_cores = machine, machine.cores
        self._sockets: list[deque[bytes]] = [deque() for _ in range(scenario.members)]
        self._ready: dict[int, None] = {}  # who has something to do, in the order in which they get a core
        self._running: set[int] = set()  # who has one now
        self._turn: dict[int, list[bytes]] | None = None  # what the turn that is computed sends, by receiver
        self._turn_ns: Duration = 0
        super().__init__(scenario, seed, drop)

    # What a member is to do waits until it has a core

    def _arrive(self, arrival: tuple[int, bytes]) -> None:
        me, packet = arrival
        if self.nodes[me].paused or self.nodes[me].crashed:
            super()._arrive(arrival)
        else:
            self._sockets[me].append(packet)
            self._let_run(me)

    def _wake(self, me: int) -> None:
        node = self.nodes[me]
        if node.crashed or node.paused or not self._is_due(node):
            super()._wake(me)
        else:
            if node.wake_at == self.kernel.now:
                node.wake_at = None
            self._let_run(me)

    def _submit_backlog(self, me: int, node: Node) -> None:
        if self._turn is not None:
            super()._submit_backlog(me, node)
        else:
            self._let_run(me)

    def _is_due(self, node: Node) -> bool:
        deadline = node.member.deadline
        return deadline is not None and deadline <= node.clock.read(self.kernel.now)

    # Cores

    def _let_run(self, me: int) -> None:
        self._ready[me] = None
        self._give_cores()

    def _give_cores(self) -> None:
        for me in [me for me in self._ready if me not in self._running][: self._free_cores]:
            del self._ready[me]
            self._take_turn(me)

    def _take_turn(self, me: int) -> None:
        """Compute a turn, and let what it sends leave when it is over."""
        node, machine, socket = self.nodes[me], self._machine, self._sockets[me]
        self._free_cores -= 1
        self._running.add(me)
        packets = [socket.popleft() for _ in range(min(len(socket), _PACKETS_MAX))]
        datagrams = [datagram for packet in packets for datagram in _decode(packet)]
        sends: dict[int, list[bytes]] = {}
        self._turn, self._turn_ns = sends, machine.turn_ns + machine.receive_ns * len(packets)
        self._turn_ns += machine.datagram_ns * len(datagrams)
        if not node.crashed and not node.paused:
            if datagrams:
                self.drive(me, node, ReceiveMany(datagrams))
            if node.backlog and node.member.room:
                super()._submit_backlog(me, node)
            if self._is_due(node):
                self.drive(me, node, Wake())
        self._turn = None
        self._turn_ns += machine.send_ns * len(sends) + machine.datagram_ns * sum(map(len, sends.values()))
        self.kernel.after(self._turn_ns, self._end_turn, (me, sends))

    def _carry_out(self, me: int, effect: Effect) -> None:
        if type(effect) is Send and self._turn is None:  # its first word, when it starts
            self.network.send(me, effect.to, _encode([effect.datagram]))
        elif type(effect) is Send and self._turn is not None:
            for name in range(self.scenario.members) if effect.to is None else effect.to:
                if name != me:
                    self._turn.setdefault(name, []).append(effect.datagram)
        else:
            if type(effect) is Deliver:
                self._turn_ns += self._machine.deliver_ns
            super()._carry_out(me, effect)

    def _end_turn(self, turn: tuple[int, dict[int, list[bytes]]]) -> None:
        me, sends = turn
        for name, datagrams in sends.items():
            self.network.send(me, (name,), _encode(datagrams))
        self._free_cores += 1
        self._running.remove(me)
        node = self.nodes[me]
        if self._sockets[me] or (not node.crashed and not node.paused and self._is_due(node)):
            self._ready[me] = None
        self._give_cores()
