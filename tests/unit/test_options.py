"""One description of a group: the same defaults wherever it runs, and profiles that are values of it."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.errors import UsageError
from antiphon.live.settings import Settings
from antiphon.protocol.options import PROFILES, GroupOptions, profile_of
from antiphon.protocol.ordering import ALIASES, ORDERINGS
from antiphon.protocol.recovery import RecoveryOptions
from antiphon.protocol.stability import STABILITIES
from antiphon.sim.cluster import Cluster
from antiphon.sim.network import NetworkOptions
from antiphon.sim.scenario import Scenario, Workload, from_table, to_toml
from antiphon.sim.schedules import small as schedule
from antiphon.sim.view_schedules import schedule as view_schedule

MS = 1_000_000


def nameless(options: GroupOptions) -> GroupOptions:
    return msgspec.structs.replace(options, group="")


@pytest.mark.parametrize("stability", STABILITIES)
@pytest.mark.parametrize("ordering", [*ORDERINGS, *ALIASES])
def test_a_scenario_and_a_live_group_run_the_same(ordering: str, stability: str) -> None:
    live = Settings(group="g", bind="localhost:1", ordering=ordering, stability=stability).options("tag")
    simulated = Scenario(ordering=ordering, stability=stability, views=True).options()
    assert nameless(live) == nameless(simulated)
    assert nameless(from_table({"ordering": ordering, "stability": stability, "views": True}).options()) == nameless(
        live
    )
    assert live.ordering_settings() == simulated.ordering_settings()
    assert live.stability_settings() == simulated.stability_settings()


def test_without_anything_said_they_run_the_same_too() -> None:
    live = Settings(group="g", bind="localhost:1").options("tag")
    assert nameless(live) == nameless(Scenario(views=True).options()) == nameless(PROFILES["lan"])
    assert nameless(GroupOptions()) == nameless(live)


def test_only_the_group_and_its_views_differ_between_scenario_and_group() -> None:
    ours, theirs = Scenario().options(), GroupOptions()
    differing = {key for key in GroupOptions.__struct_fields__ if getattr(ours, key) != getattr(theirs, key)}
    assert differing == {"views"}


def test_what_a_live_group_runs_is_as_it_was_tuned() -> None:
    lan = PROFILES["lan"]
    assert lan.recovery == RecoveryOptions(10 * MS, 40 * MS, 40 * MS, 25 * MS, 100 * MS, 256)
    assert (lan.queue, lan.window, lan.membership.heartbeat_ns) == (2, 64, 50 * MS)
    of = msgspec.structs.replace
    assert of(lan, stability="train").stability_settings().piggyback
    assert of(lan, ordering="abcast").ordering_settings().ask_ns_max == 50 * MS
    assert of(lan, ordering="co").ordering_settings().ret_retry_ns_max == 40 * MS
    assert of(lan, ordering="co").ordering_settings().probe_ns_max == 100 * MS


def test_what_the_papers_print_is_as_it_was() -> None:
    paper = PROFILES["paper"]
    assert paper.recovery == RecoveryOptions(5 * MS, 20 * MS, 1000 * MS, 25 * MS, 1000 * MS, 256, adaptive=False)
    assert (paper.queue, paper.window, paper.ordering, paper.views) == (1024, 64, "fifo", False)
    for ordering, part in ORDERINGS.items():
        assert msgspec.structs.replace(paper, ordering=ordering).ordering_settings() == part.Options()
    for name, kind in STABILITIES.items():
        assert msgspec.structs.replace(paper, stability=name).stability_settings() == kind.Options()


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("stability", STABILITIES)
@pytest.mark.parametrize("ordering", ORDERINGS)
def test_every_profile_works_with_every_part(profile: str, ordering: str, stability: str) -> None:
    Scenario.of(profile, ordering=ordering, stability=stability).check()
    Scenario.of(profile, ordering=ordering, stability=stability, views=True).check()


@pytest.mark.parametrize("profile", PROFILES)
def test_each_default_of_a_part_is_an_option_of_some_part(profile: str) -> None:
    known: set[str] = set()
    for part in (*ORDERINGS.values(), *STABILITIES.values()):
        known |= set(part.Options.__struct_fields__)
    assert set(profile_of(profile).part_defaults) <= known


def test_what_is_given_wins_over_what_is_usual() -> None:
    scenario = Scenario(stability="train", stability_options={"piggyback": False})
    assert not scenario.stability_settings().piggyback
    assert Scenario(stability="train").stability_settings().piggyback


def test_a_profile_is_named_in_a_file_and_completed_by_it() -> None:
    scenario = from_table({"profile": "paper", "recovery": {"nack_delay_ns": 7}, "ordering": {"ask_ns": 3}})
    assert scenario.recovery == RecoveryOptions(7, 20 * MS, 1000 * MS, 25 * MS, 1000 * MS, 256, adaptive=False)
    assert scenario.ordering == "fifo"
    assert scenario.ordering_options == {"ask_ns": 3}
    assert not scenario.views


@pytest.mark.parametrize("profile", ["pap", 3, ["lan"]])
def test_a_profile_that_is_none_is_refused(profile: Any) -> None:
    with pytest.raises(UsageError, match=r"^profile: .*lan, wan, paper"):
        from_table({"profile": profile})


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_a_scenario_that_is_written_down_is_the_same_when_read(ordering: str, tmp_path: Path) -> None:
    import tomllib

    for seed in range(40):
        for profile in PROFILES:
            drawn = schedule(seed, ordering) if seed % 2 else view_schedule(seed, ordering)
            usual = msgspec.structs.asdict(profile_of(profile))
            mixed = msgspec.structs.replace(drawn, part_defaults=usual["part_defaults"], recovery=usual["recovery"])
            for scenario in (drawn, mixed, msgspec.structs.replace(mixed, part_defaults={"delta": True})):
                assert from_table(tomllib.loads(to_toml(scenario))) == scenario


def test_there_is_one_list_of_defaults() -> None:
    """A live group's and a scenario's own class may not repeat a default of the group's options."""
    for kind in (Settings, Scenario):
        own = inspect.getsource(kind)
        assert "MILLISECOND" not in own
        assert '"vector-ack"' not in own
        assert '"total"' not in own


