"""What the `run.json` beside a trace says of a run, as far as a page uses it; a foreign one may say anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from antiphon.errors import UsageError
from antiphon.protocol.membership.views import incarnation_of, name_of
from antiphon.trace.run_file import read_names
from antiphon.wording import ordinal


class LinkSettings(msgspec.Struct, frozen=True, rename={"source": "from", "target": "to"}):
    """What differed on the simulated links from some members to others."""

    source: list[int]
    target: list[int]
    latency: str | None = None
    loss: float | None = None


class NetworkSettings(msgspec.Struct, frozen=True):
    """What a simulated network did to datagrams, as shares of them."""

    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    links: list[LinkSettings] = []


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
    by: str | None = None  # of a clock: how far it is set; of links: what they have


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
        """Return what a member is called, in all its lives; None where nobody said."""
        return self.names.get(str(name_of(member) if self.views else member))

    def life_of(self, member: int, lives: Mapping[int, int]) -> str:
        """Say which of its lives it is, if not the first; `lives` are those of the run, counted."""
        if not self.views or incarnation_of(member) == 1:
            return ""
        life = lives.get(member) or 1 + sum(name_of(other) == name_of(member) and other < member for other in lives)
        return f", {ordinal(life)} life" if life > 1 else ""


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


def count_lives(taking_part: Iterable[int]) -> dict[int, int]:
    """Return which of its name's lives each process is.

    The number of an incarnation would not do: it leaps where the state was lost, and some never get into a view.
    """
    lives, last = dict[int, int](), Counter[int]()
    for member in sorted(set(taking_part)):
        last[name_of(member)] += 1
        lives[member] = last[name_of(member)]
    return lives


def names_of(trace: str, run: str, members: Iterable[int], lives: Mapping[int, int]) -> dict[int, str]:
    """Return what members of a run are called, those whose names the trace tells: "alice", "alice, 2nd life"."""
    settings = run_settings(trace, run)
    if not settings.names:
        return {}
    given = {member: name for member in members if (name := settings.name_of(member)) is not None}
    return {member: name + settings.life_of(member, lives) for member, name in given.items()}


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
        each += f" and one more, times a headroom of {options.headroom}"
        return BufferBound(options.places(group), was_set if options.buffer else f"{each} for each of {group} members")
    return BufferBound(options.window * group, f"{each} for each of {group} members")
