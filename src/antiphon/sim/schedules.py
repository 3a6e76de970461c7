"""Random scenarios for every ordering with fixed membership: what torture puts a protocol through. A seed decides all.

`small` schedules are quick and nasty: few members, tiny messages. `wide` ones cover all that can be asked of a group:
one to forty members, messages of 0 to 60,000 bytes, links of 50 kbit/s to 100 Mbit/s, receivers that overrun, every
option of every part. Sizes, counts and lengths have heavy tails: most schedules are small and take milliseconds, so
that thousands run in a minute; every kind of fault and option is drawn as often among the small as among the large.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from antiphon.errors import UsageError
from antiphon.protocol.options import PROFILES, ordering_type, stability_type
from antiphon.protocol.recovery import RecoveryOptions
from antiphon.protocol.stability import STABILITIES
from antiphon.sim.network import NetworkOptions
from antiphon.sim.option_space import draw, shapes
from antiphon.sim.scenario import Clocks, Fault, Scenario, Workload

_SKEWS = ("0", "0", "0", "3ms", "50ms")
_LATENCIES = ("fixed 2ms", "uniform 1ms 5ms", "uniform 0 20ms", "exponential 4ms", "pareto 1ms 1.5")
_INTERVALS = ("0", "fixed 1ms", "exponential 3ms", "exponential 30ms", "uniform 0 100ms")

# --- Small schedules. ---


def small(seed: int, ordering: str, stability: str | None = None) -> Scenario:
    """Draw the scenario of a seed: small, and as nasty as the protocol's channel allows."""
    rng = random.Random(f"{seed}/{ordering}/torture")
    members = rng.choice((2, 2, 3, 3, 4, 5))
    overrun = rng.random() < 0.2
    window = rng.choice((1, 2, 4, 16))
    stability = stability or rng.choice(sorted(STABILITIES))
    on_recovery = ordering_type(ordering).NEEDS_RECOVERY
    more = random.Random(f"{seed}/{ordering}/options")
    return Scenario.of(
        "paper",
        name=f"torture-{ordering}",
        members=members,
        messages=rng.choice((1, 2, 3, 5, 8)),
        ordering=ordering,
        stability=stability,
        stability_options=_stability_options(more, ordering, stability) if on_recovery else {},
        safe=on_recovery and more.random() < 0.25,
        window=window,
        buffer=rng.choice((0, 0, members * window)) if on_recovery else 0,
        network=NetworkOptions(
            latency=rng.choice(_LATENCIES),
            loss=rng.choice((0.0, 0.05, 0.1, 0.2, 0.4)),
            duplicate=rng.choice((0.0, 0.0, 0.1, 0.3)),
            reorder=rng.choice((0.0, 0.0, 0.2)),
            receive_buffer=rng.choice((2, 4, 8)) if overrun else 0,
            service="500us" if overrun else "0",
        ),
        workload=Workload(
            interval=rng.choice(_INTERVALS),
            payload=8,
            senders=None if rng.random() < 0.6 else sorted(rng.sample(range(members), rng.randint(1, members))),
        ),
        clocks=Clocks(skew=rng.choice(_SKEWS), drift_ppm=rng.choice((0, 0, 200))),
        faults=list(_faults(rng, members, (5, 400))),
    )


def _stability_options(rng: random.Random, ordering: str, stability: str) -> dict[str, bool]:
    """Turn on some of what the stability protocol offers to save bytes and datagrams."""
    offered = stability_type(stability).Options.__struct_fields__
    positions = "total" in ordering_type(ordering).PROMISES
    flags = [
        flag for flag in ("delta", "piggyback", "positions") if flag in offered and (flag != "positions" or positions)
    ]
    return {flag: True for flag in flags if rng.random() < 0.5}


def _faults(rng: random.Random, members: int, lasting_ms: tuple[int, int]) -> Iterator[Fault]:
    for _ in range(rng.choice((0, 0, 1, 2))):
        at = rng.randrange(0, 100)
        until = at + rng.randrange(*lasting_ms)
        one, *rest = rng.sample(range(members), members)
        match rng.choice(("partition", "cut", "pause")):
            case "partition":
                group = [one, *(member for member in rest[1:] if rng.random() < 0.5)]
                yield Fault(kind="partition", at=f"{at}ms", until=f"{until}ms", groups=[group])
            case "cut":
                yield Fault(kind="cut", at=f"{at}ms", until=f"{until}ms", source=[one], target=rest[:1])
            case _:
                yield Fault(kind="pause", at=f"{at}ms", until=f"{until}ms", member=one)


# --- Wide schedules. ---

_SIZES: Final = ((1, 1), (2, 2), (3, 3), (4, 5), (6, 9), (10, 16), (17, 40))  # ranges of n ...
_SIZE_WEIGHTS: Final = (30, 580, 260, 90, 27, 10, 3)  # ... and how often each is drawn
_MESSAGES: Final = (1, 2, 3, 5, 8)  # of each sender ...
_MESSAGE_WEIGHTS: Final = (10, 5, 2, 1, 1)
_LASTING_MS: Final = ((5, 100), (100, 400), (400, 4000))  # faults ...
_LASTING_WEIGHTS: Final = (5, 3, 1)
_PAYLOADS: Final = (0, 1, 8, 8, 64, 64, 500, 1_400, 9_000, 40_000, 60_000)
_BANDWIDTHS: Final = (50_000, 100_000_000)  # bits a second
_DELIVERIES_MAX: Final = 200  # of a schedule: keeps each at a few hundredths of a CPU-second
_SENDING_S_MAX: Final = 10.0  # how long the slowest link may take for the messages alone, in groups ...
_SENDING_MEMBERS: Final = 8  # ... of so many; the more there are, the more is said meanwhile


