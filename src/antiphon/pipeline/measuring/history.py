"""What became of a group: its views, and how each process came to its end; for the runs in which anything changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import numpy as np

from antiphon.pipeline.columns import CONTROL, CRASH, END, LEAVE, NULL_TIME, VIEW, Array, RunIndex, Unit
from antiphon.pipeline.measuring.halts import halt_rows, halts
from antiphon.pipeline.measuring.ledger import LogRows
from antiphon.pipeline.store.layout import TraceLayout
from antiphon.trace.schema import STOPPED

ENDINGS: Final = (None, "end", "leave", "excluded", "crash")  # None: its log was cut short
PROCESSES_MAX: Final = 5_000  # of a run; those that did not simply end come first
VIEWS_MAX: Final = 1_000
NOTED_MAX: Final = 100  # of a kind, of what was done at a process


def ending(rows: LogRows) -> Array:
    """Return how a log ends (an index into ENDINGS), and when; who has left or crashed may write its end after that."""
    going, last = (np.flatnonzero(np.isin(rows.event, kinds)) for kinds in ((LEAVE, CRASH), (END,)))
    if not len(going) and not len(last):
        return np.array([0, rows.time[-1] if len(rows.time) else NULL_TIME], np.int64)
    row = int(going[-1] if len(going) else last[-1])
    detail = rows.details[rows.detail[row]] if rows.detail[row] >= 0 else None
    name = {END: "end", CRASH: "crash", LEAVE: "excluded" if detail == "excluded" else "leave"}[int(rows.event[row])]
    name = "end" if name == "crash" and detail == STOPPED else name  # its log is whole
    return np.array([ENDINGS.index(name), rows.time[row]], np.int64)


def noted_at(rows: LogRows, *details: str) -> Array:
    """Return when something was done at a member, which its log notes in one of some words."""
    codes = [rows.details.index(detail) for detail in details if detail in rows.details]
    if not codes:
        return np.zeros(0, np.int64)
    times: Array = rows.time[(rows.event == CONTROL) & np.isin(rows.detail, codes)]
    known: Array = times[times != NULL_TIME]
    return known


def latest(time: Array) -> int:
    """Return the last of some times, NULL_TIME where none is known."""
    return int(time.max()) if len(time) else NULL_TIME


def undelivered_by_itself(sent: Array, delivered: Array) -> int:
    """Return how many of its own messages a member did not deliver; 0 where a log has no such deliveries at all."""
    own = delivered[sent]
    return int((~own).sum()) if own.any() else 0


def pace(time: Array) -> Array:
    """Return of a log's times: where the longest gap begins, its length, and where and how far the clock went back."""
    steps = np.diff(time)
    if not len(steps):
        return np.array([NULL_TIME, 0, NULL_TIME, 0], np.int64)
    longest, back = int(steps.argmax()), int(steps.argmin())
    return np.array([time[longest], max(steps[longest], 0), time[back], max(-steps[back], 0)], np.int64)


class ReadLogs(Protocol):
    """Logs that have been read, each with arrays: `ending`, `pace`, `gaps`, `waiting` and others, and times."""

    @property
    def layout(self) -> TraceLayout:
        """Where the logs lie."""

    def array(self, unit: Unit, name: str) -> Array:
        """Return one of a log's arrays."""


Parted: TypeAlias = dict[tuple[str, int], tuple[int, int]]  # (run, member) -> undelivered, alone


class RunHistory(NamedTuple):
    """A run's rows of these tables; none if nothing changed in it and nobody stood out."""

    views: list[dict[str, Any]]
    processes: list[dict[str, Any]]
    halts: list[dict[str, Any]]


