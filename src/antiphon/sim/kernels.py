"""Compiled kernels for rounds on the LAN model: equal to the event-driven model to the nanosecond, without an event.

On a tree, what a link carries away from a node depends only on what the node's other links bring to it. So the links
can be taken in topological order, upwards and then downwards, each one a pass over sorted arrivals with
`free = max(arrival + router, free) + wire`; no heap, and at a tie the order of the event-driven model.

That needs the times at which hosts send. In four protocols they follow from the tree. In FullDist a host sends when it
has received the root's INFO, behind whatever was queued before it; there the kernel assumes send times, computes all
arrivals, derives the send times that these imply, and repeats until both agree. An agreement is the truth, not an
approximation: a send time depends only on what was sent earlier by at least a wire and a receipt, so two consistent
schedules cannot differ first anywhere. For the same reason every repetition extends the part of the schedule that is
right by that much, and the repetitions end; above a few hundred members the first assumption is already right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from antiphon.errors import UsageError
from antiphon.sim.lan import (
    HEADER_BYTES,
    ROUTER_NS,
    LanRound,
    LanTraffic,
    message_bytes,
    receive_ns,
    send_ns,
    wire_ns,
)
from antiphon.sim.trees import Tree

try:
    from numba import njit
except ImportError as missing:
    raise UsageError(
        "the compiled kernels need numba; install antiphon[fast], or choose the engine 'objects'"
    ) from missing

MEMORY_MAX_BYTES = 8 << 30

Ints = np.ndarray[Any, np.dtype[np.int64]]
Function = TypeVar("Function", bound=Callable[..., Any])

if TYPE_CHECKING:

    def compiled(function: Function) -> Function:
        """Numba's decorator, which mypy cannot see through."""
        return function

else:
    compiled = njit(cache=True, nogil=True)


class _Layout:
    """A tree as arrays, its nodes renumbered level by level so that a parent comes before its children."""

    def __init__(self, tree: Tree) -> None:
        n = len(tree)
        order = np.array(tree.order, dtype=np.int64)
        place = np.empty(n, dtype=np.int64)
        place[order] = np.arange(n)
        self.n = n
        parents = np.array(tree.parents, dtype=np.int64)[order]
        self.parents = np.where(parents < 0, -1, place[parents])
        self.depths = np.array(tree.depths, dtype=np.int64)[order]
        # The children of a node are consecutive: first_child[v] up to first_child[v + 1].
        degrees = np.bincount(self.parents[1:], minlength=n)
        self.first_child = np.concatenate(([1], 1 + np.cumsum(degrees))).astype(np.int64)
        self.sizes = _subtree_sizes(self.parents)
        self.circle = place[np.array(tree.circle, dtype=np.int64)]


class _Costs:
    """The times of the messages of one group size."""

    def __init__(self, n: int) -> None:
        size = message_bytes(n)
        self.send, self.receive, self.wire = send_ns(size), receive_ns(size), wire_ns(size)


def run_kernel(tree: Tree, stability: str) -> LanRound:
    """One round of a stability protocol, as the event-driven model would run it."""
    return _KERNELS[stability](_Layout(tree), _Costs(len(tree)))


def run_burst(tree: Tree) -> LanTraffic:
    """Every host multicasts at time 0: the traffic of FullDist without its rule for when to send."""
    layout, costs = _Layout(tree), _Costs(len(tree))
    sends = np.full(layout.n, costs.send, dtype=np.int64)
    implied, _, traffic = _everyone_multicasts(layout, costs, sends, at_once=True)
    assert np.array_equal(sends, implied), "a host that is asked at time 0 is idle"
    return traffic


def _started(layout: _Layout) -> Ints:
    """When each host has received START: it meets no other message on its way down."""
    sent = send_ns(HEADER_BYTES)
    travel = layout.depths * wire_ns(HEADER_BYTES) + np.maximum(layout.depths - 1, 0) * ROUTER_NS
    started: Ints = sent + travel + receive_ns(HEADER_BYTES)
    return started


