"""Scenarios: a small readable file, or flags, that says everything about a simulated run but its seed.

profile = "lan"                      # what a live group runs; or wan, or paper
members = 5
messages = 200                       # per member

[ordering]
name = "co"

[network]
latency = "uniform 1ms 10ms"
loss = 0.1

[[faults]]
kind = "partition"
at = "1s"
until = "3s"
groups = [[0, 1], [2, 3, 4]]
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, cast

import msgspec
import tomli_w

from antiphon.errors import UsageError, did_you_mean
from antiphon.protocol.options import PROFILES, GroupOptions, part_name, profile_of
from antiphon.sim.distributions import duration, sampler
from antiphon.sim.network import NetworkOptions


class Workload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the application does: every sender submits a message, waits an interval, and so on."""

    interval: str = "exponential 10ms"
    payload: int = 64  # bytes
    senders: list[int] | None = None  # None: everyone
    lifetime: str | None = None  # of every message, where the ordering offers lifetimes
    priorities: int = 1  # priorities 0 .. priorities-1, drawn at random


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"source": "from", "target": "to"}):
    """Something that goes wrong at an instant, and perhaps mends at another."""

    kind: Literal["crash", "partition", "cut", "pause", "join", "leave"]
    at: str
    until: str | None = None  # with views, a member that crashed starts again then
    forgets: bool = False  # crash: what was persisted is lost as well
    member: int | None = None  # crash, pause; with views: join (it starts only then), leave
    groups: list[list[int]] | None = None  # partition; who is in no group forms one more
    source: list[int] | None = None  # cut: one direction only
    target: list[int] | None = None


class Clocks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far the members' clocks are off: each is drawn evenly from -max to +max."""

    skew: str = "0"
    drift_ppm: int = 0


class Scenario(GroupOptions, frozen=True, kw_only=True):
    """A simulated run, but for its seed: a group, and what it is put through.

    The group is described as everywhere (`GroupOptions`), with the same defaults. One thing is chosen otherwise:
    members come and go only where the scenario says so.
    """

    views: bool = False
    name: str = ""
    members: int = 5
    messages: int = 100  # per sender
    founders: int = 0  # with views: how many of the members, the first ones, form the first view; 0: all
    network: NetworkOptions = NetworkOptions()
    workload: Workload = Workload()
    clocks: Clocks = Clocks()
    faults: list[Fault] = []  # noqa: RUF012  # msgspec copies it
    limit: str = "10min"  # simulated time after which the run is given up as unfinished

    @classmethod
    def of(cls, profile: str, **fields: Any) -> Self:
        """Return a scenario whose group has the options of a profile, but for what is given."""
        options = msgspec.structs.asdict(profile_of(profile))
        return cls(**{**options, "views": False, **fields})

    def options(self) -> GroupOptions:
        """Return the group's options alone; it is called like the run, if that has a name."""
        options = {key: getattr(self, key) for key in GroupOptions.__struct_fields__}
        return GroupOptions(**{**options, "group": self.name or self.group})

    @property
    def senders(self) -> Sequence[int]:
        """Who sends."""
        return range(self.members) if self.workload.senders is None else self.workload.senders

    def check(self) -> None:  # type: ignore[override]  # its size is known
        """Raise a `UsageError` that names the key and the remedy, unless this can be run."""
        if self.messages < 0:
            raise UsageError(f"messages: 0 or more per sender, not {self.messages}")
        self.options().check(self.members)
        self.network.check(self.members)
        sampler(self.workload.interval, "workload.interval")
        if not 0 <= self.workload.payload <= self.payload_bytes_max:
            raise UsageError(f"workload.payload: 0 to {self.payload_bytes_max} bytes, not {self.workload.payload}")
        if self.workload.priorities < 1:
            raise UsageError(f"workload.priorities: at least 1, not {self.workload.priorities}")
        if self.workload.lifetime is not None and duration(self.workload.lifetime, "workload.lifetime") <= 0:
            raise UsageError("workload.lifetime: must be above 0")
        duration(self.clocks.skew, "clocks.skew")
        if not 0 <= self.clocks.drift_ppm < 1_000_000:
            raise UsageError(f"clocks.drift_ppm: 0 to 999999, not {self.clocks.drift_ppm}")
        if duration(self.limit, "limit") <= 0:
            raise UsageError("limit: must be above 0")
        named = [("workload.senders", member) for member in self.workload.senders or []]
        if len(set(named)) < len(named):
            raise UsageError(f"workload.senders: {self.workload.senders} names a member twice")
        if not 0 <= self.founders <= self.members:
            raise UsageError(f"founders: 0 (all) to {self.members}, not {self.founders}")
        if 0 < self.founders < self.members and not self.views:
            raise UsageError("founders: members join later only with views; set views = true")
        for index, fault in enumerate(self.faults):
            named += self._check_fault(f"faults[{index}]", fault)
        for key, member in named:
            if not 0 <= member < self.members:
                raise UsageError(f"{key}: there is no member {member}; members are 0 to {self.members - 1}")

    def _check_fault(self, key: str, fault: Fault) -> list[tuple[str, int]]:
        at = duration(fault.at, f"{key}.at")
        if fault.until is not None and duration(fault.until, f"{key}.until") <= at:
            raise UsageError(f"{key}.until: {fault.until} does not come after {fault.at}")
        if not self.views and (fault.kind in ("join", "leave") or (fault.kind == "crash" and fault.until)):
            raise UsageError(f"{key}: members come back, join and leave only with views; set views = true")
        needed = {
            "crash": ("member",),
            "join": ("member",),
            "leave": ("member",),
            "pause": ("member", "until"),
            "partition": ("groups",),
            "cut": ("source", "target"),
        }
        for field in needed[fault.kind]:
            if getattr(fault, field) is None:
                written = {"source": "from", "target": "to"}.get(field, field)
                raise UsageError(f"{key}.{written}: a {fault.kind} needs it")
        members = [m for group in fault.groups or [] for m in group]
        if len(members) != len(set(members)):
            raise UsageError(f"{key}.groups: a member is in two groups")
        members += [*(fault.source or []), *(fault.target or [])]
        return [(key, member) for member in [*members, *([] if fault.member is None else [fault.member])]]


