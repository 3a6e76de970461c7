"""What a simulated run cost, and whether that is a storm: measured against fifo on the same schedule.

A storm is a failure like a wrong order. What a run may cost follows from what the network did to it (each datagram that
was lost, overrun or cut off may be repaired a few times) and from what fifo needs on the same network with the same
workload; each ordering may cost so many times that. Fifo itself is held to the bytes of its messages.

No allowance may grow with what a storm itself does: a storm loses many datagrams, so that losses of repairs count for
nothing, and chance counts only as far as fifo could have had it. Each has a seeded storm that is flagged in spite of
it (`tests/property/test_storms.py`).

What is merely half as dear again shows in no single schedule, where chance does more than that. A `CostLedger` sees it
in the mean of many.
"""

from __future__ import annotations

from math import exp, log, sqrt
from typing import Any, Final

import msgspec

from antiphon.protocol.machine import SECOND, Duration, Input, Instant, TraceRow
from antiphon.protocol.options import PROFILES, ordering_type
from antiphon.protocol.parts import Shaped
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
    repairs: int  # messages that were sent again, once for each receiver; what else shares a datagram counts as one
    took_ns: Duration
    held: int  # the most messages that a member kept at once
    lost_on_one_link: int = 0  # datagrams that did not come on the link with the worst luck
    bytes_lost: int = 0  # of the datagrams that did not come
    bytes_repaired: int = 0  # of the messages that were sent again, once for each receiver
    reports: int = 0  # intervals in which a member had something to report: a message that it had not had before


class CostLimits(msgspec.Struct, frozen=True):
    """How often an ordering may cost what fifo does on the same schedule, and what it may repair."""

    bytes: float  # times fifo's
    repairs: float  # for each datagram that did not come, repairs aside
    time: float = 5  # times fifo's


LIMITS: Final[dict[str, CostLimits]] = {
    "fifo": CostLimits(bytes=3, repairs=3),  # with another stability protocol than the usual one
    "causal-blocks": CostLimits(bytes=3, repairs=3),
    # confirms each message twice, and repairs confirmations too, for all who are not known to have them
    "co": CostLimits(bytes=4, repairs=6),
    "abcast": CostLimits(bytes=4, repairs=3),  # proposals and decisions
    "tomp": CostLimits(bytes=4, repairs=3),
    "sequencer": CostLimits(bytes=3, repairs=3),
}
_USUAL: Final = CostLimits(bytes=4, repairs=6)
_SLACK_NS: Final = 3 * SECOND  # what any run may take beyond its limit: timers, not traffic
_SLACK_BYTES: Final = 1_000  # for each pair of members, and once more for each second that chance and cuts may take
_SLACK_REPAIRS: Final = 4  # for each pair of members: the first are sent before anything is known of the network
_OVERTAKEN: Final = 8  # of so many datagrams one may come so late that it is asked for
_UNLUCKY: Final = 10  # datagrams that a link may lose more than it did to fifo
_COPIES: Final = 2  # of each message, and of each that did not come: what fifo may send, beside _SLACK_BYTES
_IN_A_ROW: Final = 6  # copies of one message that may be lost one after the other
_HEADER_BYTES: Final = 24
_ENTRY_BYTES: Final = 4  # of a vector
_STEADY_BYTES: Final = 48  # of a null or an acknowledgment
_OTHER_SEEDS: Final = 4  # of fifo, which may have been lucky with the first one


class TypicalCost(msgspec.Struct, frozen=True):
    """What schedules cost in the middle: geometric means, to which each contributes alike, however long it was."""

    repairs: float  # and one more, since many a schedule needs none
    datagrams: float  # for each message and receiver
    bytes: float  # for each byte of a message, with its header, and receiver


TYPICAL: Final[dict[str, TypicalCost]] = {  # of the first thousand schedules that a ledger takes into account
    "fifo": TypicalCost(repairs=3.06, datagrams=7.69, bytes=3.36),
    "causal-blocks": TypicalCost(repairs=3.05, datagrams=6.30, bytes=3.59),
    "co": TypicalCost(repairs=9.37, datagrams=9.47, bytes=4.19),
    "abcast": TypicalCost(repairs=4.67, datagrams=15.02, bytes=4.80),
    "tomp": TypicalCost(repairs=4.49, datagrams=15.43, bytes=5.32),
    "sequencer": TypicalCost(repairs=4.16, datagrams=9.95, bytes=3.56),
}
_MEMBERS: Final = range(3, 6)  # of schedules that are like enough to be averaged
_DEARER: Final = 0.1  # by how much, about, schedules may cost more than typical ...
_ERRORS: Final = 4  # ... and so many standard errors of the mean, since they are drawn at random
_SPREAD: Final = 1.25  # of the logarithm of what schedules cost, in the dearest respect


