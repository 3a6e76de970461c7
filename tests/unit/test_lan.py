"""The event-driven LAN model: costs, queues and the order of simultaneous events."""

from collections.abc import Sequence

import pytest

from antiphon.errors import UsageError
from antiphon.sim.lan import (
    HEADER_BYTES,
    ROUND_PROTOCOLS,
    ROUTER_NS,
    Lan,
    LanMessage,
    LanSend,
    LanTraffic,
    message_bytes,
    receive_ns,
    run_round,
    send_ns,
    simulate_rounds,
    wire_ns,
)
from antiphon.sim.trees import Tree, near_complete

SIZE = message_bytes(10)  # 72 bytes
SEND, RECEIVE, WIRE = send_ns(SIZE), receive_ns(SIZE), wire_ns(SIZE)


class Script:
    """A host that sends a list at the start and writes down what it receives."""

    def __init__(self, *sends: LanSend, reply: LanSend | None = None) -> None:
        self.sends = sends
        self.reply = reply
        self.received: list[tuple[int, object]] = []

    def on_start(self, now: int) -> Sequence[LanSend]:
        assert now == 0
        return self.sends

    def on_receive(self, message: LanMessage, now: int) -> Sequence[LanSend]:
        self.received.append((now, message.body))
        return [self.reply] if self.reply and len(self.received) == 1 else []


def to(node: int | None, body: str = "m") -> LanSend:
    return LanSend(node, SIZE, body)


def chain(n: int) -> Tree:
    return near_complete(1, n - 1, 1)


def test_costs_are_those_of_the_paper_in_whole_nanoseconds() -> None:
    assert (send_ns(HEADER_BYTES), receive_ns(HEADER_BYTES), wire_ns(HEADER_BYTES)) == (341_760, 375_936, 2_560)
    for n in (2, 47, 1365, 100_000):
        u = message_bytes(n)
        assert send_ns(u) * 400 == 1000 * (338 * 400 + 47 * u)
        assert receive_ns(u) * 10 == send_ns(u) * 11
        assert wire_ns(u) * 100_000_000 == 8 * u * 1_000_000_000


def test_a_unicast_pays_sender_wires_routers_between_and_receiver() -> None:
    hosts = [Script(to(3)), Script(), Script(), Script()]
    traffic = Lan(chain(4)).run(hosts)
    arrived = SEND + 3 * WIRE + 2 * ROUTER_NS + RECEIVE
    assert hosts[3].received == [(arrived, "m")]
    assert hosts[0].received == hosts[1].received == hosts[2].received == []
    assert traffic == LanTraffic(hops=3, link_queue_max=1, host_queue_max=1, ended_ns=arrived)


def test_a_multicast_is_charged_once_and_its_sender_receives_a_copy() -> None:
    hosts = [Script(), Script(to(None)), Script()]
    traffic = Lan(chain(3)).run(hosts)
    assert hosts[1].received == [(SEND + RECEIVE, "m")]
    assert hosts[0].received == hosts[2].received == [(SEND + WIRE + RECEIVE, "m")]
    assert traffic.hops == 2


def test_a_router_delays_but_does_not_queue_and_its_host_receives_at_the_same_time() -> None:
    star = near_complete(3, 1, 3)
    hosts = [Script(), Script(to(3, "a")), Script(to(3, "b")), Script()]
    traffic = Lan(star).run(hosts)
    released = SEND + WIRE + ROUTER_NS
    # Both leave the router at once; the link to node 3 takes the one from the left first, and the host follows.
    assert hosts[3].received == [(released + WIRE + RECEIVE, "a"), (released + WIRE + 2 * RECEIVE, "b")]
    assert (traffic.link_queue_max, traffic.host_queue_max) == (2, 2)


def test_sends_and_receipts_share_one_processor_in_order_of_arrival() -> None:
    pair = chain(2)
    hosts = [Script(to(1, "a"), to(1, "b")), Script(reply=to(0, "reply"))]
    Lan(pair).run(hosts)
    first = SEND + WIRE + RECEIVE
    # "b" arrives while "a" is being received, so it is received before the reply to "a" is sent.
    assert hosts[1].received == [(first, "a"), (first + RECEIVE, "b")]
    assert hosts[0].received == [(first + RECEIVE + SEND + WIRE + RECEIVE, "reply")]