_TABLES = ("network", "workload", "clocks", "recovery", "membership")
_PARTS = ("ordering", "stability")
_PLAIN = tuple(
    field
    for field in Scenario.__struct_fields__
    if field not in (*_TABLES, *_PARTS, "ordering_options", "stability_options", "part_defaults", "faults")
)


def from_table(table: Mapping[str, Any]) -> Scenario:
    """Build a scenario from the tables of a file, or say which key is wrong."""
    profile = table.get("profile", "lan")
    if not isinstance(profile, str):
        raise UsageError(f"profile: a name, one of {', '.join(PROFILES)}; not {profile!r}")
    fields: dict[str, Any] = msgspec.to_builtins(Scenario.of(profile))
    for key, value in table.items():
        if key in _TABLES and isinstance(value, dict):
            fields[key] = {**fields[key], **value}
        elif key in _PLAIN or key in _TABLES or key in ("part_defaults", "faults"):
            fields[key] = value
        elif key in _PARTS:
            part = {"name": value} if isinstance(value, str) else dict(value) if isinstance(value, dict) else {}
            part.setdefault("name", fields[key])
            if not isinstance(part["name"], str) or not isinstance(value, str | dict):
                raise UsageError(f'{key}: write {key} = "NAME", or a table [{key}] with a name')
            fields[key] = part.pop("name")
            fields[f"{key}_options"] = part
        elif key != "profile":
            known = ("profile", *_PLAIN, *_PARTS, *_TABLES, "part_defaults", "faults")
            raise UsageError(f"{key}: unknown key{did_you_mean(key, known)}; a scenario knows {', '.join(known)}")
    try:
        scenario = msgspec.convert(fields, _Written)
    except msgspec.ValidationError as error:
        said, _, where = str(error).partition(" - at `$.")
        raise UsageError(f"{where.removesuffix('`') or 'scenario'}: {said[:1].lower()}{said[1:]}") from None
    return Scenario(**{key: getattr(scenario, key) for key in Scenario.__struct_fields__})


def load(path: Path) -> dict[str, Any]:
    """Read a scenario file into its tables."""
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise UsageError(f"{path}: no such scenario file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not a TOML file: {error}") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None


def to_toml(scenario: Scenario) -> str:
    """Write a scenario down so that `load` and `from_table` give it back, relative to the profile that is nearest."""
    written = [_relative_to(profile, scenario) for profile in PROFILES]
    return tomli_w.dumps(min((table for table in written if _says(table, scenario)), key=_count))


def _relative_to(profile: str, scenario: Scenario) -> dict[str, Any]:
    """Say what a scenario has otherwise than a profile."""
    usual = Scenario.of(profile)
    table: dict[str, Any] = {} if profile == "lan" else {"profile": profile}
    table |= {key: getattr(scenario, key) for key in _PLAIN if getattr(scenario, key) != getattr(usual, key)}
    for key in _PARTS:
        table[key] = {"name": part_name(getattr(scenario, key)), **getattr(scenario, f"{key}_options")}
    for key in _TABLES:
        default = msgspec.to_builtins(getattr(usual, key))
        here = msgspec.to_builtins(getattr(scenario, key))
        table[key] = {name: value for name, value in here.items() if value != default.get(name) and value is not None}
    if scenario.part_defaults != usual.part_defaults:
        table["part_defaults"] = scenario.part_defaults
    table["faults"] = [msgspec.to_builtins(fault) for fault in scenario.faults]
    return cast(dict[str, Any], _without_nothing(table))


def _without_nothing(value: Any) -> Any:
    """Leave out what is None or empty: TOML has no word for it, and it is so by default."""
    if isinstance(value, dict):
        inner = {key: _without_nothing(one) for key, one in value.items()}
        return {key: one for key, one in inner.items() if one is not None and one != {} and one != []}
    return [_without_nothing(one) for one in value] if isinstance(value, list) else value


def _says(table: Mapping[str, Any], scenario: Scenario) -> bool:
    """Return whether a table gives the scenario back: to be without something is not said by leaving it out."""
    return "part_defaults" in table or from_table(table).part_defaults == scenario.part_defaults


def _count(table: Mapping[str, Any]) -> int:
    """Count the keys, of all tables together."""
    return sum(_count(value) if isinstance(value, dict) else 1 for value in table.values())


class _Written(Scenario, frozen=True, kw_only=True):
    """A scenario as a file can say it: protocols by name only."""

    ordering: str = Scenario().ordering  # type: ignore[assignment]
    stability: str = Scenario().stability  # type: ignore[assignment]