class CostLedger:
    """The costs of many schedules of one ordering: in their mean a storm shows that is lost in the luck of each."""

    def __init__(self) -> None:
        self._logarithms: list[tuple[float, float, float]] = []

    @property
    def count(self) -> int:
        """How many schedules were taken into account."""
        return len(self._logarithms)

    def add(self, scenario: Scenario, cost: RunCost) -> None:
        """Take a schedule into account, if it is one of a few members that lose something, with a profile's pauses."""
        if not is_comparable(scenario):
            return
        copies = len(scenario.senders) * scenario.messages * (scenario.members - 1)
        nominal = copies * (scenario.workload.payload + _HEADER_BYTES)
        self._logarithms.append((log(1 + cost.repairs), log(cost.datagrams / copies), log(cost.bytes / nominal)))

    def typical(self) -> TypicalCost:
        """Return the geometric means; there must be a schedule."""
        return TypicalCost(*(exp(sum(column) / self.count) for column in zip(*self._logarithms, strict=True)))

    def margin(self) -> float:
        """Return how much dearer than typical so many schedules may be, as a logarithm: by chance, and a tenth."""
        return _DEARER + _ERRORS * _SPREAD / sqrt(self.count)

    def storm(self, usual: TypicalCost, margin: float | None = None) -> str | None:
        """Say what is dearer than usual by more than the margin, if anything is."""
        if not self.count:
            return None
        typical, times = self.typical(), exp(self.margin() if margin is None else margin)
        for key in typical.__struct_fields__:
            ours, most = getattr(typical, key), getattr(usual, key) * times
            if ours > most:
                return (
                    f"storm: {ours:.2f} {key} in the mean of {self.count:,} schedules, where {most:.2f} would be many"
                )
        return None


def is_comparable(scenario: Scenario) -> bool:
    """Return whether a schedule is like those of which `TYPICAL` tells."""
    loses = scenario.network.loss > 0 or scenario.network.receive_buffer > 0
    return scenario.members in _MEMBERS and loses and not retuned(scenario)


class MeasuredCluster(Cluster):
    """A cluster that notes how many copies of messages its members keep, and counts what they say beside messages."""

    held = repairs = bytes_repaired = reports = 0
    _interval_ns: Duration | None = None
    _together: tuple[Node, Instant, str] | None = None  # the last repair without a message: by whom, when, to whom

    def __init__(self, scenario: Scenario, seed: int) -> None:
        super().__init__(scenario, seed)
        self._interval_ns = report_interval_ns(scenario)
        self._reported_at: dict[Node, int] = {}  # the last interval in which a member had something to report

    def _write(self, node: Node, now: Instant, row: TraceRow) -> None:
        if row.event == "receive" and self._interval_ns and self._reported_at.get(node) != now // self._interval_ns:
            self._reported_at[node] = now // self._interval_ns
            self.reports += 1
        if row.event == "control":  # most rows, of which nothing is judged but their number and size
            receivers = repair_receivers(row.detail or "", self.scenario.members)
            together = None if row.seq is not None or not receivers else (node, now, row.detail or "")
            self.repairs += receivers * (together is None or together != self._together)
            self._together = together or self._together
            self.bytes_repaired += receivers * (row.bytes or 0)
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
        bytes_lost=cluster.network.bytes_lost,
        bytes_repaired=cluster.bytes_repaired,
        reports=cluster.reports,
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
    if cost.repairs > limits.repairs * first_losses(cost) + _SLACK_REPAIRS * pairs + _overtaken(scenario, cost):
        return f"storm: {cost.repairs} repairs for {cost.lost} datagrams that did not come"
    if cost.bytes <= _SLACK_BYTES * pairs and cost.took_ns <= _SLACK_NS:
        return None  # too little to be worth a comparison
    usual = cost_of_fifo(scenario, seed)
    for fifo in (cost, usual) if ordering == "fifo" else (usual,):
        if fifo.bytes > (most := _fifo_bytes_max(scenario, fifo)):
            return f"storm: fifo sends {fifo.bytes:,} bytes, and {most:,.0f} would be many"
    chance_ns = _chance_ns(scenario, cost, usual)
    steady = _steady_bytes(scenario, cost) if ordering == "fifo" else 0
    if cost.bytes > limits.bytes * usual.bytes + _SLACK_BYTES * pairs * (1 + chance_ns / SECOND) + steady:
        return f"storm: {cost.bytes:,} bytes where fifo sends {usual.bytes:,}"
    # fifo is not compared with itself: a train around many that lose much takes its time
    if ordering == "fifo" or cost.took_ns <= limits.time * usual.took_ns + chance_ns + _SLACK_NS:
        return None
    for other in range(1, _OTHER_SEEDS + 1):  # fifo may have been lucky: what it takes at worst is what counts
        unlucky = cost_of_fifo(scenario, seed + other)
        if cost.took_ns <= limits.time * unlucky.took_ns + _chance_ns(scenario, cost, unlucky) + _SLACK_NS:
            return None
    return f"storm: {cost.took_ns / SECOND:.1f} s where fifo takes {usual.took_ns / SECOND:.1f} s"


