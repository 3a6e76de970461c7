"""Scenarios: a small readable file, or flags, that says everything about a simulated run but its seed.

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
from pathlib import Path
from typing import Any, Literal

import msgspec

from antiphon.errors import UsageError
from antiphon.protocol.config import Config, part_name
from antiphon.protocol.membership.process import MembershipOptions
from antiphon.protocol.parts import Ordering, Stability
from antiphon.protocol.recovery import RecoveryOptions
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
    member: int | None = None  # crash, pause; with views: join (it starts only then), leave
    groups: list[list[int]] | None = None  # partition; who is in no group forms one more
    source: list[int] | None = None  # cut: one direction only
    target: list[int] | None = None


class Clocks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far the members' clocks are off: each is drawn evenly from -max to +max."""

    skew: str = "0"
    drift_ppm: int = 0


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """A simulated run, but for its seed."""

    name: str = ""
    members: int = 5
    messages: int = 100  # per sender
    ordering: str | type[Ordering] = "fifo"
    ordering_options: dict[str, Any] = {}
    stability: str | type[Stability] = "vector-ack"
    stability_options: dict[str, Any] = {}
    recovery: RecoveryOptions = RecoveryOptions()
    window: int = 64
    buffer: int = 0
    safe: bool = False  # deliver only what is stable
    views: bool = False  # whether membership changes
    founders: int = 0  # with views: how many of the members, the first ones, form the first view; 0: all
    membership: MembershipOptions = MembershipOptions()
    network: NetworkOptions = NetworkOptions()
    workload: Workload = Workload()
    clocks: Clocks = Clocks()
    faults: list[Fault] = []
    limit: str = "10min"  # simulated time after which the run is given up as unfinished

    def config(self) -> Config:
        """Give the composition of every member."""
        return Config(
            group=self.name or "simulated",
            ordering=self.ordering,
            ordering_options=self.ordering_options,
            stability=self.stability,
            stability_options=self.stability_options,
            recovery=self.recovery,
            window=self.window,
            buffer=self.buffer,
            safe=self.safe,
            queue=max(16, min(1024, self.messages)),
        )

    def check(self) -> None:
        """Raise a `UsageError` that names the key and the remedy, unless this can be run."""
        if self.messages < 0:
            raise UsageError(f"messages: 0 or more per sender, not {self.messages}")
        self.config().check(self.members)
        self.network.check(self.members)
        sampler(self.workload.interval, "workload.interval")
        if not 0 <= self.workload.payload <= self.config().payload_bytes_max:
            raise UsageError(
                f"workload.payload: 0 to {self.config().payload_bytes_max} bytes, not {self.workload.payload}"
            )
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
        if not 0 <= self.founders <= self.members:
            raise UsageError(f"founders: 0 (all) to {self.members}, not {self.founders}")
        if self.views:
            self.membership.check()
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

    def promises(self) -> list[str]:
        """Name the guarantees that a run of this scenario promises."""
        return self.config().promises(views=self.views)


_PLAIN = ("name", "members", "messages", "window", "buffer", "safe", "views", "founders", "limit")
_TABLES = ("network", "workload", "clocks", "recovery", "membership")


def from_table(table: dict[str, Any]) -> Scenario:
    """Build a scenario from the tables of a file, or say which key is wrong."""
    fields: dict[str, Any] = {}
    for key, value in table.items():
        if key in _PLAIN or key in _TABLES or key == "faults":
            fields[key] = value
        elif key in ("ordering", "stability"):
            part = {"name": value} if isinstance(value, str) else dict(value) if isinstance(value, dict) else {}
            if not isinstance(part.get("name"), str):
                raise UsageError(f'{key}: write {key} = "NAME", or a table [{key}] with a name')
            fields[key] = part.pop("name")
            fields[f"{key}_options"] = part
        else:
            known = ", ".join((*_PLAIN, "ordering", "stability", *_TABLES, "faults"))
            raise UsageError(f"{key}: unknown key; a scenario knows {known}")
    try:
        scenario = msgspec.convert(fields, _Written)
    except msgspec.ValidationError as error:
        raise UsageError(str(error).replace(" - at `$.", ": at `")) from None
    return Scenario(**{key: getattr(scenario, key) for key in fields})


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
    """Write a scenario down so that `load` and `from_table` give it back; what is as usual is left out."""
    usual = Scenario()
    tables: list[str] = []
    plain = {key: getattr(scenario, key) for key in _PLAIN}
    lines = [f"{key} = {_toml(value)}" for key, value in plain.items() if value != getattr(usual, key)]
    for key in ("ordering", "stability"):
        tables += ["", f"[{key}]", f"name = {_toml(part_name(getattr(scenario, key)))}"]
        tables += [f"{name} = {_toml(value)}" for name, value in getattr(scenario, f"{key}_options").items()]
    for key in _TABLES:
        tables += _toml_table(f"[{key}]", getattr(scenario, key), getattr(usual, key))
    for fault in scenario.faults:
        tables += _toml_table("[[faults]]", fault, None)
    return "\n".join([*lines, *tables]) + "\n"


def _toml_table(title: str, table: msgspec.Struct, usual: msgspec.Struct | None) -> list[str]:
    written, default = msgspec.to_builtins(table), {} if usual is None else msgspec.to_builtins(usual)
    lines = [
        f"{key} = {_toml(value)}" for key, value in written.items() if value is not None and value != default.get(key)
    ]
    return ["", title, *lines] if lines else []


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items() if inner is not None) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return msgspec.json.encode(value).decode()  # TOML writes strings, numbers and truth values as JSON does


class _Written(Scenario, frozen=True, kw_only=True):
    """A scenario as a file can say it: protocols by name only."""

    ordering: str = "fifo"
    stability: str = "vector-ack"