def _ended(layout: _Layout, costs: _Costs, info_sent: int, started: Ints) -> tuple[int, int]:
    """The round-trip time at the root and the end of the whole round, given when the root's final INFO is sent."""
    height = int(layout.depths[-1])
    rtt = info_sent + costs.receive - int(started[0])
    return rtt, info_sent + height * costs.wire + (height - 1) * ROUTER_NS + costs.receive


def _coordinator(layout: _Layout, costs: _Costs) -> LanRound:
    started = _started(layout)
    sends = started + costs.send
    times, ports, offsets = _upward_room(layout)
    acks, queue = _climb(layout.parents, layout.first_child, layout.sizes, offsets, sends, times, ports, costs.wire)
    at_root = times[: layout.n - 1]  # the root's region is the first
    last, delay = _serve(at_root, costs.receive, started[0])
    rtt, ended = _ended(layout, costs, last + costs.send, started)
    hops = acks + 2 * (layout.n - 1)
    return LanRound(rtt, LanTraffic(int(hops), int(queue), max(1, -(-delay // costs.receive)), ended))


def _full_distribution(layout: _Layout, costs: _Costs) -> LanRound:
    # First assumption: the root's INFO meets nothing on its way, and nothing else comes while a host receives it.
    travel = layout.depths * costs.wire + np.maximum(layout.depths - 1, 0) * ROUTER_NS
    sends = costs.send + travel + costs.receive + costs.send
    sends[0] = costs.send
    while True:
        implied, rtt, traffic = _everyone_multicasts(layout, costs, sends, at_once=False)
        if np.array_equal(sends, implied):
            return LanRound(rtt, traffic)
        sends = implied


def _everyone_multicasts(layout: _Layout, costs: _Costs, sends: Ints, at_once: bool) -> tuple[Ints, int, LanTraffic]:
    """Every host's INFO, sent at the times assumed: the send times that the arrivals imply, the RTT, the traffic."""
    times, ports, offsets = _upward_room(layout)
    tree = (layout.first_child, layout.sizes, offsets)
    up_hops, up_queue = _climb(layout.parents, *tree, sends, times, ports, costs.wire)
    implied = np.empty_like(sends)
    down_hops, down_queue, host_queue, rtt, ended = _descend(
        *tree, sends, times, ports, costs.send, costs.receive, costs.wire, at_once, implied
    )
    queue = int(max(up_queue, down_queue))
    return implied, int(rtt), LanTraffic(int(up_hops + down_hops), queue, int(host_queue), int(ended))


def _train(layout: _Layout, costs: _Costs) -> LanRound:
    circle = int(_circle_hops(layout.parents, layout.depths, layout.circle))
    # One message is under way at a time, so nothing waits for anything.
    rtt = layout.n * (costs.send + costs.receive) + circle * costs.wire + (circle - layout.n) * ROUTER_NS
    return LanRound(rtt, LanTraffic(2 * circle, 1, 1, 2 * rtt))


def _tree_coordinator(layout: _Layout, costs: _Costs) -> LanRound:
    started = _started(layout)
    ready, queue = _collect(layout.first_child, started, costs.send, costs.receive, costs.wire)
    rtt, ended = _ended(layout, costs, int(ready) + costs.send, started)
    return LanRound(rtt, LanTraffic(3 * (layout.n - 1), 1, int(queue), ended))


def _tree_train(layout: _Layout, costs: _Costs) -> LanRound:
    started = _started(layout)
    ready, acks, queue = _pass_up(layout.first_child, started, costs.send, costs.receive, costs.wire)
    rtt, ended = _ended(layout, costs, int(ready) + costs.send, started)
    return LanRound(rtt, LanTraffic(int(acks) + 2 * (layout.n - 1), 1, int(queue), ended))


_KERNELS: dict[str, Callable[[_Layout, _Costs], LanRound]] = {
    "coordinator": _coordinator,
    "full-distribution": _full_distribution,
    "train": _train,
    "tree-coordinator": _tree_coordinator,
    "tree-train": _tree_train,
}


def _upward_room(layout: _Layout) -> tuple[Ints, Any, Ints]:
    """Room for what each node v hears from its children: sizes[v] - 1 arrivals from offsets[v] on, and their ports."""
    offsets = np.concatenate(([0], np.cumsum(layout.sizes - 1))).astype(np.int64)
    entries = int(offsets[-1])
    if entries * 12 > MEMORY_MAX_BYTES:
        raise UsageError(
            f"a tree of {layout.n} nodes this deep needs {entries * 12 >> 30} GiB; choose a flatter or smaller one"
        )
    return np.empty(entries, dtype=np.int64), np.empty(entries, dtype=np.int32), offsets


@compiled
def _subtree_sizes(parents: Any) -> Any:
    sizes = np.ones(len(parents), dtype=np.int64)
    for v in range(len(parents) - 1, 0, -1):
        sizes[parents[v]] += sizes[v]
    return sizes


@compiled
def _serve(arrivals: Any, cost: int, free: int) -> Any:
    """Serve sorted arrivals one after the other; return when the last is done and the longest stay of any.

    With equal costs the number of those present when one has just come is its own stay over the cost, rounded up.
    """
    delay = 0
    for k in range(len(arrivals)):
        free = max(free, arrivals[k]) + cost
        delay = max(delay, free - arrivals[k])
    return free, delay


@compiled
def _merge_runs(times: Any, ports: Any, bounds: Any, runs: int, spare_times: Any, spare_ports: Any) -> None:
    """Merge adjacent sorted runs of (times, ports) until one is left; at equal times the left run comes first."""
    while runs > 1:
        kept = 0
        for pair in range(0, runs - 1, 2):
            start, middle, end = bounds[pair], bounds[pair + 1], bounds[pair + 2]
            i, j, k = start, middle, 0
            while i < middle and j < end:
                if times[i] <= times[j]:
                    spare_times[k], spare_ports[k] = times[i], ports[i]
                    i += 1
                else:
                    spare_times[k], spare_ports[k] = times[j], ports[j]
                    j += 1
                k += 1
            rest = middle - i  # what is left of the right run is in its place already
            for m in range(rest - 1, -1, -1):
                times[end - rest + m], ports[end - rest + m] = times[i + m], ports[i + m]
            for m in range(k):
                times[start + m], ports[start + m] = spare_times[m], spare_ports[m]
            bounds[kept] = start
            kept += 1
        if runs % 2:
            bounds[kept] = bounds[runs - 1]
            kept += 1
        bounds[kept] = bounds[runs]
        runs = kept


@compiled
def _climb(
    parents: Any, first_child: Any, sizes: Any, offsets: Any, sends: Any, times: Any, ports: Any, wire: int
) -> Any:
    """Take all messages up to the root: fill `times` and `ports`, return the hops and the longest queue of a link."""
    n = len(parents)
    bounds = np.empty(n + 1, dtype=np.int64)
    spare_times = np.empty(n, dtype=np.int64)
    spare_ports = np.empty(n, dtype=np.int32)
    room = np.zeros(n, dtype=np.int64)  # where in its parent's region a node's messages go
    for v in range(1, n):
        room[v] = room[v - 1] + sizes[v - 1] if parents[v] == parents[v - 1] else offsets[parents[v]]
    hops = 0
    delay = 0
    for v in range(n - 1, -1, -1):
        start = offsets[v]
        end = start + sizes[v] - 1
        runs = first_child[v + 1] - first_child[v]
        bounds[0] = start
        for r in range(runs):
            bounds[r + 1] = bounds[r] + sizes[first_child[v] + r]
            ports[bounds[r] : bounds[r + 1]] = r
        _merge_runs(times, ports, bounds, runs, spare_times, spare_ports)
        if v > 0:
            sent, stay, _ = _link(times[start:end], ports[start:end], -1, sends[v], -1, wire, times[room[v] :])
            hops += sent
            delay = max(delay, stay)
    return hops, -(-delay // wire)


@compiled
def _link(arrivals: Any, ports: Any, target: int, own: int, trigger: int, wire: int, out: Any) -> Any:
    """Pass on to a neighbour what came by the other ports, and the node's own message, which goes first at a tie.

    Fills `out` with the times of arrival there; returns how many, the longest stay, and the place of the root's INFO,
    which is arrival number `trigger` here (-1: it is the node's own message).
    """
    before = np.searchsorted(arrivals, own - ROUTER_NS)
    k = 0
    free = 0
    delay = 0
    for i in range(before):
        if ports[i] != target:
            ready = arrivals[i] + ROUTER_NS
            free = max(free, ready) + wire
            delay = max(delay, free - ready)
            out[k] = free
            k += 1
    place = k
    free = max(free, own) + wire
    delay = max(delay, free - own)
    out[k] = free
    k += 1
    for i in range(before, len(arrivals)):
        if ports[i] != target:
            ready = arrivals[i] + ROUTER_NS
            free = max(free, ready) + wire
            delay = max(delay, free - ready)
            out[k] = free
            k += 1
    if trigger >= 0:
        place = 1 if trigger >= before else 0
        for i in range(trigger):
            if ports[i] != target:
                place += 1
    return k, delay, place


@compiled
def _merge_at(stream: Any, below: Any, below_ports: Any, trigger: int, arrivals: Any, ports: Any) -> Any:
    """Merge what comes from the parent (port -1, first at a tie) and from below; return where the trigger now is."""
    i = j = k = 0
    place = trigger
    while j < len(below):
        while i < len(stream) and stream[i] <= below[j]:
            arrivals[k], ports[k] = stream[i], -1
            if i == trigger:
                place = k
            i += 1
            k += 1
        arrivals[k], ports[k] = below[j], below_ports[j]
        j += 1
        k += 1
    if trigger >= i:
        place = trigger + j
    rest = len(stream) - i
    arrivals[k : k + rest] = stream[i:]
    ports[k : k + rest] = -1
    return place


@compiled
def _host(arrivals: Any, trigger: int, t_send: int, t_receive: int) -> Any:
    """A FullDist host: receive everything, and send once arrival number `trigger` (-1: the very start) is received.

    Returns when its message is sent, when its own copy and the last message are received, and its longest queue.
    """
    count = len(arrivals)
    k = 0
    free = 0
    asked = 0
    queue = 1
    if trigger >= 0:
        free, delay = _serve(arrivals[: trigger + 1], t_receive, free)
        asked = free
        k = trigger + 1
        while k < count and arrivals[k] < asked:  # these are ahead of the send in the queue
            free += t_receive
            delay = max(delay, free - arrivals[k])
            k += 1
        queue = max(-(-delay // t_receive), (free - asked) // t_receive + 1)
    sent = free + t_send
    free = sent
    while k < count and arrivals[k] < sent:  # these are behind it, and come while it waits or is under way
        free += t_receive
        ahead = max(0, -((arrivals[k] - (sent - t_send)) // t_receive))
        queue = max(queue, ahead + 1 + (free - sent) // t_receive)
        k += 1
    free += t_receive
    own = free
    queue = max(queue, (free - sent) // t_receive)
    last, delay = _serve(arrivals[k:], t_receive, free)
    return sent, own, last, max(queue, -(-delay // t_receive))


@compiled
def _descend(
    first_child: Any,
    sizes: Any,
    offsets: Any,
    sends: Any,
    times: Any,
    ports: Any,
    t_send: int,
    t_receive: int,
    wire: int,
    at_once: bool,
    implied: Any,
) -> Any:
    """FullDist downwards, and every host: fill `implied` with the send times that follow from the arrivals.

    With `at_once` the hosts send at the start instead of when they have the root's INFO.
    Goes through the tree depth first with the heaviest subtree last, so that one stream for every halving is enough.
    """
    n = len(sizes)
    levels = 2
    while 1 << levels < 2 * n:
        levels += 1
    streams = np.empty((levels, n), dtype=np.int64)
    nodes = np.zeros(levels, dtype=np.int64)
    triggers = np.zeros(levels, dtype=np.int64)
    following = np.zeros(levels, dtype=np.int64)  # the child to look at next; 0 at a node's first turn
    arrivals = np.empty(n - 1, dtype=np.int64)
    origins = np.empty(n - 1, dtype=np.int32)
    leaf = np.empty(n, dtype=np.int64)
    hops = delay = queue_max = rtt = ended = 0
    top = 0
    triggers[0] = -1
    while top >= 0:
        v = nodes[top]
        first, end = first_child[v], first_child[v + 1]
        below = slice(offsets[v], offsets[v] + sizes[v] - 1)
        trigger = _merge_at(streams[top, : n - sizes[v]], times[below], ports[below], triggers[top], arrivals, origins)
        if following[top] == 0:
            implied[v], own, last, queue = _host(arrivals, -1 if at_once else trigger, t_send, t_receive)
            queue_max = max(queue_max, queue)
            ended = max(ended, last)
            if v == 0:
                rtt = last - own
            for child in range(first, end):
                if sizes[child] == 1:
                    sent, stay, place = _link(arrivals, origins, child - first, sends[v], trigger, wire, leaf)
                    place = -1 if at_once else place
                    implied[child], own, last, queue = _host(leaf[:sent], place, t_send, t_receive)
                    hops += sent
                    delay = max(delay, stay)
                    queue_max = max(queue_max, queue)
                    ended = max(ended, last)
            following[top] = first
        heaviest = first
        for child in range(first, end):
            if sizes[child] > sizes[heaviest]:
                heaviest = child
        child = following[top]
        while child < end and (sizes[child] == 1 or child == heaviest):
            child += 1
        if child < end:
            following[top] = child + 1
            top += 1
        elif first < end and sizes[heaviest] > 1:
            child = heaviest  # the last one takes its parent's place
        else:
            top -= 1
            continue
        sent, stay, place = _link(arrivals, origins, child - first, sends[v], trigger, wire, streams[top])
        hops += sent
        delay = max(delay, stay)
        nodes[top] = child
        triggers[top] = place
        following[top] = 0
    return hops, -(-delay // wire), queue_max, rtt, ended


@compiled
def _circle_hops(parents: Any, depths: Any, circle: Any) -> Any:
    hops = 0
    for place in range(len(circle)):
        u, v = circle[place - 1], circle[place]
        while u != v:
            if depths[u] < depths[v]:
                u, v = v, u
            u = parents[u]
            hops += 1
    return hops


@compiled
def _collect(first_child: Any, started: Any, t_send: int, t_receive: int, wire: int) -> Any:
    """S_CoordP upwards: when the root has all its reports, and the longest queue of a host."""
    n = len(started)
    arrived = np.empty(n, dtype=np.int64)  # each node's report at its parent
    ready = 0
    delay = 0
    for v in range(n - 1, -1, -1):
        reports = np.sort(arrived[first_child[v] : first_child[v + 1]])
        ready, stay = _serve(reports, t_receive, started[v])
        delay = max(delay, stay)
        arrived[v] = ready + t_send + wire
    return ready, max(1, -(-delay // t_receive))


@compiled
def _pass_up(first_child: Any, started: Any, t_send: int, t_receive: int, wire: int) -> Any:
    """S_Train upwards: when the root has the train, the hops of all trains, and the longest queue of a host."""
    n = len(started)
    train_arrived = np.zeros(n, dtype=np.int64)  # the children's train at their parent
    hops = 0
    queue = 1
    for v in range(n - 1, -1, -1):
        first, end = first_child[v], first_child[v + 1]
        arrived = 0  # ACK1 at the next child
        for child in range(first, end):
            early, late = min(arrived, train_arrived[child]), max(arrived, train_arrived[child])
            ready = started[child]
            if early > 0:
                ready = early + t_receive
                if late < ready:
                    queue = 2
            if late > 0:
                ready = max(ready, late) + t_receive
            arrived = ready + t_send + wire
            hops += 1
            if child < end - 1:
                arrived += ROUTER_NS + wire
                hops += 1
        train_arrived[v] = arrived
    return max(started[0], train_arrived[0]) + t_receive, hops, queue