def first_losses(cost: RunCost) -> float:
    """Return how many datagrams did not come that were no repairs.

    Of all that is sent the same share is lost. If repairs counted as well, a storm that loses one in twelve would be
    within twelve repairs for a loss, however long it lasts.
    """
    return cost.lost * (1 - cost.repairs / cost.datagrams) if cost.datagrams > cost.repairs else 0


def _first_bytes_lost(cost: RunCost) -> float:
    """Return how many bytes did not come that were no repairs: those of heartbeats are few, however many are lost."""
    return cost.bytes_lost * (1 - cost.bytes_repaired / cost.bytes) if cost.bytes > cost.bytes_repaired else 0


def _overtaken(scenario: Scenario, cost: RunCost) -> int:
    """Return how many datagrams may have been asked for because others overtook them; repairs do not count."""
    overtakes = scenario.network.reorder > 0 or not scenario.network.latency.startswith("fixed")
    return (cost.datagrams - cost.repairs) // _OVERTAKEN if overtakes else 0


def _chance_ns(scenario: Scenario, cost: RunCost, usual: RunCost) -> Duration:
    """Return how much longer a run may take because it was less lucky than fifo's.

    Where ten datagrams in a row are lost on one link, each costs one of the pauses, jittered, after which something is
    repeated. A run that says more loses more: what counts is what fifo lost on its worst link, within a factor. Each
    repair, of which there are no more than allowed, may occupy a slow link for the time of a message. And a cut that
    fifo was done before may hold up another: it need not end before it heals.
    """
    healed_ns = max((duration(fault.until, "until") for fault in scenario.faults if fault.until), default=0)
    unlucky = min(cost.lost_on_one_link, _UNLUCKY + 3 * usual.lost_on_one_link)
    bandwidth = scenario.network.bandwidth
    repairing_ns = cost.repairs * scenario.workload.payload * 8 * SECOND // bandwidth if bandwidth else 0
    return healed_ns + repairing_ns + unlucky * longest_pause_ns(scenario) * 3 // 2


def _fifo_bytes_max(scenario: Scenario, cost: RunCost) -> float:
    """Return what fifo may send: its messages twice, what was lost of them twice again, and so much else in a second.

    A vector of all members goes to all with each report, and in a group of forty that is most of it.

    Without this the yardstick itself could be a storm, and excuse all others.
    """
    each = scenario.workload.payload + _HEADER_BYTES
    messages = len(scenario.senders) * scenario.messages * (scenario.members - 1)
    rest = _SLACK_BYTES * scenario.members * scenario.members * (1 + cost.took_ns / SECOND)
    rest += cost.reports * (scenario.members - 1) * _ENTRY_BYTES * scenario.members
    return (
        _COPIES * (each * messages + _first_bytes_lost(cost)) + _IN_A_ROW * each + rest + _steady_bytes(scenario, cost)
    )


def _steady_bytes(scenario: Scenario, cost: RunCost) -> float:
    """Return what a stability protocol sends at a steady rate, whether there is something to tell or not.

    Timestamp acknowledgments do, as their paper has it: a null after each `t_send_ns` and an acknowledgment after each
    `t_ack_ns`. As long as a message waits for a window of one, that is most of what is sent.
    """
    if not ordering_type(scenario.ordering).NEEDS_RECOVERY:
        return 0
    options = scenario.stability_settings()
    pauses = [getattr(options, key, 0) for key in ("t_send_ns", "t_ack_ns")]
    pairs = scenario.members * (scenario.members - 1)
    return sum(_STEADY_BYTES * pairs * cost.took_ns / pause for pause in pauses if pause)


def report_interval_ns(scenario: Scenario) -> Duration | None:
    """Return the least pause between two reports of a member; None: it makes none."""
    if not ordering_type(scenario.ordering).NEEDS_RECOVERY:
        return None
    options = scenario.stability_settings()
    fitted = options.fit(scenario.members) if isinstance(options, Shaped) else options
    return getattr(fitted, "interval_ns", None)


def longest_pause_ns(scenario: Scenario) -> Duration:
    """Return the longest pause after which any part of a member repeats itself."""
    parts = [scenario.ordering_settings()]
    if ordering_type(scenario.ordering).NEEDS_RECOVERY:
        parts += [scenario.stability_settings(), scenario.recovery]
    return max(
        (getattr(part, key) for part in parts for key in part.__struct_fields__ if key.endswith("_ns_max")), default=0
    )


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
