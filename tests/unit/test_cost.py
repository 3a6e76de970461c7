"""The cost oracle: each limit at its very edge, what a run is charged with, and what fifo is measured on."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from antiphon.protocol.machine import MILLISECOND, SECOND
from antiphon.protocol.ordering import ORDERINGS
from antiphon.protocol.recovery import RecoveryOptions
from antiphon.sim import cost as cost_module
from antiphon.sim.cluster import simulate
from antiphon.sim.cost import (
    LIMITS,
    TYPICAL,
    CostLedger,
    RunCost,
    TypicalCost,
    buffer_bound,
    cost_of_fifo,
    first_losses,
    is_comparable,
    longest_pause_ns,
    measured,
    repair_receivers,
    report_interval_ns,
    retuned,
    storm,
)
from antiphon.sim.network import NetworkOptions
from antiphon.sim.scenario import Fault, Scenario, Workload

MEMBERS = 4
PAIRS = MEMBERS * MEMBERS
STEADY = NetworkOptions(latency="fixed 1ms")  # on which nothing overtakes anything
GROUP = Scenario(members=MEMBERS, ordering="abcast", network=STEADY)
CALM = RunCost(datagrams=900, bytes=90_000, lost=0, repairs=0, took_ns=SECOND, held=1)
OF_FIFO = RunCost(datagrams=500, bytes=50_000, lost=0, repairs=0, took_ns=SECOND // 2, held=1)


@pytest.fixture(autouse=True)
def fifo_costs_this(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_module, "cost_of_fifo", lambda scenario, seed: OF_FIFO)


def flagged(scenario: Scenario = GROUP, **changes: Any) -> str | None:
    return storm(scenario, 7, replace(CALM, **changes))


def test_every_ordering_has_its_limits() -> None:
    assert LIMITS.keys() == ORDERINGS.keys()


def test_a_calm_run_is_no_storm() -> None:
    assert flagged() is None


def test_copies_may_be_as_many_as_the_bound_and_no_more() -> None:
    bound = buffer_bound(GROUP)
    assert flagged(held=bound) is None
    assert flagged(held=bound + 1) == f"storm: a member keeps {bound + 1} messages, and its bound is {bound}"


def test_three_repairs_for_each_first_sending_that_did_not_come_and_four_for_each_pair() -> None:
    assert flagged(repairs=4 * PAIRS) is None
    assert flagged(repairs=4 * PAIRS + 1) == "storm: 65 repairs for 0 datagrams that did not come"
    assert flagged(lost=90, repairs=256) is None, "a tenth of 644 datagrams that are no repairs"
    assert flagged(lost=90, repairs=257) is not None


def test_a_storm_is_not_excused_by_the_repairs_that_it_loses() -> None:
    assert flagged(datagrams=10**6, lost=10**5, repairs=9 * 10**5) is not None
    assert flagged(datagrams=900, lost=10**5, repairs=900) is not None, "nothing but repairs"


@pytest.mark.parametrize("network", [NetworkOptions(latency="uniform 1ms 2ms"), replace(STEADY, reorder=0.1)])
def test_where_datagrams_overtake_each_other_one_in_eight_may_be_asked_for(network: NetworkOptions) -> None:
    overtaking = replace(GROUP, network=network)
    assert flagged(overtaking, repairs=156) is None, "an eighth of 744, and four for each pair"
    assert flagged(overtaking, repairs=157) is not None


def test_four_times_the_bytes_of_fifo_and_a_thousand_for_each_pair() -> None:
    limit = 4 * OF_FIFO.bytes + 1_000 * PAIRS
    assert flagged(bytes=limit) is None
    assert flagged(bytes=limit + 1) == "storm: 216,001 bytes where fifo sends 50,000"


def test_fifo_is_held_to_its_messages_twice_to_what_was_lost_twice_and_to_so_much_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cost_module, "cost_of_fifo", lambda scenario, seed: replace(OF_FIFO, bytes=200_000))
    fifo = replace(GROUP, ordering="fifo", messages=100)  # of each of 4 to 3 others, 64 bytes and a header of 24
    most = 2 * (88 * 1_200 + 500) + 6 * 88 + 1_000 * PAIRS * 11  # six copies in a row may be lost
    calm = {"lost": 6, "bytes_lost": 500, "took_ns": 10 * SECOND}
    assert flagged(fifo, bytes=most, **calm) is None
    assert flagged(fifo, bytes=most + 1, **calm) == "storm: fifo sends 388,729 bytes, and 388,728 would be many"


def test_heartbeats_that_were_lost_excuse_no_copies_of_large_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_module, "cost_of_fifo", lambda scenario, seed: replace(OF_FIFO, bytes=1_000_000))
    fifo = replace(GROUP, ordering="fifo", messages=1, workload=replace(GROUP.workload, payload=60_000))
    much = {"datagrams": 10_000, "lost": 2_000, "bytes_lost": 60_000, "took_ns": SECOND, "repairs": 0}
    assert flagged(fifo, bytes=1_500_000, **much) is None
    assert flagged(fifo, bytes=2_100_000, **much) is not None


def test_each_report_may_have_a_vector_of_all_members(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_module, "cost_of_fifo", lambda scenario, seed: replace(OF_FIFO, bytes=200_000))
    fifo = replace(GROUP, ordering="fifo", messages=100)
    most = 2 * 88 * 1_200 + 6 * 88 + 1_000 * PAIRS * 11 + 70 * 3 * 16
    assert flagged(fifo, bytes=most, reports=70, took_ns=10 * SECOND) is None
    assert flagged(fifo, bytes=most + 1, reports=70, took_ns=10 * SECOND) is not None


def test_a_member_has_something_to_report_once_in_an_interval_with_news() -> None:
    group = Scenario(members=3, messages=2, ordering="fifo", network=STEADY, workload=Workload("fixed 4ms"))
    assert measured(group, 1)[1].reports == 3, "six messages within 10 ms come to each of three"
    slower = replace(group, workload=Workload("fixed 20ms"))
    assert measured(slower, 1)[1].reports == 6
    assert measured(replace(slower, ordering="co"), 1)[1].reports == 0, "it reports in its own way"


def test_large_groups_report_less_often() -> None:
    assert report_interval_ns(replace(GROUP, members=8)) == 10 * MILLISECOND
    assert report_interval_ns(replace(GROUP, members=40)) == 50 * MILLISECOND
    assert report_interval_ns(replace(GROUP, ordering="co")) is None


# Many schedules together

LOSSY = replace(GROUP, messages=2, network=replace(STEADY, loss=0.1))  # of each of 4 to 3 others: 24 copies
NOMINAL = 24 * 88
USUAL = TypicalCost(repairs=4, datagrams=3, bytes=2)


def ledger_of(*costs: RunCost) -> CostLedger:
    ledger = CostLedger()
    for one in costs:
        ledger.add(LOSSY, one)
    return ledger


def lossy(repairs: int = 3, datagrams: int = 72, bytes_: int = 2 * NOMINAL) -> RunCost:
    return RunCost(datagrams=datagrams, bytes=bytes_, lost=7, repairs=repairs, took_ns=SECOND, held=1)


def test_a_ledger_has_the_geometric_means() -> None:
    typical = ledger_of(lossy(repairs=0, datagrams=24, bytes_=NOMINAL), lossy(15, 24 * 9, 4 * NOMINAL)).typical()
    assert typical == TypicalCost(pytest.approx(4), pytest.approx(3), pytest.approx(2))  # type: ignore[arg-type]


def test_a_ledger_takes_small_lossy_groups_with_the_usual_pauses_alone() -> None:
    assert is_comparable(LOSSY)
    assert is_comparable(replace(GROUP, network=NetworkOptions(receive_buffer=4, service="1ms")))
    assert [members for members in range(1, 10) if is_comparable(replace(LOSSY, members=members))] == [3, 4, 5]
    assert not is_comparable(GROUP)
    assert not is_comparable(replace(LOSSY, recovery=RecoveryOptions(nack_delay_ns=1)))
    ledger = CostLedger()
    ledger.add(GROUP, lossy())
    assert (ledger.count, ledger.storm(USUAL)) == (0, None)


def test_a_ledger_allows_for_chance_and_a_tenth() -> None:
    assert ledger_of(lossy()).margin() == pytest.approx(5.1)
    assert ledger_of(*[lossy()] * 2500).margin() == pytest.approx(0.2)
    assert ledger_of(*[lossy(repairs=15)] * 9).storm(USUAL) is None, "that may be chance"
    assert ledger_of(*[lossy(repairs=15)] * 99).storm(USUAL) is not None


@pytest.mark.parametrize("dear", [{"repairs": 4}, {"datagrams": 80}, {"bytes_": 2 * NOMINAL + NOMINAL // 4}])
def test_what_is_dearer_than_typical_is_a_storm(dear: dict[str, int]) -> None:
    assert ledger_of(*[lossy()] * 30).storm(USUAL, 0.1) is None
    key = next(iter(dear)).rstrip("_")
    assert f" {key} in the mean of 30 schedules" in str(ledger_of(*[lossy(**dear)] * 30).storm(USUAL, 0.1))
    assert ledger_of(*[lossy(**dear)] * 30).storm(USUAL, 0.3) is None


def test_every_ordering_has_its_typical_cost() -> None:
    assert TYPICAL.keys() == ORDERINGS.keys()


def test_lost_bytes_of_repairs_excuse_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_module, "cost_of_fifo", lambda scenario, seed: replace(OF_FIFO, bytes=200_000))
    fifo = replace(GROUP, ordering="fifo", messages=100)
    most = 2 * (88 * 1_200 + 25_000) + 6 * 88 + 1_000 * PAIRS * 11
    half = {"bytes_lost": 50_000, "took_ns": 10 * SECOND}
    assert flagged(fifo, bytes=most, bytes_repaired=most // 2, **half) is None
    assert flagged(fifo, bytes=most + 2, bytes_repaired=(most + 2) // 2, **half) is not None


def test_a_yardstick_that_is_a_storm_itself_excuses_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_module, "cost_of_fifo", lambda scenario, seed: replace(OF_FIFO, bytes=10**7))
    assert "fifo sends 10,000,000 bytes" in str(flagged())


def test_five_times_the_time_of_fifo_and_three_seconds() -> None:
    assert flagged(took_ns=SECOND * 11 // 2) is None
    assert flagged(took_ns=SECOND * 11 // 2 + 1) == "storm: 5.5 s where fifo takes 0.5 s"
    assert flagged(replace(GROUP, ordering="fifo"), took_ns=60 * SECOND) is None, "fifo takes the time that fifo takes"


def test_fifo_may_have_been_lucky(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {7: SECOND // 2, 8: SECOND // 2, 9: 2 * SECOND}
    monkeypatch.setattr(
        cost_module, "cost_of_fifo", lambda scenario, seed: replace(OF_FIFO, took_ns=times.get(seed, SECOND))
    )
    assert flagged(took_ns=13 * SECOND) is None, "13 s are five times what it takes with seed 9, and three"
    assert flagged(took_ns=13 * SECOND + 1) == "storm: 13.0 s where fifo takes 0.5 s"


def test_a_steady_rate_of_acknowledgments_is_no_storm() -> None:
    fifo = replace(GROUP, ordering="fifo", stability="timestamp-ack", messages=1)
    steady = 2 * 48 * MEMBERS * (MEMBERS - 1) * 1_000  # a null and an acknowledgment every 10 ms, for 10 s
    most = 3 * OF_FIFO.bytes + 1_000 * PAIRS + steady
    calm = {"took_ns": 10 * SECOND, "bytes_lost": 10**9, "datagrams": 10**6}
    assert flagged(fifo, bytes=most, **calm) is None
    assert flagged(fifo, bytes=most + 1, **calm) is not None
    assert flagged(replace(fifo, stability="vector-ack"), bytes=most, **calm) is not None


def test_confirmations_that_share_a_datagram_count_as_one() -> None:
    cut = [Fault(kind="cut", at="20ms", until="400ms", source=[0], target=[1])]
    scenario = Scenario(members=3, messages=8, ordering="co", network=STEADY, faults=cut)
    repaired: list[tuple[int | None, int, str]] = []
    messages = 0
    for row in simulate(scenario, 1).events:
        if row.event == "control" and (row.detail or "").startswith("repair to "):
            receivers = repair_receivers(row.detail or "", 3)
            if row.seq is None:
                repaired += [(row.time_ns, row.member, row.detail or "")] * receivers
            else:
                messages += receivers
    one_for_each = sum(repair_receivers(detail, 3) for _, _, detail in set(repaired))
    assert measured(scenario, 1)[1].repairs == messages + one_for_each
    assert len(repaired) > one_for_each


def test_what_is_small_and_short_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    little = {"bytes": 1_000 * PAIRS, "took_ns": 3 * SECOND}
    monkeypatch.setattr(cost_module, "cost_of_fifo", lambda scenario, seed: pytest.fail("compared"))
    assert flagged(**little) is None
    for one in ({**little, "bytes": 1_000 * PAIRS + 1}, {**little, "took_ns": 3 * SECOND + 1}):
        with pytest.raises(pytest.fail.Exception, match="compared"):
            flagged(**one)


def test_each_loss_on_the_unluckiest_link_may_have_cost_a_pause_and_its_jitter() -> None:
    luck_ns = 4 * longest_pause_ns(GROUP) * 3 // 2
    assert luck_ns
    slow = SECOND * 11 // 2 + luck_ns
    assert flagged(lost_on_one_link=4, took_ns=slow) is None
    assert flagged(lost_on_one_link=4, took_ns=slow + 1) is not None
    assert flagged(lost_on_one_link=3, took_ns=slow) is not None
    most = 4 * OF_FIFO.bytes + 1_000 * PAIRS * (1 + luck_ns / SECOND)
    assert flagged(lost_on_one_link=4, bytes=int(most)) is None
    assert flagged(lost_on_one_link=4, bytes=int(most) + 1) is not None


def test_chance_counts_only_as_far_as_fifo_could_have_had_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pause_ns = longest_pause_ns(GROUP) * 3 // 2
    for lost_to_fifo, unlucky in ((0, 10), (2, 16)):
        usual = replace(OF_FIFO, lost_on_one_link=lost_to_fifo)
        monkeypatch.setattr(cost_module, "cost_of_fifo", lambda scenario, seed, usual=usual: usual)
        slow = SECOND * 11 // 2 + unlucky * pause_ns
        assert flagged(lost_on_one_link=10**6, took_ns=slow) is None
        assert flagged(lost_on_one_link=10**6, took_ns=slow + 1) is not None


def test_a_repair_may_occupy_a_slow_link_for_the_time_of_a_message() -> None:
    narrow = replace(GROUP, network=replace(STEADY, bandwidth=1_000), workload=Workload(payload=125))
    assert flagged(narrow, repairs=7, took_ns=SECOND * 25 // 2) is None
    assert flagged(narrow, repairs=7, took_ns=SECOND * 25 // 2 + 1) is not None


def test_a_run_may_last_until_the_last_cut_heals() -> None:
    cuts = [Fault(kind="cut", at="0s", until=until, source=[0], target=[1]) for until in ("9s", "2s")]
    cut = replace(GROUP, faults=[*cuts, Fault(kind="crash", at="20s", member=3)])
    assert flagged(cut, took_ns=SECOND * 29 // 2) is None
    assert flagged(cut, took_ns=SECOND * 29 // 2 + 1) is not None


def test_what_other_pauses_cost_is_up_to_whoever_chose_them() -> None:
    hasty = replace(GROUP, ordering_options={"ask_ns": 1})
    assert flagged(hasty, repairs=10**9, bytes=10**12, took_ns=10**15) is None
    assert "keeps" in str(flagged(hasty, held=10**6)), "buffers are bounded all the same"


@pytest.mark.parametrize(
    ("changes", "is_retuned"),
    [
        ({}, False),
        ({"ordering_options": {"ask_ns_max": 10**9}}, True),
        ({"stability_options": {"interval_ns": 10**6}}, True),
        ({"stability_options": {"delta": True}}, False),
        ({"recovery": RecoveryOptions(nack_delay_ns=1)}, True),
        ({"recovery": Scenario.of("paper").recovery}, False),
        ({"recovery": Scenario.of("wan").recovery}, False),
    ],
)
def test_what_counts_as_retuned(changes: dict[str, Any], is_retuned: bool) -> None:
    assert retuned(replace(GROUP, **changes)) is is_retuned


def test_the_longest_pause_is_that_of_any_part_which_the_ordering_has() -> None:
    slow = RecoveryOptions(nack_retry_ns_max=77 * SECOND)
    assert longest_pause_ns(replace(GROUP, recovery=slow)) == 77 * SECOND
    assert longest_pause_ns(replace(GROUP, stability_options={"interval_ns_max": 88 * SECOND})) == 88 * SECOND
    assert longest_pause_ns(replace(GROUP, ordering_options={"ask_ns_max": 99 * SECOND})) == 99 * SECOND
    by_itself = replace(GROUP, ordering="co", recovery=slow)
    assert longest_pause_ns(by_itself) < 77 * SECOND, "CO repairs by itself"
    assert longest_pause_ns(replace(by_itself, ordering_options={"ret_retry_ns_max": 99 * SECOND})) == 99 * SECOND


def test_how_many_copies_a_member_may_have_to_keep() -> None:
    fifo = replace(GROUP, ordering="fifo", window=10)
    assert buffer_bound(replace(fifo, buffer=100)) == 100 + 10 * MEMBERS
    assert buffer_bound(replace(fifo, buffer=10_000)) == 4 * 10 * MEMBERS
    assert buffer_bound(replace(fifo, ordering="abcast", buffer=100)) == 4 * 10 * MEMBERS, "decisions are kept as well"
    co = replace(GROUP, ordering="co")
    assert buffer_bound(co) == co.ordering_settings().places(MEMBERS)
    blocks = replace(GROUP, ordering="causal-blocks", ordering_options={"window": 6, "lag": 5})
    assert buffer_bound(blocks) == 11 * MEMBERS
    assert buffer_bound(replace(blocks, ordering_options={"window": 6})) == 6 * MEMBERS


def test_a_tight_buffer_bounds_what_co_may_have_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    windows = []

    def watched(scenario: Scenario, seed: int) -> tuple[None, RunCost]:
        windows.append(scenario.window)
        return None, OF_FIFO

    monkeypatch.setattr(cost_module, "measured", watched)
    for buffer in (2 * MEMBERS, 4 * MEMBERS, 1_000 * MEMBERS):
        options = {"window": 3, "headroom": 2, "buffer": buffer}
        cost_of_fifo(replace(GROUP, ordering="co", ordering_options=options), 7)
    assert windows == [1, 2, 3]


# What is measured


def test_a_run_is_charged_with_what_it_sent_lost_repaired_and_kept() -> None:
    one = Scenario(members=3, messages=4, ordering="fifo", network=STEADY, workload=Workload(interval="fixed 2ms"))
    run, calm = measured(one, 1)
    assert run.finished
    assert (calm.lost, calm.repairs, calm.lost_on_one_link) == (0, 0, 0)
    network = run.stats["network"]
    assert (calm.datagrams, calm.bytes, calm.took_ns) == (network["datagrams"], network["bytes"], run.ended_ns)
    assert 1 <= calm.held <= buffer_bound(one)
    _, lossy = measured(replace(one, network=replace(STEADY, loss=0.3)), 1)
    assert 0 < lossy.lost_on_one_link < lossy.lost
    assert lossy.repairs > 0
    assert measured(one, 1, events_max=5)[1].datagrams < calm.datagrams
    cut = Fault(kind="cut", at="0ms", until="3ms", source=[0], target=[1])
    assert measured(replace(one, faults=[cut]), 1)[1].lost > 0
    overrun = measured(replace(one, members=8, network=replace(STEADY, receive_buffer=1, service="1ms")), 1)[1]
    assert overrun.lost > 0


@pytest.mark.parametrize(
    ("detail", "receivers"), [("repair to all", 4), ("repair to 3", 1), ("repair to 1,3", 2), ("null", 0)]
)
def test_a_repair_counts_once_for_each_receiver(detail: str, receivers: int) -> None:
    assert repair_receivers(detail, 5) == receivers


@pytest.mark.parametrize("ordering", ["fifo", "abcast", "co", "causal-blocks"])
def test_fifo_is_measured_on_the_same_schedule(ordering: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Scenario] = []

    def watched(scenario: Scenario, seed: int) -> tuple[None, RunCost]:
        assert seed == 7
        ran.append(scenario)
        return None, OF_FIFO

    monkeypatch.setattr(cost_module, "measured", watched)
    own = {"abcast": {"ask_ns": 5 * MILLISECOND}, "co": {"window": 3}, "causal-blocks": {"window": 5}}.get(ordering, {})
    scenario = replace(
        GROUP,
        ordering=ordering,
        ordering_options=own,
        stability="timestamp-ack" if ordering != "abcast" else "vector-ack",
        stability_options={} if ordering != "abcast" else {"delta": True, "positions": False},
        safe=ordering == "abcast",
        window=9,
        buffer=500,
    )
    assert cost_of_fifo(scenario, 7) == OF_FIFO
    (usual,) = ran
    usual.check()
    assert (usual.ordering, usual.ordering_options, usual.safe) == ("fifo", {}, False)
    assert (usual.network, usual.workload, usual.members) == (GROUP.network, GROUP.workload, MEMBERS)
    assert usual.window == {"fifo": 9, "abcast": 9, "co": 3, "causal-blocks": 5}[ordering]
    if ordering == "abcast":
        assert (usual.stability, usual.stability_options, usual.buffer) == ("vector-ack", {"delta": True}, 500)
    else:
        assert (usual.stability, usual.stability_options, usual.buffer) == (Scenario().stability, {}, 0)


def test_of_what_did_not_come_the_share_of_repairs_does_not_count() -> None:
    assert first_losses(replace(CALM, datagrams=100, lost=20, repairs=25)) == 15
    assert first_losses(replace(CALM, datagrams=100, lost=20, repairs=300)) == 0, "all were repairs, and some together"
    assert first_losses(replace(CALM, datagrams=0, lost=0)) == 0, "of one member"
