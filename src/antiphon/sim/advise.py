"""Advice: which ordering and stability protocol to use, and how, found by simulating the candidates.

Every candidate is a composition that a member can have. Groups of up to `size_max` run as they are, with whole members
on the asked-for network and on machines that take as long as was measured. Larger ones run at three smaller sizes and
what was measured there is extended by a power of n; on a tree, one round is run at full size with the compiled kernels
of the LAN model instead. Each estimate says which of these it is. All orderings that give what is needed are tried with
a live group's own stability protocol, the best of them with every stability protocol, and the best of those with other
intervals and with their options.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

import msgspec
import numpy as np

from antiphon.errors import UsageError, did_you_mean
from antiphon.protocol.machine import MILLISECOND, SECOND, Duration, Instant
from antiphon.protocol.options import GroupOptions, stability_type
from antiphon.protocol.ordering import ORDERINGS
from antiphon.protocol.stability import STABILITIES
from antiphon.protocol.wire import DATAGRAM_BYTES_MAX, FRAME_OVERHEAD_BYTES, PAYLOAD_BYTES_MAX
from antiphon.sim.cluster import Cluster
from antiphon.sim.distributions import duration, sampler
from antiphon.sim.hosted import HostedCluster, HostTimes
from antiphon.sim.lan import (
    HEADER_BYTES,
    ROUND_PROTOCOLS,
    ROUTER_NS,
    LanRound,
    message_bytes,
    receive_ns,
    run_round,
    send_ns,
)
from antiphon.sim.lan import wire_ns as lan_wire_ns
from antiphon.sim.network import NetworkOptions
from antiphon.sim.scenario import Clocks, Scenario, Workload
from antiphon.sim.trees import Tree

NEEDS: Final = ("fifo", "causal", "total")
_RARE_PER_S: Final = 0.5  # rarer messages of a sender are not simulated: each has long become stable before the next,
_RARE_WAYS: Final = 40  # if a datagram's way can be gone so many times in between
_SETTLING_NS: Final = 300 * SECOND  # until all is stable after the last message was due; who takes longer does not end
_SPAN_S: Final = 2.0  # how long the simulated members send, as far as the number of messages allows
_DELIVERIES_MAX: Final = 12_000  # per simulated run: keeps each below about a second
_ORDERINGS_BEST: Final = 2  # how many orderings are tried with every stability protocol, if no more are as good
_BEST: Final = 4  # how many protocols are tried with all intervals and options
_WIDEST: Final = 4096  # window: the next one would be too wide for a group
_FORMING_NS: Final = SECOND  # until a group stands, on quick links, and
_FORMING_WAYS: Final = 20  # so many ways of a datagram in any case
DEFAULT_INTERVALS_MS: Final = (10.0, 5.0, 40.0)  # the first one, a live group's, is tried with every protocol
_ALIKE: Final = 0.05  # what is so near to the best is as good: chance alone makes such a difference
_ALIKE_MEASURED: Final = 0.15  # and this one on machines whose times vary
Goal: TypeAlias = Literal["deliver", "stable", "bytes", "cpu"]
GOALS: Final[dict[Goal, str]] = {
    "deliver": "time to deliver",
    "stable": "time to stable",
    "bytes": "traffic",
    "cpu": "processor time",
}
_TIMESTAMP_LAN_BYTES: Final = HEADER_BYTES + 8


class Framing(msgspec.Struct, frozen=True):
    """The bytes that a live member adds to what the protocol sends."""

    message: int = 0  # to an application's message, which travels in a burst
    packet: int = 0  # to a packet: who sends it, its kind, and its proof
    several: int = 0  # to a packet of several datagrams, and
    each: int = 0  # to every one of them


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What the user has, needs and wants."""

    members: int
    need: str = "fifo"
    rate_per_s: float = 10.0  # messages a second of each sender
    payload: int = 64
    senders: tuple[int, ...] | None = None
    latency: str = "uniform 1ms 5ms"
    matrix_ms: tuple[tuple[float, ...], ...] | None = None
    tree: Tree | None = None
    degree: int | None = None  # of the tree that tree protocols build
    loss: float = 0.0
    skew: str = "0"
    buffer: int = 0  # messages that a member can keep; 0: no limit
    framing: Framing = Framing()
    host: HostTimes = HostTimes()  # what the machines add to the network's time, where it was measured
    goal: Goal = "deliver"
    latency_max_ms: float | None = None
    bandwidth_max_kb_per_s: float | None = None
    intervals_ms: tuple[float, ...] = DEFAULT_INTERVALS_MS
    size_max: int = 16
    seed: int = 1

    def check(self) -> None:
        """Raise a `UsageError` that names the culprit, unless this can be answered."""
        if self.members < 2:
            raise UsageError(f"members: {self.members} is no group; advice needs at least 2")
        if self.need not in NEEDS:
            near = did_you_mean(self.need, NEEDS)
            raise UsageError(f"ordering: unknown need {self.need!r}{near}; choose from {', '.join(NEEDS)}")
        if not 0 <= self.loss <= 1:
            raise UsageError(f"loss: a probability from 0 to 1, not {self.loss:g}")
        if not (math.isfinite(self.rate_per_s) and self.rate_per_s > 0):
            raise UsageError(f"rate: {self.rate_per_s:g} messages a second; it must be above 0")
        payload_max = PAYLOAD_BYTES_MAX - self.framing.message
        if not 0 <= self.payload <= payload_max:
            raise UsageError(f"payload: 0 to {payload_max} bytes fit into a datagram, not {self.payload}")
        if self.degree is not None and self.degree < 1:
            raise UsageError(f"degree: {self.degree}; each member of a tree needs at least 1 child")
        if self.buffer < 0:
            raise UsageError(f"buffer: {self.buffer}; give the messages that a member can keep, or 0 for no limit")
        if self.size_max < 4:
            raise UsageError(f"size-max: {self.size_max}; at least 4 members must be simulated")
        if not self.intervals_ms or min(self.intervals_ms) <= 0:
            raise UsageError("intervals: durations above 0, such as 5ms,20ms,80ms")
        if self.tree is not None and len(self.tree) != self.members:
            raise UsageError(
                f"tree: {len(self.tree)} nodes for {self.members} members; leave --members out or correct it"
            )
        if self.tree is not None and self.matrix_ms is not None:
            raise UsageError("matrix: give either a tree or a matrix, since both say how far members are apart")
        if self.senders is not None:
            if len(set(self.senders)) < len(self.senders):
                twice = next(one for one in self.senders if self.senders.count(one) > 1)
                raise UsageError(f"senders: member {twice} is named twice")
            if not self.senders or not all(0 <= one < self.members for one in self.senders):
                raise UsageError(f"senders: members are 0 to {self.members - 1}; name at least one")
        if self.buffer and self.buffer < self.members:
            raise UsageError(f"buffer: {self.buffer} places cannot hold one message of each of {self.members} members")
        if self.matrix_ms is not None:
            self._refuse_what_is_no_matrix(self.matrix_ms)
        sampler(self.latency, "latency")
        simulated = min(self.members, self.size_max)
        self.network(simulated).check(simulated)
        self._refuse_impossible_goals()

    def _refuse_what_is_no_matrix(self, matrix: tuple[tuple[float, ...], ...]) -> None:
        if len(matrix) != self.members:
            raise UsageError(f"matrix: {len(matrix)} rows for {self.members} members")
        for number, row in enumerate(matrix):
            if len(row) != self.members:
                raise UsageError(f"matrix: row {number} has {len(row)} entries for {self.members} members")
            if any(not (math.isfinite(ms) and ms >= 0) for ms in row):
                raise UsageError(f"matrix: row {number} has an entry that is no latency; milliseconds, 0 or more")

    def _refuse_impossible_goals(self) -> None:
        for name, value in (("latency-max", self.latency_max_ms), ("bandwidth-max", self.bandwidth_max_kb_per_s)):
            if value is not None and not value > 0:
                raise UsageError(f"{name}: {value:g}; it must be above 0")
        if self.latency_max_ms is not None and self.latency_max_ms < (least := self.round_trip_ms()):
            raise UsageError(
                f"latency-max: {self.latency_max_ms:g} ms is impossible, for a round trip alone takes {least:g} ms"
            )
        sent_kb = self.rate_per_s * (self.payload + FRAME_OVERHEAD_BYTES) * (self.members - 1) / 1000
        sent_kb *= len(self.senders or range(self.members)) / self.members
        if self.bandwidth_max_kb_per_s is not None and self.bandwidth_max_kb_per_s < sent_kb:
            raise UsageError(
                f"bandwidth-max: {self.bandwidth_max_kb_per_s:g} kB/s is impossible, for the messages alone take "
                f"{sent_kb:.4g} kB/s of each member"
            )

    def round_trip_ms(self) -> float:
        """Give a bound below which no sender can learn that its message is everywhere."""
        matrix = self.matrix_ms
        if matrix is not None:
            others = range(self.members)
            return min(max(matrix[s][r] + matrix[r][s] for r in others if r != s) for s in self.senders or others)
        if self.tree is not None:
            return 2 * _tree_latency_ms(1, self.payload)
        words = self.latency.replace(":", " ").split()
        if words[0] == "exponential":
            return 0.0
        return 2 * duration(words[1] if len(words) > 1 else words[0], "latency") / MILLISECOND

    def one_way_ns(self, size: int) -> Duration:
        """Give about how long a datagram takes in a group of this size: the mean, or between those farthest apart."""
        matrix = self.network(size).matrix
        if matrix is not None:
            return round(max(map(max, matrix)) * MILLISECOND)
        draw, rng = sampler(self.latency, "latency"), random.Random(self.seed)
        return sum(draw(rng) for _ in range(100)) // 100

    def rare_per_s(self, size: int) -> float:
        """Give a rate below which messages of a sender are so far apart that it makes them no quicker or slower."""
        return min(_RARE_PER_S, SECOND / (_RARE_WAYS * max(1, self.one_way_ns(size))))

    def network(self, size: int) -> NetworkOptions:
        """Give the network of a group of this size: the whole, or its first members."""
        matrix = None
        if self.matrix_ms is not None:
            matrix = [list(row[:size]) for row in self.matrix_ms[:size]]
        elif self.tree is not None and size == len(self.tree) <= self.size_max:
            nodes = range(size)
            matrix = [[_tree_latency_ms(self.tree.distance(a, b), self.payload) for b in nodes] for a in nodes]
        return NetworkOptions(latency=self.latency, matrix=matrix, loss=self.loss)

    @property
    def alike(self) -> float:
        """The share by which estimates differ by chance."""
        return _ALIKE if self.host == HostTimes() else _ALIKE_MEASURED

    @property
    def window(self) -> int:
        """Own messages that may be unstable at once, in a first try: as many as live, if the buffer allows them."""
        usual = GroupOptions().window
        return max(1, min(usual, self.buffer // self.members)) if self.buffer else usual

    @property
    def window_max(self) -> int:
        """Own messages that may be unstable at once at most."""
        return self.window if self.buffer else _WIDEST

    def window_for(self, stable_ms: float) -> int:
        """Give a window for the wanted rate: twice what is sent while a message becomes stable, if that may be."""
        needed = 2 * self.rate_per_s * stable_ms / 1000
        return min(1 << max(4, math.ceil(math.log2(max(needed, 1)))), self.window_max)


class Candidate(msgspec.Struct, frozen=True):
    """A composition that might do."""

    ordering: str
    stability: str | None  # None: the ordering brings its own
    options: dict[str, Any] = {}

    @property
    def name(self) -> str:
        """What it is called in tables."""
        return self.ordering if self.stability is None else f"{self.ordering} + {self.stability}"

    @property
    def settings(self) -> str:
        """Its options in short."""
        shown = []
        for key, value in self.options.items():
            if key in ("parents", "coordinator", "interval_ns_max"):
                continue
            text = f"{value / MILLISECOND:g}ms" if key.endswith("_ns") else str(value).lower()
            shown.append(f"{key.removesuffix('_ns')}={text}")
        return " ".join(shown)


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """What a candidate would do."""

    candidate: Candidate
    stable_ms: float  # median time until `await receipt.stable()` returns: all have it, and the sender delivered it
    deliver_ms: float | None  # median time from sending to delivery at another; None: the model has no deliveries
    kb_per_s: float  # that leave each member, data and control, once for each receiver
    datagrams_per_s: float  # packets that a member sends, once for each receiver, and receives
    held: float  # the most messages that a member keeps
    keeps_up: bool  # the wanted rate is reached
    window: int  # with so many own messages that may be unstable at once
    basis: str  # what was simulated, and what was not
    objection: str | None = None  # why it will not do

    @property
    def acceptable(self) -> bool:
        """Whether it will do."""
        return self.objection is None


class Advice(msgspec.Struct, frozen=True):
    """The answer: all that will do, best first, and what will not."""

    question: Question
    ranked: list[Estimate]
    rejected: list[Estimate]
    refused: list[tuple[str, str]]  # candidates that could not be tried, and why

    @property
    def best(self) -> Estimate:
        """What to use."""
        return self.ranked[0]

    def best_of_each(self) -> list[Estimate]:
        """Give every protocol once, with its best settings: those that will do, then the others."""
        others = sorted(self.rejected, key=lambda one: _merit(self.question, one))
        first: dict[str, Estimate] = {}
        for one in [*self.ranked, *others]:
            first.setdefault(one.candidate.name, one)
        return list(first.values())

    def why(self) -> str:
        """Say in a sentence why it is the best."""
        best, question = self.best, self.question
        alike = as_good(question, self.ranked)
        others, figure = f"of the {len(self.ranked)} that will do", GOALS[question.goal]
        if len(alike) == 1:
            sentence = f"it has the least {figure} ({amount(question.goal, best)}) {others}"
        else:
            sentence = (
                f"its {figure} ({amount(question.goal, best)}) is within {question.alike:.0%} of the least {others}, "
            )
            also = "is that of one other" if len(alike) == 2 else f"are those of {len(alike) - 1} others"
            sentence += f"as {also}, and of these it has the least {GOALS[_second(question)]}"
        names = {one.candidate.name for one in alike}
        following = next((one for one in self.ranked if one.candidate.name not in names), None)
        if following is not None:
            more = 100 * (_merit(question, following) / _merit(question, best) - 1)
            sentence += f"; {following.candidate.name} comes next, {more:.0f}% above it"
        if question.host.work_ns:
            percent = processor_percent(question, best)
            sentence += (
                f"; at {question.host.work_ns / 1000:.3g} us a datagram on this machine, {percent:.2g}% of a processor"
            )
        if self.rejected:
            sentence += f"; {len(self.rejected)} more were tried and miss a limit"
        return sentence

    def window(self) -> int:
        """Give a window that does not hold the wanted rate up: the one that was tried, if it is a wide one."""
        best, question = self.best, self.question
        return best.window if best.window > question.window else question.window_for(best.stable_ms)


def amount(goal: Goal, one: Estimate) -> str:
    """Say what an estimate says about a goal, with its unit."""
    value = _figure(goal, one)
    if goal == "bytes":
        return f"{value:.4g} kB/s from each member"
    return f"{value:.4g} datagrams/s at each member" if goal == "cpu" else f"a median of {value:.4g} ms"


def processor_percent(question: Question, one: Estimate) -> float:
    """Say how much of a processor a member takes where a datagram takes as long as was measured."""
    return one.datagrams_per_s * question.host.work_ns * 100 / SECOND


Tell = Callable[[int, int], None]


def advise(question: Question, tell: Tell | None = None) -> Advice:
    """Try the candidates and rank them."""
    question.check()
    refused: list[tuple[str, str]] = []
    estimates: list[Estimate] = []
    usual = GroupOptions().stability
    everything = [_with_interval(question, one, question.intervals_ms[0]) for one in protocols(question)]
    first = [one for one in everything if one.stability in (None, usual)]
    planned = len(first) + _ORDERINGS_BEST * (len(STABILITIES) - 1) + _BEST * (len(question.intervals_ms) + 1)

    def try_all(candidates: Iterable[Candidate]) -> None:
        for candidate in candidates:
            try:
                estimates.append(judge(question, estimate(question, candidate)))
            except UsageError as error:
                refused.append((candidate.name, str(error)))
            if tell is not None:
                tell(min(len(estimates) + len(refused), planned), planned)

    try_all(first)
    usually = [one for one in ranked(question, estimates) if one.candidate.stability is not None]
    enough = max(_ORDERINGS_BEST, len(as_good(question, usually)))
    best = [one.candidate.ordering for one in usually[:enough]]
    tried = best or [one.ordering for one in everything]  # where no default can be tried, another may be
    others = [one for one in everything if one not in first]
    try_all(one for one in others if one.ordering in tried)
    if not any(one.acceptable for one in estimates):
        try_all(one for one in others if one.ordering not in tried)
    if not estimates:
        raise UsageError(f"no candidate can be tried: {refused[0][0]}: {refused[0][1]}")
    variants = [list(_variants(question, one.candidate)) for one in ranked(question, estimates)]
    try_all(variant for several in variants[:_BEST] for variant in several)
    if not any(one.acceptable for one in estimates):  # before giving up: all of all
        try_all(variant for several in variants[_BEST:] for variant in several)
    acceptable = ranked(question, [one for one in estimates if one.acceptable])
    if not acceptable:
        nearest = min(estimates, key=lambda one: _merit(question, one))
        raise UsageError(
            f"no candidate meets the limits; the nearest, {nearest.candidate.name} {nearest.candidate.settings}, "
            f"fails: {nearest.objection}"
        )
    return Advice(question, acceptable, [one for one in estimates if not one.acceptable], refused)


def protocols(question: Question) -> list[Candidate]:
    """List the compositions that give the needed order: a stronger one may be the cheaper."""
    found = []
    for ordering, part in ORDERINGS.items():
        if question.need in part.PROMISES:
            if part.NEEDS_RECOVERY:
                found += [Candidate(ordering, stability, _shape(question, stability)) for stability in STABILITIES]
            else:
                found.append(Candidate(ordering, None))
    return found


def _fields(stability: str) -> set[str]:
    return {field.name for field in msgspec.structs.fields(stability_type(stability).Options)}


def _shape(question: Question, stability: str) -> dict[str, Any]:
    """Give a stability protocol the user's tree, or its degree."""
    fields, tree = _fields(stability), question.tree
    if "parents" in fields and tree is not None and len(tree) <= question.size_max:
        return {"parents": list(tree.parents)}
    if "degree" in fields and question.degree is not None:
        return {"degree": question.degree}
    if "coordinator" in fields and tree is not None and len(tree) <= question.size_max:
        return {"coordinator": tree.root}
    return {}


def _with_interval(question: Question, candidate: Candidate, interval_ms: float) -> Candidate:
    if candidate.stability is None:
        return candidate
    keys = {"interval_ns", "t_send_ns", "t_ack_ns"} & _fields(candidate.stability)
    periods = {key: round(interval_ms * MILLISECOND) for key in sorted(keys)}
    if "interval_ns_max" in _fields(candidate.stability):
        periods["interval_ns_max"] = max(SECOND, *periods.values())
    return msgspec.structs.replace(candidate, options={**candidate.options, **periods})


def _variants(question: Question, candidate: Candidate) -> Iterable[Candidate]:
    """Give the other intervals of a protocol, and its options that save bytes or time."""
    if candidate.stability is None:
        return
    for interval_ms in question.intervals_ms[1:]:
        yield _with_interval(question, candidate, interval_ms)
    fields = _fields(candidate.stability)
    if "piggyback" in fields:
        usual = GroupOptions().part_defaults["piggyback"]
        yield msgspec.structs.replace(candidate, options={**candidate.options, "piggyback": not usual})
    if "clock" in fields and duration(question.skew, "skew"):
        yield msgspec.structs.replace(candidate, options={**candidate.options, "clock": "hybrid"})


def _merit(question: Question, one: Estimate) -> float:
    return _figure(question.goal, one)


def as_good(question: Question, estimates: Sequence[Estimate]) -> list[Estimate]:
    """Return those that chance alone may set apart from the best."""
    least = min((_merit(question, one) for one in estimates), default=0.0)
    return [one for one in estimates if _merit(question, one) <= (1 + question.alike) * least]


def ranked(question: Question, estimates: Iterable[Estimate]) -> list[Estimate]:
    """Put estimates in order: what keeps the limits first; what is as good as the best, by another goal and bytes."""
    several = list(estimates)
    least = min((_merit(question, one) for one in several if one.acceptable), default=0.0)

    def key(one: Estimate) -> tuple[bool, float, float, float]:
        merit = max(_merit(question, one), (1 + question.alike) * least)
        return not one.acceptable, merit, _figure(_second(question), one), one.kb_per_s

    return sorted(several, key=key)


def _second(question: Question) -> Goal:
    """Return the goal that decides between what is as good for the first one."""
    return "deliver" if question.goal == "stable" else "stable"


def _figure(goal: Goal, one: Estimate) -> float:
    if goal == "deliver" and one.deliver_ms is not None:
        return one.deliver_ms
    return {"bytes": one.kb_per_s, "cpu": one.datagrams_per_s}.get(goal, one.stable_ms)


def judge(question: Question, one: Estimate) -> Estimate:
    """Say whether an estimate keeps the limits."""
    objection = None
    if not one.keeps_up:
        objection = f"it does not sustain {question.rate_per_s:g} messages a second with a window of {one.window}"
    elif question.latency_max_ms is not None and one.stable_ms > question.latency_max_ms:
        objection = f"{one.stable_ms:.4g} ms to stable, above {question.latency_max_ms:g} ms"
    elif question.bandwidth_max_kb_per_s is not None and one.kb_per_s > question.bandwidth_max_kb_per_s:
        objection = f"{one.kb_per_s:.4g} kB/s of each member, above {question.bandwidth_max_kb_per_s:g}"
    elif question.buffer and one.held > question.buffer:
        objection = f"{one.held:.0f} messages to keep, above {question.buffer}"
    return msgspec.structs.replace(one, objection=objection)


def estimate(question: Question, candidate: Candidate) -> Estimate:
    """Find out what a candidate would do, in the way that its size allows."""
    n = question.members
    if candidate.stability not in (None, "timestamp-ack") and message_bytes(n) > DATAGRAM_BYTES_MAX:
        raise UsageError(f"its vectors of {4 * n} bytes do not fit into a datagram of {DATAGRAM_BYTES_MAX}")
    if n <= question.size_max:
        return measure(question, candidate, n)
    if question.tree is not None:
        return _on_lan(question, candidate, question.tree)
    sizes = sorted({max(2, question.size_max // 4), max(3, question.size_max // 2), question.size_max})
    return extended(question, [measure(question, candidate, size) for size in sizes], sizes)


def extended(question: Question, measured: Sequence[Estimate], sizes: Sequence[int]) -> Estimate:
    """Extend what was measured at some sizes to the size asked for, by a power of n."""
    n = question.members

    def power(values: Sequence[float]) -> float:
        slope = float(np.polyfit(np.log(sizes), np.log(values), 1)[0])
        return values[-1] * float((n / sizes[-1]) ** max(0.0, slope))  # more members make nothing faster or cheaper

    stable_ms = power([one.stable_ms for one in measured])
    delivered = [one.deliver_ms for one in measured if one.deliver_ms]
    senders = len(question.senders) if question.senders is not None else n
    return Estimate(
        candidate=measured[-1].candidate,
        stable_ms=stable_ms,
        deliver_ms=power(delivered) if len(delivered) == len(sizes) else None,
        kb_per_s=power([one.kb_per_s for one in measured]),
        datagrams_per_s=power([one.datagrams_per_s for one in measured]),
        held=max(measured[-1].held, 2 * senders * question.rate_per_s * stable_ms / 1000),
        keeps_up=all(one.keeps_up for one in measured) and question.rate_per_s * stable_ms / 1000 < question.window_max,
        window=question.window_for(stable_ms),
        basis=f"members simulated at n = {', '.join(map(str, sizes))}; extended by a power of n",
    )


def measure(question: Question, candidate: Candidate, size: int) -> Estimate:
    """Run whole members of one composition and measure them, or extend what they do with more messages to rare ones.

    A group of rare messages mostly idles, so it would take long to simulate. Each message goes the same way alone, so
    what it costs is what a little more traffic costs more.
    """
    rare_per_s = question.rare_per_s(size)
    if question.rate_per_s >= rare_per_s:
        return _at_its_rate(question, candidate, size)
    rates = (rare_per_s, 2 * rare_per_s)
    one, two = (_at_its_rate(msgspec.structs.replace(question, rate_per_s=rate), candidate, size) for rate in rates)
    share = question.rate_per_s / rare_per_s

    def line(at_one: float, at_two: float) -> float:
        return max(at_one - (1 - share) * (at_two - at_one), share * at_one)

    return msgspec.structs.replace(
        one,
        kb_per_s=line(one.kb_per_s, two.kb_per_s),
        datagrams_per_s=line(one.datagrams_per_s, two.datagrams_per_s),
        basis=f"{one.basis} with {rates[0]:.3g} and {rates[1]:.3g} messages a second, extended to rarer ones by a line",
    )


def _at_its_rate(question: Question, candidate: Candidate, size: int) -> Estimate:
    """Run whole members at the wanted rate, with a wider window if that needs it."""
    usual = _measured(question, candidate, size, question.window)
    if usual.keeps_up or usual.stable_ms == math.inf or question.window_for(usual.stable_ms) <= question.window:
        return usual
    try:
        return _measured(question, candidate, size, question.window_for(usual.stable_ms))
    except UsageError:  # other options of the ordering bound its window
        return usual


def _measured(question: Question, candidate: Candidate, size: int, window: int) -> Estimate:
    senders = [one for one in question.senders or range(size) if one < size] or [0]
    period_s = 1 / question.rate_per_s
    wanted = max(8, math.ceil(_SPAN_S * question.rate_per_s))
    messages = max(8, min(wanted, _DELIVERIES_MAX // (size * len(senders))))
    planned_s = messages * period_s
    begins = _FORMING_NS + _FORMING_WAYS * question.one_way_ns(size)
    scenario = Scenario(
        members=size,
        messages=messages,
        ordering=candidate.ordering,
        stability=candidate.stability or GroupOptions().stability,
        stability_options=candidate.options,
        window=window,
        network=question.network(size),
        workload=Workload(
            interval=f"uniform {round(0.5 * period_s * SECOND)}ns {round(1.5 * period_s * SECOND)}ns",
            payload=question.payload + question.framing.message,
            senders=senders,
        ),
        clocks=Clocks(skew=question.skew),
        limit=f"{begins + round(1.5 * planned_s * SECOND) + _SETTLING_NS}ns",
        views=True,
    )
    packets = Packets(question.framing, begins, until=begins + round(planned_s * SECOND))
    cluster = StandingGroup(scenario, question.seed, question.host, begins, packets)
    run = cluster.run()
    sent_at, stable, delivered, last_sent = _times(cluster)
    held = max(_held_most(log.events, log.senders, log.seqs) for log in run.logs)
    per_second = 1 / size / planned_s
    stable_ms = float(np.median(stable)) / MILLISECOND if stable else math.inf
    in_time = (last_sent - begins) / SECOND <= 1.1 * planned_s + 2 * period_s
    return Estimate(
        candidate=candidate,
        stable_ms=stable_ms,
        deliver_ms=float(np.median(delivered)) / MILLISECOND if delivered else None,
        kb_per_s=packets.bytes / 1000 * per_second,
        datagrams_per_s=2 * packets.number * per_second,
        held=held,
        keeps_up=run.finished
        and len(sent_at) == run.sent
        and in_time
        and question.rate_per_s * stable_ms / 1000 <= window,  # a short run may end before the window is full
        window=window,
        basis=f"members simulated at n = {size}",
    )


def _times(cluster: Cluster) -> tuple[dict[tuple[int, int], Instant], list[Instant], list[Instant], Instant]:
    """Give when messages were sent, how long until their receipts are stable, until delivered at others, and the last.

    All in true time, whatever the members' clocks show.
    """
    sent: dict[tuple[int, int], Instant] = {}
    for node in cluster.nodes:
        log = node.log
        for time_ns, event, seq in zip(log.times, log.events, log.seqs, strict=True):
            if event == "send" and seq is not None:
                sent[log.member, seq] = node.clock.true(time_ns)
    stable: list[Instant] = []
    delivered: list[Instant] = []
    for node in cluster.nodes:
        log, done = node.log, 0
        delivered_here: dict[int, Instant] = {}  # own messages
        held_by_all: dict[int, Instant] = {}
        for time_ns, event, sender, seq in zip(log.times, log.events, log.senders, log.seqs, strict=True):
            if sender is None or seq is None:
                continue
            now = node.clock.true(time_ns)
            if event == "deliver" and sender == log.member:
                delivered_here[seq] = now
            elif event == "deliver" and (sender, seq) in sent:
                delivered.append(now - sent[sender, seq])
            elif event == "stable" and sender == log.member:
                held_by_all |= dict.fromkeys(range(done + 1, seq + 1), now)
                done = max(done, seq)
        for seq, at in delivered_here.items():
            if seq in held_by_all:
                stable.append(max(at, held_by_all[seq]) - sent[log.member, seq])
    return sent, stable, delivered, max(sent.values(), default=0)


class StandingGroup(HostedCluster):
    """Members whose application begins when the group stands, since until then nothing is sent."""

    def __init__(self, scenario: Scenario, seed: int, host: HostTimes, begins: Instant, packets: Packets) -> None:
        self._begins = begins
        super().__init__(scenario, seed, host, drop=packets.weigh)

    def next_interval(self) -> Duration:
        """Draw the time until a sender's next message, or until its first."""
        return super().next_interval() + (0 if self.kernel.now else self._begins)


class Packets:
    """Counts what leaves the members as packets: what a member sends to another at one instant goes in one."""

    def __init__(self, framing: Framing, since: Instant, until: Instant) -> None:
        self._framing, self._since, self._until = framing, since, until
        self._together: dict[tuple[int, int], tuple[Instant, int]] = {}  # by link: when, and how many datagrams so far
        self.bytes = self.number = 0

    def weigh(self, source: int, target: int, datagram: bytes, now: Instant) -> bool:
        """Count a datagram; it is not lost by that."""
        if self._since <= now <= self._until:
            framing, link = self._framing, (source, target)
            at, before = self._together.get(link, (-1, 0))
            before = before if at == now else 0
            self._together[link] = now, before + 1
            self.bytes += len(datagram)
            if before == 0:
                self.bytes += framing.packet
                self.number += 1
            else:
                self.bytes += framing.each + (framing.several + framing.each if before == 1 else 0)
        return False


def _held_most(events: Sequence[str], senders: Sequence[int | None], seqs: Sequence[int | None]) -> int:
    """Count the most messages that were received and not yet known to be stable."""
    held = most = 0
    stable: dict[int | None, int] = {}
    for event, sender, seq in zip(events, senders, seqs, strict=True):
        if event == "receive":
            held += 1
            most = max(most, held)
        elif event == "stable" and seq is not None:
            held -= seq - stable.get(sender, 0)
            stable[sender] = seq
    return most


# --- Trees that are too large for members. ---


def _tree_latency_ms(hops: int, payload: int) -> float:
    """Give the LAN model's time for one datagram over some hops, without queues."""
    size = HEADER_BYTES + FRAME_OVERHEAD_BYTES + payload
    if hops == 0:
        return 0.0
    travel = hops * lan_wire_ns(size) + (hops - 1) * ROUTER_NS
    return (send_ns(size) + travel + receive_ns(size)) / MILLISECOND


@lru_cache(maxsize=16)
def _one_round(tree: Tree, stability: str) -> LanRound:
    """Run a round; it does not depend on the pauses between rounds, with which a protocol is tried several times."""
    return run_round(tree, stability)


def _on_lan(question: Question, candidate: Candidate, tree: Tree) -> Estimate:
    """Estimate a protocol from one exchange of the whole group on the LAN model, and the pauses between exchanges."""
    n, stability = len(tree), candidate.stability
    if stability is None:
        raise UsageError(f"{n} members are too many to simulate, and the LAN model has no rounds for it")
    options = candidate.options
    interval_ns = options.get("interval_ns", options.get("t_ack_ns", 0))
    if stability in ROUND_PROTOCOLS:
        one = _one_round(tree, stability)
        busy_ns, hops, size = one.rtt_ns, one.traffic.hops, message_bytes(n)
        period_ns = interval_ns + busy_ns
        stable_ns = period_ns / 2 + busy_ns
        basis = f"LAN model, one round at n = {n}; the wait for it computed"
    else:
        # Everyone tells everyone: the processors, which take in n - 1 messages each, are what it takes longest at.
        size = message_bytes(n) if stability == "vector-ack" else _TIMESTAMP_LAN_BYTES
        told = 1 if stability == "vector-ack" else 2  # a stamp, then an acknowledgment
        travel = tree.height * lan_wire_ns(size) + (tree.height - 1) * ROUTER_NS
        busy_ns = send_ns(size) + (n - 1) * receive_ns(size) + travel
        period_ns = max(interval_ns, busy_ns)
        hops = told * n * (n - 1)
        stable_ns = told * (period_ns / 2 + busy_ns)
        basis = f"LAN model, closed form for n = {n}: every processor takes in {n - 1} messages"
    data_bytes = question.rate_per_s * (question.payload + HEADER_BYTES) * (n - 1)
    data_bytes *= len(question.senders or range(n)) / n
    stable_ms = stable_ns / MILLISECOND
    datagrams = 2 * (hops / n / (period_ns / SECOND) + data_bytes / (question.payload + HEADER_BYTES))
    senders = len(question.senders) if question.senders is not None else n
    return Estimate(
        candidate=candidate,
        stable_ms=stable_ms,
        deliver_ms=None,
        kb_per_s=(hops * size / n / (period_ns / SECOND) + data_bytes) / 1000,
        datagrams_per_s=datagrams,
        held=2 * senders * question.rate_per_s * stable_ms / 1000,
        keeps_up=question.rate_per_s * stable_ms / 1000 < question.window_max,
        window=question.window_for(stable_ms),
        basis=basis,
    )
