"""One workload for every engine: n members pass tokens around, each hop 1 ms, the protocol does nothing.

Every member starts `tokens` tokens; a member that receives one sends it on to its neighbour after the link's delay,
until it has made `hops` hops. A hop is one message sent, carried and received.
"""

from __future__ import annotations

LATENCY_NS = 1_000_000


def kernel_hops(n: int, tokens: int, hops: int) -> int:
    """Run on our kernel: the heap and clock that the simulator stands on."""
    from antiphon.sim.kernel import Kernel

    kernel, done = Kernel(), 0
    after = kernel.after

    def receive(token: tuple[int, int]) -> None:
        nonlocal done
        done += 1
        member, left = token
        if left:
            after(LATENCY_NS, receive, ((member + 1) % n, left - 1))

    for member in range(n):
        for token in range(tokens):
            kernel.at(token, receive, (member, hops - 1))
    kernel.run()
    return done


def network_hops(n: int, tokens: int, hops: int) -> int:
    """Run on our network too: links with latency, loss and cuts that happen not to occur."""
    import random

    from antiphon.sim.kernel import Kernel
    from antiphon.sim.network import Network, NetworkOptions

    kernel, done = Kernel(), 0

    def receive(arrival: tuple[int, bytes]) -> None:
        nonlocal done
        done += 1
        member, datagram = arrival
        left = len(datagram)
        if left:
            network.send(member, ((member + 1) % n,), datagrams[left - 1])

    network = Network(kernel, n, NetworkOptions(latency="fixed 1ms"), random.Random(1), receive)
    datagrams = [bytes(left) for left in range(hops)]  # one has as many bytes as hops are left
    for member in range(n):
        for token in range(tokens):
            kernel.at(token, receive, (member, datagrams[hops - 1]))
    kernel.run()
    return done


def simpy_process_hops(n: int, tokens: int, hops: int) -> int:
    """Run on SimPy as people write it: a process and a Store per node, a process per message in flight."""
    import simpy

    env, done = simpy.Environment(), 0
    stores = [simpy.Store(env) for _ in range(n)]

    def carry(target: int, left: int):  # type: ignore[no-untyped-def]
        yield env.timeout(LATENCY_NS)
        yield stores[target].put(left)

    def node(member: int):  # type: ignore[no-untyped-def]
        nonlocal done
        while True:
            left = yield stores[member].get()
            done += 1
            if left:
                env.process(carry((member + 1) % n, left - 1))

    for member in range(n):
        env.process(node(member))
        for _ in range(tokens):
            stores[member].put(hops - 1)
    env.run()
    return done


def simpy_callback_hops(n: int, tokens: int, hops: int) -> int:
    """Run on SimPy at its best: a timeout with a callback per hop, no process at all."""
    import simpy

    env, done = simpy.Environment(), 0
    timeout = env.timeout

    def receive(event: simpy.Event) -> None:
        nonlocal done
        done += 1
        member, left = event.value
        if left:
            timeout(LATENCY_NS, ((member + 1) % n, left - 1)).callbacks.append(receive)

    for member in range(n):
        for token in range(tokens):
            timeout(token, (member, hops - 1)).callbacks.append(receive)
    env.run()
    return done


ENGINES = {
    "simpy, process and Store": simpy_process_hops,
    "simpy, callbacks": simpy_callback_hops,
    "antiphon kernel": kernel_hops,
    "antiphon network": network_hops,
}
