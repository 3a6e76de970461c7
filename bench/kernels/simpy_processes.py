"""The burst in SimPy as its documentation teaches it: processes, and a Store as the queue of each."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import simpy

from antiphon.sim.lan import ROUTER_NS, message_bytes, receive_ns, send_ns, wire_ns
from antiphon.sim.trees import Tree

Process = Generator[simpy.Event, Any, None]


class Network:
    def __init__(self, tree: Tree) -> None:
        size = message_bytes(len(tree))
        self.send_ns, self.receive_ns, self.wire_ns = send_ns(size), receive_ns(size), wire_ns(size)
        self.env = simpy.Environment()
        self.inboxes = [simpy.Store(self.env) for _ in tree.parents]
        self.links: list[dict[int, simpy.Store]] = [{} for _ in tree.parents]
        self.hops = 0
        for child, parent in enumerate(tree.parents):
            if parent >= 0:
                for source, target in ((child, parent), (parent, child)):
                    self.links[source][target] = simpy.Store(self.env)
                    self.env.process(self.link(source, target))
        for node in range(len(tree)):
            self.env.process(self.host(node))

    def host(self, node: int) -> Process:
        yield self.env.timeout(self.send_ns)
        for link in self.links[node].values():
            link.put("INFO")
        self.inboxes[node].put("INFO")
        while True:
            yield self.inboxes[node].get()
            yield self.env.timeout(self.receive_ns)

    def link(self, source: int, target: int) -> Process:
        while True:
            message = yield self.links[source][target].get()
            yield self.env.timeout(self.wire_ns)
            self.hops += 1
            self.inboxes[target].put(message)
            if len(self.links[target]) > 1:
                self.env.process(self.route(target, source, message))

    def route(self, node: int, source: int, message: str) -> Process:
        yield self.env.timeout(ROUTER_NS)
        for target, link in self.links[node].items():
            if target != source:
                link.put(message)


def run(tree: Tree) -> tuple[int, int]:
    """Every host multicasts at time 0; returns the hops and when the last host is done."""
    network = Network(tree)
    network.env.run()
    return network.hops, int(network.env.now)