def run_history(here: ReadLogs, run: RunIndex, parted: Parted) -> RunHistory:
    """Return what became of a run."""
    layout = here.layout
    units, segments = layout.units_of(run), layout.segments_of(run)
    endings = {unit: here.array(unit, "ending") for unit in units}
    changed = any(layout.column[name][segments].any() for name in ("view", "leave", "crash"))
    ended = [bool(code) for code, _ in endings.values()]
    paces = {unit: here.array(unit, "pace").tolist() or [NULL_TIME, 0, NULL_TIME, 0] for unit in units}
    silent = _silent(here, paces)
    keys = {unit: here.array(unit, "keys_at").tolist()[:NOTED_MAX] for unit in units}
    unread = {unit: here.array(unit, "unread_at").tolist()[:NOTED_MAX] for unit in units}
    waiting = {unit: int(here.array(unit, "waiting")[0]) for unit in units}
    stands_out = bool(silent) or any(pace[3] for pace in paces.values()) or any(waiting.values())
    stands_out = stands_out or any(keys.values()) or any(unread.values())
    off = _clocks_off(here, run)
    halted = _halts(here, list(units), off)
    # a trace in which no log has an end says nothing by that, but that one ends long before the others does
    spans = [(int(span[0]), int(span[1])) for unit in units if len(span := here.array(unit, "span"))]
    plain = all(ended) or (not any(ended) and not any(ends_early(spans)))
    if not changed and not stands_out and not halted and plain:
        return RunHistory([], [], [])
    processes = []
    for unit, (code, time) in endings.items():
        span = here.array(unit, "span")
        processes.append(
            {
                "run": layout.runs[run],
                "member": int(layout.unit_member[unit]),
                "first_ns": int(span[0]) if len(span) else None,
                "last_ns": _known(int(time)) or (int(span[1]) if len(span) else None),
                "ending": ENDINGS[int(code)],
                **_parted(parted, layout.runs[run], int(layout.unit_member[unit])),
                **_pace(*paces[unit], is_silent=unit in silent),
                "clock_off_ns": off.get(unit),
                "keys_at_ns": keys[unit],
                "unread_at_ns": unread[unit],
                "sent_at_ns": _known(int(here.array(unit, "lasts")[0])),
                "delivered_at_ns": _known(int(here.array(unit, "lasts")[1])),
                "waiting": waiting[unit],
            }
        )
    processes.sort(key=lambda row: row["ending"] == "end")
    return RunHistory(_views(here, run, off), processes[:PROCESSES_MAX], halt_rows(layout.runs[run], halted))


def _halts(here: ReadLogs, units: list[Unit], off: dict[Unit, int]) -> list[tuple[int, int]]:
    """Return when nobody delivered anything although messages waited, by clocks that are set right."""
    spans: dict[Unit, tuple[int, int]] = {}
    gaps: dict[Unit, Array] = {}
    for unit in units:
        span = here.array(unit, "delivered_in")
        if len(span):
            shift = off.get(unit, 0)
            spans[unit] = int(span[0]) - shift, int(span[1]) - shift
            gaps[unit] = here.array(unit, "gaps").reshape(-1, 3) - np.array([shift, shift, 0], np.int64)
    return halts(spans, gaps, units, lambda unit: here.array(unit, "sent_at") - off.get(unit, 0))


STANDS_OUT: Final = 4  # times as long a silence as half of the others' longest
SILENCE_NS_MIN: Final = 100_000_000
SILENT_MAX: Final = 20  # members of a run whose silence is looked into
BUSY_MIN: Final = 3  # deliveries at half of the others while one is silent
EARLY_NS_MIN: Final = 100_000_000
EARLY_SHARE: Final = 0.2  # of the time of the whole run
CLOCK_OFF_NS_MIN: Final = 1_000_000_000  # members install a view at times that are nearer than this


