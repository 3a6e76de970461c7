"""The burst in SimPy at its best: callbacks instead of processes, and one pending timeout per busy link."""

from __future__ import annotations

from collections import deque
from typing import Any

import simpy

from antiphon.sim.lan import ROUTER_NS, message_bytes, receive_ns, send_ns, wire_ns
from antiphon.sim.trees import Tree


class Node:
    __slots__ = ("free_ns", "links", "received")

    def __init__(self, free_ns: int) -> None:
        self.links: list[Link] = []
        self.free_ns = free_ns  # the processor is first come first served, so no event is needed for it
        self.received = 0


class Link:
    __slots__ = ("back", "busy", "env", "hops", "queue", "target", "wire_ns", "work_ns")

    def __init__(self, env: Any, target: Node, wire_ns: int, work_ns: int) -> None:
        self.env, self.target, self.wire_ns, self.work_ns = env, target, wire_ns, work_ns
        self.queue: deque[int] = deque()
        self.busy = False
        self.back: Link | None = None
        self.hops = 0

    def offer(self, ready_ns: int) -> None:
        if self.busy:
            self.queue.append(ready_ns)
        else:
            self.busy = True
            self.env.timeout(ready_ns + self.wire_ns - self.env.now).callbacks.append(self.done)

    def done(self, _: simpy.Event) -> None:
        now = self.env.now
        self.hops += 1
        target = self.target
        free = target.free_ns
        target.free_ns = (free if free > now else now) + self.work_ns
        ready = now + ROUTER_NS
        back = self.back
        for link in target.links:
            if link is not back:
                link.offer(ready)
        if self.queue:
            ready = self.queue.popleft()
            start = ready if ready > now else now
            self.env.timeout(start + self.wire_ns - now).callbacks.append(self.done)
        else:
            self.busy = False


def run(tree: Tree) -> tuple[int, int]:
    """Every host multicasts at time 0; returns the hops and when the last host is done."""
    size = message_bytes(len(tree))
    env: Any = simpy.Environment()  # untyped: its clock is a float to mypy, and whole nanoseconds here
    # A host's own message is sent and its own copy queued before anything can arrive.
    nodes = [Node(send_ns(size) + receive_ns(size)) for _ in range(len(tree))]
    links = []
    for child, parent in enumerate(tree.parents):
        if parent >= 0:
            down = Link(env, nodes[child], wire_ns(size), receive_ns(size))
            up = Link(env, nodes[parent], wire_ns(size), receive_ns(size))
            down.back, up.back = up, down
            nodes[parent].links.append(down)
            nodes[child].links.append(up)
            links += [down, up]

    def start(_: simpy.Event) -> None:
        for link in links:
            link.offer(env.now)

    env.timeout(send_ns(size)).callbacks.append(start)
    env.run()
    return sum(link.hops for link in links), max(node.free_ns for node in nodes)
