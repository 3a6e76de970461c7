"""What a simulated run cost, and whether that is a storm: measured against fifo on the same schedule.

A storm is a failure like a wrong order. What a run may cost follows from what the network did to it (each datagram that
was lost, overrun or cut off may be repaired a few times) and from what fifo needs on the same network with the same
workload; each ordering may cost so many times that. Chance has its share: where ten datagrams in a row are lost on one
link, each has cost one of the pauses after which something is repeated, and fifo may have been luckier.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from antiphon.protocol.machine import SECOND, Duration, Input, Instant, TraceRow
from antiphon.protocol.options import PROFILES, ordering_type
from antiphon.protocol.view.member import Member
from antiphon.protocol.wire import Data, Streamed
from antiphon.sim.cluster import Cluster, Node, SimulatedRun
from antiphon.sim.distributions import duration
from antiphon.sim.scenario import Scenario


class RunCost(msgspec.Struct, frozen=True):
    """What a run cost."""

    datagrams: int  # once for each receiver
    bytes: int
    lost: int  # datagrams that did not come: lost, overrun or cut off
    repairs: int  # messages that were sent again, once for each receiver
    took_ns: Duration
    held: int  # the most messages that a member kept at once
    lost_on_one_link: int = 0  # datagrams that did not come on the link with the worst luck


class CostLimits(msgspec.Struct, frozen=True):
    """How often an ordering may cost what fifo does on the same schedule, and what it may repair."""

    bytes: float  # times fifo's
    time: float  # times fifo's
    repairs: float  # for each datagram that did not come


LIMITS: Final[dict[str, CostLimits]] = {
    "fifo": CostLimits(bytes=12, time=8, repairs=12),
    "causal-blocks": CostLimits(bytes=12, time=8, repairs=12),
    "co": CostLimits(bytes=12, time=8, repairs=12),
    "abcast": CostLimits(bytes=12, time=8, repairs=12),
    "tomp": CostLimits(bytes=12, time=8, repairs=12),
    "sequencer": CostLimits(bytes=12, time=8, repairs=12),
}
_USUAL: Final = CostLimits(bytes=12, time=8, repairs=12)
_SLACK_NS: Final = 3 * SECOND  # what any run may take beyond its limit: timers, not traffic
_SLACK_BYTES: Final = 2_000  # for each pair of members, and once more for each second that chance and cuts may take
_SLACK_REPAIRS: Final = 8  # for each pair of members


class MeasuredCluster(Cluster):
    """A cluster that notes how many copies of messages its members keep, and counts what they say beside messages."""

    held = repairs = 0

    def _write(self, node: Node, now: Instant, row: TraceRow) -> None:
        if row.event == "control":  # most rows, of which nothing is judged but their number
            self.repairs += repair_receivers(row.detail or "", self.scenario.members)
        else:
            super()._write(node, now, row)

    def drive(self, me: int, node: Node, event: Input) -> None:
        """Give a member one input, and see what it keeps then."""
        super().drive(me, node, event)
        member = node.member
        assert isinstance(member, Member)
        copies = member.ordering.held if member.recovery is None else member.recovery.held
        self.held = max(self.held, copies)


def measured(scenario: Scenario, seed: int, events_max: int | None = None) -> tuple[SimulatedRun, RunCost]:
    """Run a scenario with fixed membership, and return what it cost."""
    cluster = MeasuredCluster(scenario, seed)
    cluster.events_max = events_max
    run = cluster.run()
    network = run.stats["network"]
    cost = RunCost(
        datagrams=network["datagrams"],
        bytes=network["bytes"],
        lost=sum(network.get(mishap, 0) for mishap in ("lost", "overrun", "cut")),
        repairs=cluster.repairs,
        took_ns=run.ended_ns,
        held=cluster.held,
        lost_on_one_link=cluster.network.lost_on_one_link,
    )
    return run, cost


def repair_receivers(detail: str, members: int) -> int:
    """Count the receivers of a repair, by what the trace says of it."""
    if not detail.startswith("repair to "):
        return 0
    return members - 1 if detail == "repair to all" else detail.count(",") + 1


def storm(scenario: Scenario, seed: int, cost: RunCost) -> str | None:
    """Say which limit a run breaks, if it breaks one."""
    ordering = scenario.ordering if isinstance(scenario.ordering, str) else ""
    limits, pairs = LIMITS.get(ordering, _USUAL), scenario.members * scenario.members
    bound = buffer_bound(scenario)
    if cost.held > bound:
        return f"storm: a member keeps {cost.held} messages, and its bound is {bound}"
    if retuned(scenario):
        return None  # what other pauses cost is up to whoever chose them
    overtaken = cost.datagrams // 3 if _overtakes(scenario) else 0  # what comes late is asked for as well
    if cost.repairs > limits.repairs * cost.lost + _SLACK_REPAIRS * pairs + overtaken:
        return f"storm: {cost.repairs} repairs for {cost.lost} datagrams that did not come"
    if cost.bytes <= _SLACK_BYTES * pairs and cost.took_ns <= _SLACK_NS:
        return None  # too little to be worth a comparison
    usual = cost_of_fifo(scenario, seed)
    # a cut that fifo was done before may hold up one that says more: it need not end before it heals
    healed_ns = max((duration(fault.until, "until") for fault in scenario.faults if fault.until), default=0)
    luck_ns = healed_ns + cost.lost_on_one_link * longest_pause_ns(scenario) * 3 // 2  # pauses are jittered
    if cost.bytes > limits.bytes * usual.bytes + _SLACK_BYTES * pairs * (1 + luck_ns / SECOND):
        return f"storm: {cost.bytes:,} bytes where fifo sends {usual.bytes:,}"
    if cost.took_ns > limits.time * usual.took_ns + luck_ns + _SLACK_NS and ordering != "fifo":
        return f"storm: {cost.took_ns / SECOND:.1f} s where fifo takes {usual.took_ns / SECOND:.1f} s"
    return None


def longest_pause_ns(scenario: Scenario) -> Duration:
    """Return the longest pause after which any part of a member repeats itself."""
    parts = [scenario.ordering_settings()]
    if ordering_type(scenario.ordering).NEEDS_RECOVERY:
        parts += [scenario.stability_settings(), scenario.recovery]
    return max(
        (getattr(part, key) for part in parts for key in part.__struct_fields__ if key.endswith("_ns_max")), default=0
    )


def _overtakes(scenario: Scenario) -> bool:
    """Return whether one datagram may overtake another on its way."""
    return scenario.network.reorder > 0 or not scenario.network.latency.startswith("fixed")


def retuned(scenario: Scenario) -> bool:
    """Return whether any pause is another than in a profile."""
    tables = (scenario.ordering_options, scenario.stability_options)
    named = any("_ns" in key for table in tables for key in table)
    return named or scenario.recovery not in [profile.recovery for profile in PROFILES.values()]


def cost_of_fifo(scenario: Scenario, seed: int) -> RunCost:
    """Return what fifo costs on the same network, with the same workload, faults and options as far as it has them.

    For fifo itself the other stability protocol is the usual one: it alone is what makes the difference.
    """
    ordering = ordering_type(scenario.ordering)
    changes: dict[str, Any] = {"ordering": "fifo", "ordering_options": {}, "safe": False}
    if scenario.ordering == "fifo" or not ordering.NEEDS_RECOVERY:
        changes |= {"stability": Scenario().stability, "stability_options": {}, "buffer": 0}
        changes["window"] = _window(scenario)
    else:
        options = {key: value for key, value in scenario.stability_options.items() if key != "positions"}
        changes["stability_options"] = options
    return measured(msgspec.structs.replace(scenario, **changes), seed)[1]


def _window(scenario: Scenario) -> int:
    """Return how many messages a sender may have on their way, whatever bounds that in its ordering."""
    options = scenario.ordering_settings()
    window: int = getattr(options, "window", scenario.window)
    if hasattr(options, "places"):  # CO: a tight buffer bounds it too
        window = min(window, options.places(scenario.members) // (options.headroom * scenario.members))
    return window


def buffer_bound(scenario: Scenario) -> int:
    """Return the number of copies that a member may have to keep: messages, and what else streams carry."""
    options, ordering = scenario.ordering_settings(), ordering_type(scenario.ordering)
    if ordering.NEEDS_RECOVERY:
        more = [kind for kind in ordering.PDUS if issubclass(kind, Streamed) and not issubclass(kind, Data)]
        windows = scenario.window * scenario.members
        # news of free places is stale by what everyone may have sent since it was said
        return 4 * windows if more else min(4 * windows, scenario.buffer_size(scenario.members) + windows)
    if hasattr(options, "places"):
        return int(options.places(scenario.members))
    window: int = getattr(options, "window", scenario.window) + getattr(options, "lag", 0)
    return window * scenario.members
