"""The simulator: one heap, one clock, links that fail as they are told to, and the same run for the same seed."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import msgspec
import pytest

from antiphon.errors import UsageError
from antiphon.sim.cluster import simulate
from antiphon.sim.kernel import Kernel
from antiphon.sim.network import LinkRule, Network, NetworkOptions
from antiphon.sim.scenario import Clocks, Fault, Scenario, Workload, from_table, load, to_toml
from antiphon.sim.schedules import small as schedule
from antiphon.trace.naive import check
from antiphon.trace.writer import digest


def test_ties_go_in_the_order_of_scheduling() -> None:
    kernel, seen = Kernel(), []
    for name in "abc":
        kernel.at(5, seen.append, name)
    kernel.at(1, lambda _: kernel.after(4, seen.append, "d"))
    kernel.run()
    assert seen == ["a", "b", "c", "d"]
    assert kernel.now == 5


def arrivals(
    options: NetworkOptions, count: int = 2000, size: int = 2, length: int = 100
) -> list[tuple[int, int, int]]:
    """Send numbered datagrams from 0 to 1, one a millisecond, and list (instant, target, number) of what arrives."""
    kernel, seen = Kernel(), []
    network = Network(kernel, size, options, random.Random(1), lambda a: seen.append((kernel.now, a[0], int(a[1][:8]))))
    for number in range(count):
        kernel.at(number * 1_000_000, lambda n: network.send(0, (1,), b"%08d" % n + bytes(length - 8)), number)
    kernel.run()
    return seen


def test_loss_and_duplication_are_as_frequent_as_asked() -> None:
    lossy = arrivals(NetworkOptions(loss=0.25))
    assert 0.70 < len(lossy) / 2000 < 0.80
    doubled = arrivals(NetworkOptions(duplicate=0.25))
    assert 1.20 < len(doubled) / 2000 < 1.30


def test_fifo_links_never_reorder_and_others_do() -> None:
    latency = "uniform 0 50ms"
    in_order = [number for _, _, number in arrivals(NetworkOptions(latency=latency, fifo=True))]
    assert in_order == sorted(in_order)
    any_order = [number for _, _, number in arrivals(NetworkOptions(latency=latency))]
    assert any_order != sorted(any_order)


def test_bandwidth_spreads_datagrams_out() -> None:
    seen = arrivals(NetworkOptions(latency="fixed 1ms", bandwidth=400_000), count=50)
    assert [instant for instant, _, _ in seen] == [1_000_000 + 2_000_000 * (n + 1) for n in range(50)]


def test_a_slow_receiver_overruns_its_buffer() -> None:
    seen = arrivals(NetworkOptions(latency="fixed 1ms", receive_buffer=3, service="10ms"), count=100)
    assert 10 <= len(seen) <= 15
    assert all(b - a >= 10_000_000 for (a, *_), (b, *_) in itertools.pairwise(seen))


def test_a_measured_matrix_and_rules_for_single_links() -> None:
    matrix = [[0.0, 7.5], [3.0, 0.0]]
    assert arrivals(NetworkOptions(matrix=matrix), count=1)[0][0] == 7_500_000
    rule = LinkRule(source=[0], target=[1], latency="fixed 9ms", loss=0.0)
    assert arrivals(NetworkOptions(links=[rule], loss=0.5), count=10)[9][0] == 18_000_000


def test_the_same_seed_gives_the_same_trace_and_another_seed_another() -> None:
    scenario = Scenario.of(
        "paper", members=4, messages=20, network=NetworkOptions(loss=0.2, duplicate=0.1, reorder=0.1)
    )
    first, again, other = simulate(scenario, 5), simulate(scenario, 5), simulate(scenario, 6)
    assert digest("r", first.logs) == digest("r", again.logs) != digest("r", other.logs)
    assert first.finished
    assert first.delivered == 4 * 4 * 20


def test_a_trace_is_pinned_so_that_it_stays_the_same_on_every_machine() -> None:
    scenario = Scenario.of(
        "paper", members=3, messages=5, network=NetworkOptions(latency="exponential 3ms", loss=0.3, reorder=0.2)
    )
    assert digest("pinned", simulate(scenario, 1).logs)[:16] == PINNED_DIGEST


PINNED_DIGEST = "adfa7b4a84192866"


def test_partitions_heal_and_paused_members_catch_up() -> None:
    faults = [
        Fault(kind="partition", at="20ms", until="300ms", groups=[[0, 1], [2, 3]]),
        Fault(kind="pause", at="350ms", until="600ms", member=1),
        Fault(kind="cut", at="100ms", until="700ms", source=[0], target=[3]),
    ]
    run = simulate(Scenario.of("paper", members=4, messages=30, faults=faults), 3)
    assert run.finished
    assert run.stats["network"]["cut"] > 0
    assert all(check(run.events, global_clock=True)[name].verdict == "holds" for name in run.scenario.promises())


def test_a_crashed_member_says_no_more_and_holds_the_others_back() -> None:
    crash = Fault(kind="crash", at="50ms", member=2)
    run = simulate(Scenario.of("paper", members=3, messages=50, faults=[crash], limit="3s"), 1)
    assert not run.finished
    assert run.logs[2].events[-1] == "crash"
    assert run.logs[0].events[-1] == "end"
    verdicts = check(run.events, guarantees=["fifo", "integrity", "stability"])
    assert {verdict.verdict for verdict in verdicts.values()} == {"holds"}


def test_clocks_may_be_wrong_without_harm() -> None:
    run = simulate(Scenario.of("paper", members=3, messages=20, clocks=Clocks(skew="80ms", drift_ppm=500)), 2)
    assert run.finished
    starts = {log.times[0] for log in run.logs}
    assert len(starts) == 3


@pytest.mark.parametrize("seed", range(20))
def test_a_scenario_survives_being_written_down(seed: int, tmp_path: Path) -> None:
    scenario = schedule(seed, "fifo", "vector-ack")
    path = tmp_path / "scenario.toml"
    path.write_text(to_toml(scenario))
    assert from_table(load(path)) == scenario


@pytest.mark.parametrize(
    ("table", "culprit"),
    [
        ({"members": 0}, "members"),
        ({"members": 1_000_000}, "members"),
        ({"messages": -1}, "messages"),
        ({"window": 0}, "window"),
        ({"window": 8, "buffer": 10, "members": 5}, "buffer"),
        ({"ordering": "alphabetical"}, "ordering"),
        ({"ordering": {"name": "fifo", "speed": 3}}, "ordering"),
        ({"stability": "rock"}, "stability"),
        ({"stability": 7}, "stability"),
        ({"network": {"loss": 1.0}}, r"network\.loss"),
        ({"network": {"loss": -0.1}}, r"network\.loss"),
        ({"network": {"latency": "soon"}}, r"network\.latency"),
        ({"network": {"fifo": True, "reorder": 0.1}}, r"network\.reorder"),
        ({"network": {"receive_buffer": 4}}, r"network\.service"),
        ({"network": {"matrix": [[0.0, 1.0]]}, "members": 2}, r"network\.matrix"),
        ({"network": {"colour": "red"}}, "colour"),
        ({"network": {"loss": "much"}}, r"network\.loss"),
        ({"network": {"links": [{"from": [0], "to": [9]}]}}, r"network\.links"),
        ({"workload": {"payload": 70_000}}, r"workload\.payload"),
        ({"workload": {"senders": [7]}}, r"workload\.senders"),
        ({"workload": {"lifetime": "0"}}, r"workload\.lifetime"),
        ({"clocks": {"skew": "later"}}, r"clocks\.skew"),
        ({"limit": "0"}, "limit"),
        ({"recovery": {"nack_delay_ns": 0}}, r"recovery\.nack_delay_ns"),
        ({"faults": [{"kind": "crash", "at": "1s"}]}, r"faults\[0\]\.member"),
        ({"faults": [{"kind": "crash", "at": "1s", "member": 9}]}, r"faults\[0\]"),
        ({"faults": [{"kind": "cut", "at": "1s", "from": [0]}]}, r"faults\[0\]\.to"),
        ({"faults": [{"kind": "pause", "at": "2s", "until": "1s", "member": 0}]}, r"faults\[0\]\.until"),
        ({"faults": [{"kind": "partition", "at": "1s", "groups": [[0], [0]]}]}, r"faults\[0\]\.groups"),
        ({"faults": [{"kind": "flood", "at": "1s"}]}, "flood"),
        ({"weather": "fine"}, "weather"),
    ],
)
def test_a_nonsensical_scenario_names_the_key(table: dict[str, object], culprit: str) -> None:
    with pytest.raises(UsageError, match=culprit) as error:
        from_table(table).check()
    assert "\n" not in str(error.value)


def test_senders_and_payloads_are_as_asked() -> None:
    scenario = Scenario.of("paper", members=3, messages=4, workload=Workload(senders=[1], payload=10))
    run = simulate(msgspec.structs.replace(scenario), 0)
    assert [log.count("send") for log in run.logs] == [0, 4, 0]
    assert run.delivered == 12
