"""The burst in plain Python: one heap with one entry per busy link."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush, heapreplace

from antiphon.sim.lan import ROUTER_NS, message_bytes, receive_ns, send_ns, wire_ns
from antiphon.sim.trees import Tree


def run(tree: Tree) -> tuple[int, int]:
    """Every host multicasts at time 0; returns the hops and when the last host is done."""
    size = message_bytes(len(tree))
    send, receive, wire = send_ns(size), receive_ns(size), wire_ns(size)
    targets: list[int] = []  # of each directed link; its reverse differs in the last bit
    out: list[list[int]] = [[] for _ in tree.parents]
    for child, parent in enumerate(tree.parents):
        if parent >= 0:
            out[parent].append(len(targets))
            out[child].append(len(targets) + 1)
            targets += [child, parent]
    onward = [[link for link in out[target] if link != number ^ 1] for number, target in enumerate(targets)]
    queues: list[deque[int]] = [deque() for _ in targets]
    busy = [True] * len(targets)
    free = [send + receive] * len(tree)
    events = [(send + wire, link) for link in range(len(targets))]  # equal times: already a heap
    hops = 0
    while events:
        now, link = events[0]
        hops += 1
        target = targets[link]
        free[target] = max(free[target], now) + receive
        queue = queues[link]
        if queue:
            heapreplace(events, (max(queue.popleft(), now) + wire, link))
        else:
            busy[link] = False
            heappop(events)
        ready = now + ROUTER_NS
        for following in onward[link]:
            if busy[following]:
                queues[following].append(ready)
            else:
                busy[following] = True
                heappush(events, (ready + wire, following))
    return hops, max(free)
