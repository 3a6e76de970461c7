"""Repair at the pace of the network: slow links, large messages and receivers that overrun cause no storms.

Orderings that repair losses themselves run beside fifo on the same network; `python -m bench.repair` runs the grid.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from antiphon.protocol.view.member import Member
from antiphon.sim.cluster import SimulatedRun, simulate
from antiphon.sim.network import NetworkOptions
from antiphon.sim.scenario import Scenario, Workload
from antiphon.sim.torture import flaw
from support.mutants_storms import COPIES_UNDER_WAY

OWN_RECOVERY = ["causal-blocks", "co"]


def run(ordering: str, members: int, messages: int, network: NetworkOptions, **workload: Any) -> SimulatedRun:
    options = (
        {"window": 2} if ordering == "causal-blocks" else {"window": 2, "headroom": 32} if ordering == "co" else {}
    )
    scenario = Scenario(
        members=members,
        messages=messages,
        ordering=ordering,
        ordering_options=options,
        network=network,
        workload=Workload(interval="fixed 1ms", **workload),
        limit="600s",
    )
    return simulate(scenario, 1)


def ended_ns(done: SimulatedRun) -> int:
    return max(event.time_ns or 0 for event in done.events)


@pytest.mark.parametrize(("bandwidth", "payload"), [(2_000_000, 40_000), (70_000, 1_400), (40_000, 60_000)])
@pytest.mark.parametrize("ordering", OWN_RECOVERY)
def test_nothing_is_repeated_because_a_link_is_slow(ordering: str, bandwidth: int, payload: int) -> None:
    done = run(ordering, 6, 5, NetworkOptions(latency="uniform 1ms 5ms", bandwidth=bandwidth), payload=payload)
    assert done.finished
    assert done.stats["members"].get("retransmissions", 0) == 0


@pytest.mark.parametrize(("bandwidth", "payload"), [(2_000_000, 40_000), (70_000, 1_400)])
@pytest.mark.parametrize("ordering", OWN_RECOVERY)
def test_losses_on_slow_links_are_repaired_without_a_storm(ordering: str, bandwidth: int, payload: int) -> None:
    network = NetworkOptions(latency="uniform 1ms 5ms", bandwidth=bandwidth, loss=0.1)
    fifo, done = (run(each, 6, 10, network, payload=payload) for each in ("fifo", ordering))
    assert done.finished
    assert done.stats["members"]["retransmissions"] <= 10 * done.stats["network"]["lost"]
    assert ended_ns(done) <= 5 * ended_ns(fifo)


def slow(payload: int, loss: float, messages: int = 3) -> Scenario:
    """Return a group of four on links of 70 kbit/s: a message of 60,000 bytes takes 7 s."""
    network = NetworkOptions(latency="uniform 1ms 5ms", bandwidth=70_000, loss=loss)
    workload = Workload(interval="fixed 1ms", payload=payload)
    return Scenario(members=4, messages=messages, ordering="fifo", network=network, workload=workload, limit="600s")


@pytest.mark.parametrize("ordering", ["fifo", "causal-blocks", "co", "abcast", "tomp", "sequencer"])
@pytest.mark.parametrize("payload", [1_400, 60_000])
def test_a_large_message_is_sent_as_often_as_it_is_lost(ordering: str, payload: int) -> None:
    """With 30% loss each copy takes 1.43 sendings; which is not to be more because each takes seconds."""
    done = simulate(replace(slow(payload, 0.3), ordering=ordering), 1)
    repairs = [row.bytes or 0 for row in done.events if (row.detail or "").startswith("repair")]
    large = sum(size > payload for size in repairs)
    assert done.finished
    # of the 36 copies 11 are lost, and then 5 of those that replace them; causal blocks have no marks
    assert large <= (45 if ordering == "causal-blocks" else 36)


def test_copies_that_are_sent_while_others_are_under_way_are_a_storm(monkeypatch: pytest.MonkeyPatch) -> None:
    assert flaw(slow(60_000, 0.3), 1, costs=True) is None
    monkeypatch.setattr(Member, "recovery_type", COPIES_UNDER_WAY)
    patient = replace(slow(60_000, 0.3), limit="600min")  # it would not end before
    assert (flaw(patient, 1, costs=True) or "").startswith("storm")


@pytest.mark.parametrize("ordering", ["fifo", "abcast", "tomp", "sequencer"])
def test_what_leaves_behind_a_datagram_is_not_taken_for_lost(ordering: str) -> None:
    """A window that opens lets several large messages go at once, in a datagram each."""
    for window in (1, 2, 64):
        done = simulate(replace(slow(60_000, 0, messages=5), ordering=ordering, window=window), 1)
        assert done.finished
        assert done.stats["members"].get("retransmissions", 0) == 0


def test_receivers_that_overrun_are_given_time() -> None:
    overrun = NetworkOptions(receive_buffer=4, service="2ms")
    tight = {"window": 1, "headroom": 2, "buffer": 20}  # one message in the whole group at a time
    scenario = Scenario(members=10, messages=1, ordering="co", ordering_options=tight, network=overrun, limit="60s")
    done = simulate(scenario, 1)
    assert done.finished
    assert done.stats["members"]["retransmissions"] <= 150


def test_a_copy_is_sent_to_those_who_lack_it_by_one_who_has_it() -> None:
    network = NetworkOptions(loss=0.05)
    done = run("causal-blocks", 30, 4, network, payload=1000)
    lost = 0.05 * 30 * 4 * 29
    assert done.finished
    assert done.stats["members"].get("duplicates", 0) <= lost / 4, "the sender of a message answers first, and alone"


@pytest.mark.parametrize(("ordering", "limit_ms"), [("causal-blocks", 300), ("co", 600)])
@pytest.mark.parametrize("senders", [None, [0]])
def test_a_rest_of_the_group_is_not_taken_for_a_round_trip(
    ordering: str, limit_ms: int, senders: list[int] | None
) -> None:
    """What is lost after seconds without any traffic is repaired as soon as what is lost in the middle of it."""
    latest = 0
    for seed in range(6):
        scenario = Scenario(
            members=4,
            messages=8,
            ordering=ordering,
            network=NetworkOptions(latency="uniform 1ms 5ms", loss=0.1),
            workload=Workload(interval="fixed 3s", senders=senders),
        )
        events = simulate(scenario, seed).events
        sent = {(row.sender, row.seq): row.time_ns or 0 for row in events if row.event == "send"}
        waits = [(row.time_ns or 0) - sent[row.sender, row.seq] for row in events if row.event == "deliver"]
        latest = max(latest, *waits)
    assert latest < limit_ms * 1_000_000


@pytest.mark.parametrize("members", [10, 20])
def test_co_ends_where_receivers_overrun(members: int) -> None:
    """One message each, to receivers with four places that take 2 ms for a datagram."""
    tight = {"window": 1, "headroom": 2}
    runs = []
    for ordering, options in (("fifo", {}), ("co", tight)):
        scenario = Scenario(
            members=members,
            messages=1,
            ordering=ordering,
            ordering_options=options,
            network=NetworkOptions(receive_buffer=4, service="2ms"),
            workload=Workload(interval="0", payload=8),
            limit="60s",
        )
        runs.append(simulate(scenario, 1))
    fifo, done = runs
    assert done.finished
    assert ended_ns(done) <= 5 * ended_ns(fifo)
    assert done.stats["members"]["retransmissions"] <= 10 * done.stats["network"]["overrun"]


def test_what_is_overtaken_is_asked_for_without_a_storm() -> None:
    """Sixteen members whose datagrams overtake each other by up to 80 ms: false alarms, and nothing is lost."""
    network = NetworkOptions(latency="uniform 20ms 80ms", reorder=0.2)
    scenario = Scenario(members=16, messages=1, network=network, workload=Workload(interval="uniform 0 100ms"))
    fifo, done = (simulate(replace(scenario, ordering=ordering), 1) for ordering in ("fifo", "co"))
    assert done.finished
    assert done.stats["network"]["bytes"] <= 6 * fifo.stats["network"]["bytes"]


def test_large_messages_on_their_way_are_not_sent_again_because_another_was_lost() -> None:
    """Twelve members send 40,000 bytes each on links that take eight seconds for them."""
    network = NetworkOptions(latency="uniform 1ms 5ms", bandwidth=40_000, loss=0.1)
    scenario = Scenario(members=12, messages=1, network=network, workload=Workload("fixed 1ms", payload=40_000))
    fifo, done = (simulate(replace(scenario, ordering=ordering), 4) for ordering in ("fifo", "causal-blocks"))
    assert done.finished
    assert ended_ns(done) <= 2 * ended_ns(fifo)
    assert done.stats["network"]["bytes"] <= 2 * fifo.stats["network"]["bytes"]


@pytest.mark.parametrize("loss", [0.0, 0.1, 0.3])
@pytest.mark.parametrize(("bandwidth", "payload"), [(40_000, 1), (2_000_000, 1), (2_000_000, 60_000), (100_000_000, 1)])
def test_a_sample_of_the_grid_of_links(bandwidth: int, payload: int, loss: float) -> None:
    """A few cells of `python -m bench.repair`, judged as it judges them, with the options of a live group."""
    network = NetworkOptions(latency="uniform 1ms 5ms", bandwidth=bandwidth, loss=loss)
    workload = Workload(interval="fixed 1ms", payload=payload)
    scenario = Scenario(members=4, messages=3, network=network, workload=workload, limit="600s")
    fifo, *others = (
        [simulate(replace(scenario, ordering=ordering), seed) for seed in (1, 2, 3)]  # one alone is a matter of luck
        for ordering in ("fifo", *OWN_RECOVERY)
    )
    for runs in others:
        assert all(done.finished for done in runs)
        assert sum(map(ended_ns, runs)) <= 5 * sum(map(ended_ns, fifo))
        repairs = sum(done.stats["members"].get("retransmissions", 0) for done in runs)
        assert repairs <= 10 * sum(done.stats["network"].get("lost", 0) for done in runs)
