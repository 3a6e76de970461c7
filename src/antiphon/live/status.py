"""What a machine's state means to the application: how the group stands, and who holds it back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec.structs import replace

from antiphon.live.driver import Driver
from antiphon.live.events import Status
from antiphon.protocol.machine import Instant
from antiphon.protocol.membership.process import Process
from antiphon.protocol.membership.slow_receiver import waited_for
from antiphon.protocol.membership.views import name_of
from antiphon.protocol.view.member import Member


def as_driven(status: Status, driver: Driver, names: Mapping[int, str]) -> Status:
    """Add to a status what the machine and its transport say."""
    lag, slowest = lags_of(driver.machine, driver.member, names)
    return replace(
        status,
        lag=lag,
        slowest=slowest,
        held=driver.machine.held,
        wire=0 if driver.member is None else driver.member.view.codec.version,
        counts={
            **driver.machine.counts,
            **(driver.machine.lifecycle.own.in_views if isinstance(driver.machine, Process) else {}),
            **driver.transport.counts,
            **dict.fromkeys(("broken-bursts", "set-aside"), 0),
            **status.counts,
        },
        links=links_of(driver.machine, names, driver.clock()),
    )


def standing_of(machine: Member | Process) -> Literal["joining", "active", "changing", "stalled", "left"]:
    """Say how a machine stands in its group."""
    if machine.left:
        return "left"
    if isinstance(machine, Process) and not machine.active:
        if machine.stalled:
            return "stalled"
        return "joining" if machine.member is None else "changing"
    if isinstance(machine, Process) and machine.lifecycle.standing == "awaiting":
        return "joining"
    return "active"


def links_of(machine: Member | Process, names: Mapping[int, str], now: Instant) -> tuple[tuple[str, str], ...]:
    """Return the links over which nothing is heard, as far as a machine knows, by address: (from, to)."""
    return shown_links(machine.broken_links(now), names) if isinstance(machine, Process) else ()


def shown_links(links: Iterable[tuple[int, int]], names: Mapping[int, str]) -> tuple[tuple[str, str], ...]:
    """Return links by their ends' addresses."""
    return tuple((names.get(source, str(source)), names.get(target, str(target))) for source, target in links)


def lags_of(
    machine: Member | Process, member: Member | None, names: Mapping[int, str]
) -> tuple[dict[str, int | None], str | None]:
    """Return how many bursts each member lacks, by address, and who holds the others back; None: not heard from."""
    if member is None:
        return {}, None
    full = machine.lifecycle.roster.full(machine.lifecycle.view) if isinstance(machine, Process) else ()
    known = member.lag()
    behind = {other: lacks for other, lacks in waited_for(member, known, full).items() if lacks > 0 or other in full}
    slowest = max(behind, key=behind.__getitem__, default=None)
    lag = {names[name_of(process)]: lacks for process, lacks in known.items()}
    return lag, None if slowest is None else names[name_of(slowest)]
