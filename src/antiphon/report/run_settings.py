"""What the `run.json` beside a trace says of a run, as far as a page uses it; a foreign one may say anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from antiphon.errors import UsageError
from antiphon.protocol.membership.views import incarnation_of, name_of
from antiphon.trace.run_file import read_names
from antiphon.wording import ordinal


class NetworkSettings(msgspec.Struct, frozen=True):
    """What a simulated network did to datagrams, as shares of them."""

    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0


class ScenarioFault(msgspec.Struct, frozen=True, rename={"source": "from", "target": "to"}):
    """What was let go wrong: a crash, partition, cut, pause, join, leave or step of a clock, and until when."""

    kind: str
    at: str
    until: str | None = None
    member: int | None = None
    groups: list[list[int]] | None = None
    source: list[int] | None = None
    target: list[int] | None = None
    forgets: bool = False  # of a crash: the disk is lost too
    by: str | None = None  # of a clock: how far it is set


class RunParameters(msgspec.Struct, frozen=True):
    """The scenario of a simulated run."""

    members: int | None = None
    window: int | None = None
    buffer: int = 0
    ordering_options: dict[str, Any] = {}
    network: NetworkSettings = NetworkSettings()
    faults: list[ScenarioFault] = []


class RunVersions(msgspec.Struct, frozen=True):
    """What recorded the trace."""

    antiphon: str | None = None


class RunSettings(msgspec.Struct, frozen=True):
    """A run.json; everything is None where it does not say."""

    run: str | None = None
    ordering: str | None = None
    stability: str | None = None
    views: bool | None = None
    finished: bool | None = None
    seed: int | None = None
    versions: RunVersions = RunVersions()
    parameters: RunParameters | None = None
    faults: list[ScenarioFault] = []  # what a test did to its processes
    names: dict[str, str] = {}  # of the members, by their numbers

    def name_of(self, member: int) -> str | None:
        """Return what a member is called, with its life if that is not its first; None where nobody said."""
        life = incarnation_of(member) if self.views else 1
        given = self.names.get(str(name_of(member) if self.views else member))
        return None if given is None else f"{given}, {ordinal(life)} life" if life > 1 else given


def run_settings(trace: str | None, run: str, names: Mapping[int, str] | None = None) -> RunSettings:
    """Read the run.json of a run: the one that names it, else the one at the top of the trace.

    `names` are those that a log of another system had for the numbers of its members.
    """
    found = RunSettings() if trace is None else _read_run_settings(trace, run)
    given = {str(number): name for number, name in (names or {}).items()}
    return msgspec.structs.replace(found, names={**found.names, **given}) if given else found


def _read_run_settings(trace: str, run: str) -> RunSettings:
    root = Path(trace) if Path(trace).is_dir() else Path(trace).parent
    top = RunSettings(names=read_names(root))
    for file in [root / "run.json", *(sorted(root.glob("*/run.json")) if Path(trace).is_dir() else ())]:
        if file.is_file():
            settings = read_settings(file.read_bytes())
            settings = msgspec.structs.replace(settings, names={**settings.names, **read_names(file.parent)})
            if settings.run == run:
                return settings
            if file.parent == root:
                top = settings
    return top


def names_of(trace: str, run: str, members: Iterable[int]) -> dict[int, str]:
    """Return what members of a run are called, those whose names the trace tells: "alice", "alice, 2nd life"."""
    settings = run_settings(trace, run)
    if not settings.names:
        return {}
    return {member: name for member in members if (name := settings.name_of(member)) is not None}


def read_settings(content: bytes) -> RunSettings:
    """Decode a run.json; another system's may have our names for other things, and then says nothing to us."""
    try:
        return msgspec.json.decode(content, type=RunSettings)
    except msgspec.DecodeError:
        return RunSettings()


class BufferBound(msgspec.Struct, frozen=True):
    """How many messages a member can have to hold, and why."""

    messages: int
    why: str


def buffer_bound(settings: RunSettings, members: int) -> BufferBound | None:
    """Say what the run's own parameters allow its buffers; None where run.json does not say, or is not ours."""
    from antiphon.protocol.options import GroupOptions, ordering_type

    parameters = settings.parameters
    if parameters is None or parameters.window is None or settings.ordering is None:
        return None
    try:
        config = GroupOptions(
            ordering=settings.ordering,
            ordering_options=parameters.ordering_options,
            window=parameters.window,
            buffer=parameters.buffer,
        )
        ordering, options = ordering_type(config.ordering), config.ordering_settings()
    except UsageError:
        return None
    group = parameters.members or members
    was_set = "the buffer that was set"
    if ordering.NEEDS_RECOVERY:
        why = was_set if config.buffer else f"four windows of {config.window} for each of {group} members"
        return BufferBound(config.buffer_size(group), why)
    each = f"a window of {options.window}"
    if hasattr(options, "places"):
        each += f" times a headroom of {options.headroom}"
        return BufferBound(options.places(group), was_set if options.buffer else f"{each} for each of {group} members")
    return BufferBound(options.window * group, f"{each} for each of {group} members")