@pytest.mark.parametrize(
    ("table", "key"),
    [
        (
            {"ordering": {"name": "causal-blocks", "repair_delay_ns": 0}},
            r"ordering\.repair_delay_ns: must be at least 1",
        ),
        ({"ordering": {"name": "causal-blocks", "silence_ns": 1}}, r"ordering\.silence_ns: 1 ns"),
        ({"ordering": {"name": "co", "defer_ns": 0}}, r"ordering\.defer_ns: must be at least 1"),
        ({"ordering": {"name": "co", "buffer": 3}}, r"ordering\.buffer"),
        ({"ordering": {"name": "abcast", "ask_ns_max": 5}}, r"ordering\.ask_ns_max: 5 ns"),
        ({"stability": {"name": "train", "timeout_ns_max": 7, "timeout_ns": 3}}, r"stability: timeout_ns_max: 7 ns"),
        ({"stability": {"name": "timestamp-ack", "t_ack_ns": 1}}, r"t_ack_ns"),
        ({"recovery": {"nack_retry_ns_max": 10}}, r"recovery\.nack_retry_ns_max: 10 ns"),
        (
            {"recovery": {"nack_retry_ns": 50 * MS, "nack_retry_ns_max": 45 * MS}},
            r"recovery\.nack_retry_ns_max: is below",
        ),
    ],
)
def test_options_that_cannot_work_are_refused_with_the_key(table: dict[str, Any], key: str) -> None:
    with pytest.raises(UsageError, match=key):
        from_table(table).check()


# Each option of each part at its bounds

PARTS: dict[str, tuple[type[msgspec.Struct], dict[str, Any]]] = {
    **{name: (part.Options, {"ordering": name}) for name, part in ORDERINGS.items()},
    **{name: (part.Options, {"ordering": "fifo", "stability": name}) for name, part in STABILITIES.items()},
    "recovery": (RecoveryOptions, {"ordering": "fifo"}),
}


def with_option(part: str, key: str, value: Any) -> Scenario:
    network = NetworkOptions(loss=0.1)
    scenario = Scenario(members=3, messages=2, network=network, workload=Workload("exponential 3ms", 8), limit="60min")
    scenario = msgspec.structs.replace(scenario, **PARTS[part][1])
    if part == "recovery":
        return msgspec.structs.replace(scenario, recovery=msgspec.structs.replace(scenario.recovery, **{key: value}))
    table = "ordering_options" if part in ORDERINGS else "stability_options"
    return msgspec.structs.replace(scenario, **{table: {key: value}})


def why_refused(scenario: Scenario) -> str | None:
    try:
        scenario.check()
    except UsageError as error:
        return str(error)
    return None


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_an_option_at_its_bound_works_or_is_refused_by_its_name(part: str) -> None:
    """What is allowed must end; what cannot work is refused with the key: no option makes a group stand still."""
    for field in msgspec.structs.fields(PARTS[part][0]):
        usual = field.default
        if not isinstance(usual, int) or isinstance(usual, bool):
            continue
        for value in (-1, 0, 1, 2**40, 2**70):
            scenario = with_option(part, field.name, value)
            refused = why_refused(scenario)
            if refused is not None:
                assert field.name in refused, (part, field.name, value)
                continue
            cluster = Cluster(scenario, 1)
            cluster.events_max = 60_000
            run = cluster.run()
            assert run.finished or run.stats["kernel_events"] == 60_000, (part, field.name, value, run.why_not)