def wide(seed: int, ordering: str, *, large: bool = False) -> Scenario:
    """Draw the scenario of a seed from all that can be asked of a group with fixed membership.

    Most have two or three members; with `large` every range of sizes is drawn as often as the others.
    """
    rng = random.Random(f"{seed}/wide")  # the same for every ordering
    low, high = rng.choices(_SIZES, None if large else _SIZE_WEIGHTS)[0]
    members = rng.randint(low, high)
    senders = None if rng.random() < 0.6 else sorted(rng.sample(range(members), rng.randint(1, members)))
    sending = members if senders is None else len(senders)
    messages = min(rng.choices(_MESSAGES, _MESSAGE_WEIGHTS)[0], max(1, _DELIVERIES_MAX // (members * sending)))
    bandwidth = 0 if rng.random() < 0.6 else round(math.exp(rng.uniform(*map(math.log, _BANDWIDTHS))))
    payload = rng.choice(_PAYLOADS)
    if bandwidth:
        sending_s = min(_SENDING_S_MAX, _SENDING_S_MAX * (_SENDING_MEMBERS / members) ** 2)
        payload = min(payload, int(sending_s * bandwidth / 8 / messages))
    profile = rng.choice(("lan", "lan", "lan", "lan", "wan", "lan" if bandwidth else "paper"))  # paper: no slow links
    scenario = Scenario.of(
        profile,
        name=f"torture-{ordering}",
        members=members,
        messages=messages,
        ordering=ordering,
        window=rng.choice((1, 2, 4, 16, PROFILES[profile].window)),
        network=_network(rng, members, bandwidth),
        workload=Workload(
            interval=rng.choice(_INTERVALS),
            payload=payload,
            senders=senders,
            lifetime=rng.choice((None, None, None, "40ms", "400ms")),
            priorities=rng.choice((1, 1, 1, 3)),
        ),
        clocks=Clocks(skew=rng.choice(_SKEWS), drift_ppm=rng.choice((0, 0, 200))),
        faults=list(_faults(rng, members, rng.choices(_LASTING_MS, _LASTING_WEIGHTS)[0])) if members > 1 else [],
        limit="600min",  # a train around 9 members that lose 40% takes a minute a message, and that is no fault
    )
    scenario = _with_options(random.Random(f"{seed}/{ordering}/wide options"), scenario)
    if ordering_type(ordering).NEEDS_RECOVERY:
        offered = stability_type(scenario.stability).Options
        for shape in shapes(random.Random(f"{seed}/{ordering}/wide shape"), offered, members):
            scenario = _if_allowed(scenario, stability_options=_with(scenario.stability_options, shape))
    return scenario


def _network(rng: random.Random, members: int, bandwidth: int) -> NetworkOptions:
    overrun = rng.random() < 0.2
    return NetworkOptions(
        latency=rng.choice((*_LATENCIES, "fixed 60ms", "uniform 20ms 80ms")),
        loss=rng.choice((0.0, 0.0, 0.02, 0.05, 0.1, 0.2, 0.4)),
        duplicate=rng.choice((0.0, 0.0, 0.0, 0.1, 0.3)),
        reorder=rng.choice((0.0, 0.0, 0.2)),
        bandwidth=bandwidth,
        receive_buffer=rng.choice((2, 4, members, 2 * members)) if overrun else 0,
        service=rng.choice(("200us", "500us", "2ms")) if overrun else "0",
    )


def _with_options(rng: random.Random, scenario: Scenario) -> Scenario:
    """Draw options of the parts, and leave out what is refused."""
    ordering = ordering_type(scenario.ordering)
    wanted: list[tuple[str, dict[str, Any]]] = [("ordering_options", draw(rng, ordering.Options))]
    if ordering.NEEDS_RECOVERY:
        stability = rng.choice(sorted(STABILITIES))
        scenario = msgspec.structs.replace(scenario, stability=stability, safe=rng.random() < 0.25)
        wanted += [("stability_options", draw(rng, stability_type(stability).Options))]
        recovery = {key: value for key, value in draw(rng, RecoveryOptions).items() if key != "adaptive"}
        wanted += [("recovery", recovery)] if rng.random() < 0.3 else []
        buffer = rng.choice((0, 0, scenario.members * scenario.window))
        scenario = msgspec.structs.replace(scenario, buffer=buffer)
    else:
        scenario = _if_allowed(scenario, safe=rng.random() < 0.25)
    for table, options in wanted:
        together = _if_allowed(scenario, **{table: _with(getattr(scenario, table), options)}) if options else scenario
        if together is not scenario:
            scenario = together
            continue
        for key, value in options.items():
            scenario = _if_allowed(scenario, **{table: _with(getattr(scenario, table), {key: value})})
    return scenario


def _with(table: Any, options: dict[str, Any]) -> Any:
    return {**table, **options} if isinstance(table, dict) else msgspec.structs.replace(table, **options)


def _if_allowed(scenario: Scenario, **changes: Any) -> Scenario:
    """Return the scenario with these changes, or as it is if they are refused."""
    changed = msgspec.structs.replace(scenario, **changes)
    try:
        changed.check()
    except UsageError:
        return scenario
    return changed