def test_the_two_directions_of_a_link_do_not_hinder_each_other() -> None:
    hosts = [Script(to(1)), Script(to(0))]
    traffic = Lan(chain(2)).run(hosts)
    assert hosts[0].received == hosts[1].received == [(SEND + WIRE + RECEIVE, "m")]
    assert traffic.link_queue_max == 1


def test_a_link_serves_in_order_and_counts_who_waits() -> None:
    big = 100_000  # 8 ms on the wire and 12 ms to send, so with small ones behind it the link is the bottleneck
    hosts = [Script(LanSend(2, big, "big"), to(2, "a"), to(2, "b"), to(2, "c")), Script(), Script()]
    traffic = Lan(chain(3)).run(hosts)
    assert [body for _, body in hosts[2].received] == ["big", "a", "b", "c"]
    assert traffic.link_queue_max == 4


# Round-trip times (ns) of an independent implementation: CoordP, FullDist, Train, S_CoordP, S_Train.
RTT = {
    (2, 1): (21_197_815, 21_043_405, 168_009_595, 10_286_250, 15_882_450),
    (3, 1): (98_606_550, 98_216_200, 762_304_140, 13_694_180, 26_262_980),
    (4, 4): (1_478_848_505, 1_477_220_354, 6_641_111_555, 34_823_921, 77_754_371),
}
HOPS = {
    (2, 1): (270, 2162, 352, 138, 153),
    (3, 1): (1233, 40602, 1460, 603, 683),
    (4, 4): (9100, 1_861_860, 7208, 4092, 5115),
}


# Two million hops (FullDist among 1365) take Python twelve seconds; that one is tested with the kernel.
CASES = [(degrees, stability) for degrees in RTT for stability in ROUND_PROTOCOLS]
CASES.remove(((4, 4), "full-distribution"))


@pytest.mark.slow
@pytest.mark.parametrize(("degrees", "stability"), CASES)
def test_round_trip_times_and_hops_of_every_protocol(degrees: tuple[int, int], stability: str) -> None:
    b, z = degrees
    place = list(ROUND_PROTOCOLS).index(stability)
    outcome = run_round(near_complete(b, 5, z), stability, "objects")
    assert outcome.rtt_ns == RTT[degrees][place]
    assert outcome.traffic.hops == HOPS[degrees][place]


def test_queues_of_the_largest_tree() -> None:
    tree = near_complete(4, 5, 4)
    queues = {
        stability: run_round(tree, stability, "objects").traffic
        for stability in ROUND_PROTOCOLS
        if stability != "full-distribution"
    }
    assert {name: traffic.link_queue_max for name, traffic in queues.items()} == {
        "coordinator": 252,
        "train": 1,
        "tree-coordinator": 1,
        "tree-train": 1,
    }
    assert queues["tree-coordinator"].host_queue_max == 4  # the acknowledgments of four children arrive together


def test_rounds_come_in_the_form_of_the_command_line() -> None:
    tree = near_complete(2, 5, 1)
    assert (
        simulate_rounds(tree, "tree-train", 2, "objects") == [{"rtt_ns": 15_882_450, "hops": 153, "queue_max": 1}] * 2
    )


def test_a_stability_without_rounds_is_refused_with_those_that_have_them() -> None:
    with pytest.raises(
        UsageError, match=r"vector-ack.*coordinator, full-distribution, train, tree-coordinator, tree-train"
    ):
        simulate_rounds(near_complete(2, 2, 2), "vector-ack", 1)
    with pytest.raises(UsageError, match="at least one round"):
        simulate_rounds(near_complete(2, 2, 2), "train", 0)
    with pytest.raises(UsageError, match="auto, parts, objects, kernel"):
        run_round(near_complete(2, 2, 2), "train", "steam")  # type: ignore[arg-type]