def _silent(here: ReadLogs, paces: dict[Unit, list[int]]) -> set[Unit]:
    """Return who recorded nothing for much longer than the others ever did, while the others delivered messages."""
    silences = sorted(pace[1] for pace in paces.values())
    usual = silences[(len(silences) - 1) // 2] if silences else 0
    standing_out = [unit for unit, pace in paces.items() if pace[1] >= max(SILENCE_NS_MIN, STANDS_OUT * usual)]
    found = set()
    for unit in sorted(standing_out, key=lambda unit: -paces[unit][1])[:SILENT_MAX]:
        since, length = paces[unit][:2]
        busy = sorted(_delivered(here, other, since, since + length) for other in paces if other != unit)
        if busy and busy[len(busy) // 2] >= BUSY_MIN:
            found.add(unit)
    return found


def _delivered(here: ReadLogs, unit: Unit, since: int, until: int) -> int:
    times = here.array(unit, "deliver")
    return int(((times > since) & (times < until)).sum())


def _clocks_off(here: ReadLogs, run: RunIndex) -> dict[Unit, int]:
    """Return by how much clocks are off that install views long before or after the other members do.

    Two members' clocks differ by the median over the views that both install; those of one time are the right ones,
    as far as there are any, since nobody else can tell.
    """
    installed: dict[tuple[int, tuple[int, ...]], dict[Unit, int]] = {}
    for unit, view, time in _installations(here, run):
        if time != NULL_TIME:
            installed.setdefault(view, {})[unit] = time
    apart = _apart([times for times in installed.values() if len(times) > 2])
    if not apart:
        return {}
    alike = {base: sum(abs(one - base) < CLOCK_OFF_NS_MIN for one in apart.values()) for base in apart.values()}
    right = max(alike, key=lambda base: (alike[base], -abs(base - np.median([*apart.values()]))))
    return {unit: off - right for unit, off in apart.items() if abs(off - right) >= CLOCK_OFF_NS_MIN}


def _apart(views: list[dict[Unit, int]]) -> dict[Unit, int]:
    """Return how far each clock is ahead of the first one, found from clock to clock by the views that both install."""
    if not views:
        return {}
    largest = max(views, key=len)
    found = {next(iter(largest)): 0}
    while True:
        differences: dict[Unit, list[int]] = {}
        for times in views:
            known = [unit for unit in times if unit in found]
            for unit in times if known else ():
                if unit not in found:
                    differences.setdefault(unit, []).append(times[unit] - times[known[0]] + found[known[0]])
        if not differences:
            return found
        found |= {unit: int(np.median(values)) for unit, values in differences.items()}


def ends_early(spans: list[tuple[int, int]]) -> list[bool]:
    """Say which logs end long before the others, and did not begin as much earlier, as by a clock that is behind."""
    if not spans:
        return []
    begin, end = (float(np.median([span[at] for span in spans])) for at in (0, 1))
    least = max(EARLY_NS_MIN, EARLY_SHARE * (max(last for _, last in spans) - min(first for first, _ in spans)))
    return [end - last >= least and begin - first < (end - last) / 2 for first, last in spans]


def _parted(parted: Parted, run: str, member: int) -> dict[str, int | None]:
    undelivered, alone = parted.get((run, member), (None, None))
    return {"undelivered": undelivered, "alone": alone}


def _pace(quiet_at: int, quiet: int, back_at: int, back: int, *, is_silent: bool) -> dict[str, int | None]:
    return {
        "quiet_at_ns": _known(quiet_at) if is_silent else None,
        "quiet_ns": quiet if is_silent else None,
        "set_back_at_ns": _known(back_at) if back else None,
        "set_back_ns": back or None,
    }


def _installations(here: ReadLogs, run: RunIndex) -> Iterator[tuple[Unit, tuple[int, tuple[int, ...]], int]]:
    """Yield who installs which view (number and members) when."""
    layout = here.layout
    units = {int(layout.unit_member[unit]): unit for unit in layout.units_of(run)}
    times = {unit: here.array(unit, "viewed_at").tolist() for unit in units.values()}
    for row in layout.skeleton(run).select(["member", "event", "view", "members"]).to_pylist():
        if row["event"] == VIEW:
            unit = units[row["member"]]
            yield unit, (row["view"], tuple(row["members"] or ())), times[unit].pop(0)


def _views(here: ReadLogs, run: RunIndex, off: dict[Unit, int]) -> list[dict[str, Any]]:
    layout = here.layout
    found: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for unit, view, time in _installations(here, run):
        found.setdefault(view, []).append(time if time == NULL_TIME else time - off.get(unit, 0))
    rows = []
    for (number, members), installed in found.items():
        known = [time for time in installed if time != NULL_TIME]
        rows.append(
            {
                "run": layout.runs[run],
                "view": number,
                "members": list(members),  # in their order: the first of ours is the coordinator
                "installed": len(installed),
                "first_ns": min(known, default=None),
                "last_ns": max(known, default=None),
            }
        )
    rows.sort(key=lambda row: (row["view"], row["first_ns"] or 0, row["members"]))
    return rows[:VIEWS_MAX]


def _known(time: int) -> int | None:
    return None if time == NULL_TIME else time
