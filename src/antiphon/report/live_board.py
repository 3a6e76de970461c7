"""What is known of a running group now, from what its members publish and what `antiphon watch` found.

The data goes one way: members -> `Follower` (one a member) -> `Board` (what is known now, bounded) -> the page. Nothing
is asked of the group, and nothing is told to it.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal

import msgspec

from antiphon.live.addresses import parse
from antiphon.live.events import Status
from antiphon.pipeline.results import WatchAlarm, WatchCommit, last_commit, read_alarms
from antiphon.report.board_state import (
    BoardNews,
    BoardState,
    KnownView,
    Level,
    LiveLane,
    LiveStretch,
    MemberRow,
    Published,
    State,
    WatchedGroup,
    WatchedGuarantee,
)
from antiphon.report.board_troubles import headline

SILENT_S: Final = 1.0  # a member publishes four times a second; one that misses four is called silent
STUCK_S: Final = 3.0  # after so long without a delivery although something waits, something is wrong
_RETRY_S: Final = 0.5
_SAMPLES: Final = 60  # seconds of rates that the page draws
_CULPRIT_S: Final = 3  # some member is always the slowest; one that stays it for so long is a culprit
_REMEMBERED: Final = 100  # news, views, alarms
_LINE_BYTES_MAX: Final = 1 << 20
_TIMELINE_S: Final = 600.0
_LANES: Final = 200  # members that the timeline remembers
_LANES_SHOWN: Final = 40  # and that it shows
_WORST_FIRST_FROM: Final = 12  # members; fewer are listed in their order
_RANKS: Final = {"bad": 0, "warn": 1, "good": 2, "plain": 3, "muted": 4}  # which come first


class Follower:
    """One member's published status, followed over its connections."""

    def __init__(self, address: str) -> None:
        self.host, self.port = parse(address, "--member")
        self.address = address
        self.status: Status | None = None
        self.heard_at = 0.0
        self.connected = False
        self.rates: deque[tuple[float, float]] = deque([(0.0, 0.0)] * _SAMPLES, maxlen=_SAMPLES)  # sent, delivered
        self._counted: tuple[float, int, int] | None = None
        self._delivered_at = 0.0  # when it delivered last, or had nothing to deliver
        self._taken_at = 0.0  # when its application took something last, or had nothing to take
        self._standing_at = 0.0  # since when it stands as it does
        self._full_at = 0.0  # when it last took in nothing, its inbox being full
        self._full_since = 0.0  # and since when that has happened again and again

    async def follow(self, board: Board) -> None:
        """Connect, read line by line, connect again; for ever."""
        while True:
            try:
                reader, writer = await asyncio.open_connection(self.host, self.port, limit=_LINE_BYTES_MAX)
                try:
                    while line := await reader.readline():
                        status = msgspec.json.decode(line, type=Status)
                        self.heard_at, self.connected = time.time(), True
                        board.heard(self, status)
                finally:
                    writer.close()
            except (OSError, ValueError):  # nobody there; or not a member, or one of another version
                pass
            if self.connected:
                self.connected = False
                board.lost(self)
            await asyncio.sleep(_RETRY_S)

    def state(self, now: float) -> State:
        """Say how it stands with this member, seen from here."""
        if self.status is None:
            return "never"
        if not self.connected:
            return "gone"
        return "silent" if now - self.heard_at > SILENT_S else "live"

    def take(self, status: Status) -> Status | None:
        """Take the newest status; return the one before."""
        before, self.status = self.status, status
        if before is None:
            self._counted = (time.time(), status.sent, status.delivered)
        if before is None or before.delivered != status.delivered or not _waits(status):
            self._delivered_at = time.time()
        if before is None or status.inbox_bytes < before.inbox_bytes or not status.inbox_bytes:
            self._taken_at = time.time()
        if before is not None and status.counts.get("set-aside", 0) > before.counts.get("set-aside", 0):
            now = time.time()
            self._full_since = self._full_since if now - self._full_at < STUCK_S else now
            self._full_at = now
        if before is None or before.standing != status.standing:
            self._standing_at = time.time()
        return before

    def stuck_s(self, now: float) -> int:
        """Return for how many seconds it has delivered nothing although something waits; 0 if that is not so."""
        waited = now - self._delivered_at
        stuck = self.status is not None and self.status.standing == "active" and _waits(self.status)
        return int(waited) if stuck and waited >= STUCK_S else 0

    def unread_s(self, now: float) -> int:
        """Return for how many seconds its application has taken nothing although something waits; 0 if not so."""
        waited = now - self._taken_at
        return int(waited) if self.status is not None and self.status.inbox_bytes and waited >= STUCK_S else 0

    def _does_not_keep_up(self, now: float) -> bool:
        """Say whether its inbox has been full for a while; what a new view brings all at once fills it for a moment."""
        return now - self._full_at < STUCK_S <= self._full_at - self._full_since

    def sample(self, now: float) -> None:
        """Note the rates since the last sample."""
        rates = (0.0, 0.0)
        if self.status is not None and self._counted is not None:
            at, sent, delivered = self._counted
            if now > at:  # a member that started again counts from zero
                rates = (
                    max(0, self.status.sent - sent) / (now - at),
                    max(0, self.status.delivered - delivered) / (now - at),
                )
            self._counted = (now, self.status.sent, self.status.delivered)
        self.rates.append(rates)

    def published(self, now: float) -> Published | None:
        """Return what the page shows of its status."""
        status = self.status
        if status is None:
            return None
        live = self.state(now) == "live"
        recent = list(self.rates)[-int(STUCK_S) :]
        refused = {what: number for what, number in status.counts.items() if what.startswith("refused-") and number}
        return Published(
            standing=status.standing,
            has_left=status.standing in ("leaving", "left"),
            view=status.view,
            held=status.held,
            waiting_bytes=status.waiting_bytes,
            inbox_bytes=status.inbox_bytes,
            sent=status.sent,
            delivered=status.delivered,
            sent_per_s=self.rates[-1][0] if live else 0.0,
            delivered_per_s=self.rates[-1][1] if live else 0.0,
            history=[round(delivered, 1) for _, delivered in self.rates],
            stuck_s=self.stuck_s(now) if live else 0,
            unread_s=self.unread_s(now) if live else 0,
            standing_s=int(now - self._standing_at),
            idle=live and not _waits(status) and not any(delivered for _, delivered in recent),
            full=live and self._does_not_keep_up(now),
            refused=sum(refused.values()),
            refused_why=max(refused, key=lambda what: refused[what], default="").removeprefix("refused-"),
            retransmissions=status.counts.get("retransmissions", 0),
            heard_s=now - self.heard_at,
        )


def _waits(status: Status) -> bool:
    """Say whether something is under way: held until it is stable, or sent and held back."""
    return status.held > 0 or status.waiting_bytes > 0


class Watched:
    """What `antiphon watch` has written into its checkpoint so far."""

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self._commit: WatchCommit | None = None
        self._alarms: deque[WatchAlarm] = deque(maxlen=_REMEMBERED)

    def read(self) -> bool:
        """Read what is new; whether there was anything."""
        known = -1 if self._commit is None else self._commit.batch
        commit = last_commit(self.checkpoint)
        if commit is None or commit.batch == known:
            return False
        self._alarms.extend(alarm for alarm in read_alarms(self.checkpoint, known) if alarm.batch <= commit.batch)
        self._commit = commit
        return True

    def show(self) -> WatchedGroup:
        """Return what the page draws of it."""
        if self._commit is None:
            return WatchedGroup(str(self.checkpoint))
        found = self._commit.findings
        promises = self._commit.promises or found  # where nothing is promised, everything decides
        return WatchedGroup(
            checkpoint=str(self.checkpoint),
            events=self._commit.events,
            events_per_s=round(self._commit.events_per_s),
            count=self._commit.alarms,
            guarantees={
                name: WatchedGuarantee(finding.examined, finding.violations, decides=name in promises)
                for name, finding in found.items()
            },
            alarms=list(self._alarms)[::-1],
        )


class Board:
    """All that is known of the group now, and its last changes."""

    def __init__(self, followers: Iterable[Follower], watched: Watched | None = None) -> None:
        self.followers, self.watched = list(followers), watched
        self.version = 0
        self._views: deque[KnownView] = deque(maxlen=_REMEMBERED)
        self._news: deque[BoardNews] = deque(maxlen=_REMEMBERED)
        self._stretches: dict[str, deque[LiveStretch]] = {}
        self._quiet: set[str] = set()  # those that were called silent
        self._slowest_s: Counter[str] = Counter()  # for how long most of the others have been waiting for a member

    def heard(self, follower: Follower, status: Status) -> None:
        """Take a member's status."""
        before = follower.take(status)
        self.version += 1
        name = status.me
        if before is None:
            self._say("good", f"{name} is here ({status.standing})")
        elif before.standing != status.standing:
            level: Level = "good" if status.standing == "active" else "warn"
            self._say("bad" if status.standing in ("stalled", "failed") else level, f"{name} is {status.standing}")
        view = (status.view, status.members)
        if status.members and view not in [(known.view, known.members) for known in self._views]:
            last = self._views[-1].members if self._views else ()
            joined = [member for member in status.members if member not in last]
            left = [member for member in last if member not in status.members]
            self._views.append(KnownView(time.time(), status.view, status.members, joined, left))

    def lost(self, follower: Follower) -> None:
        """Take note that a member's connection ended."""
        self.version += 1
        assert follower.status is not None
        if follower.status.standing in ("leaving", "left"):
            self._say("warn", f"{follower.status.me} has left")
        else:
            self._say("bad", f"{follower.status.me} is gone: its status ended without a word")

    def tick(self) -> None:
        """Once a second: sample the rates, look for those that fell silent."""
        now = time.time()
        self.version += 1
        for follower in self.followers:
            follower.sample(now)
            state = follower.state(now)
            if state == "silent" and follower.address not in self._quiet:
                assert follower.status is not None
                self._quiet.add(follower.address)
                self._say("bad", f"{follower.status.me} is silent: connected, but it publishes nothing")
            elif state == "live" and follower.address in self._quiet:
                assert follower.status is not None
                self._quiet.discard(follower.address)
                self._say("good", f"{follower.status.me} speaks again")
        live = self._live(now)
        named = Counter(status.slowest for status in live if status.slowest is not None)
        most = {member for member, voices in named.items() if 2 * voices >= len(live) - 1}
        if {status.me for status in live} <= most:
            most = set()  # if two busy members wait for each other, neither is to blame
        self._slowest_s = Counter({member: self._slowest_s[member] + 1 for member in most})
        self._extend_timeline(now)

    def _extend_timeline(self, now: float) -> None:
        """Note how everybody stands; what is older than the timeline goes."""
        for row in self._rows(now):
            if row.member not in self._stretches and (row.state == "never" or len(self._stretches) >= _LANES):
                continue
            stretches = self._stretches.setdefault(row.member, deque())
            if stretches and now - stretches[-1].end < 2.5:
                stretches[-1].end = now  # without a gap, also where it changes
            if not stretches or stretches[-1].level != row.level or now - stretches[-1].end >= 2.5:
                stretches.append(LiveStretch(now, now, row.level))
        for name, stretches in list(self._stretches.items()):
            while stretches and stretches[0].end < now - _TIMELINE_S:
                stretches.popleft()
            if not stretches:
                del self._stretches[name]

    def _say(self, level: Level, text: str) -> None:
        self._news.append(BoardNews(time.time(), level, text))

    def _live(self, now: float) -> list[Status]:
        return [follower.status for follower in self.followers if follower.status and follower.state(now) == "live"]

    def show(self) -> BoardState:
        """Return everything, as the page takes it."""
        now = time.time()
        rows = self._rows(now)
        watch = None if self.watched is None else self.watched.show()
        return BoardState(
            now=now,
            group=next((follower.status.group for follower in self.followers if follower.status), None),
            headline=headline(rows, self._live(now), 0 if watch is None else watch.violations),
            members=rows,
            timeline=self._timeline(),
            views=list(self._views)[::-1],
            news=list(self._news)[::-1],
            watch=watch,
        )

    def _timeline(self) -> list[LiveLane]:
        """Return the lanes to draw: of a large group those that did not always stand well."""
        lanes = [LiveLane(name, list(stretches)) for name, stretches in sorted(self._stretches.items())]
        if len(lanes) <= _LANES_SHOWN:
            return lanes
        worst = sorted(lanes, key=lambda lane: min(_RANKS[stretch.level] for stretch in lane.stretches))
        return worst[:_LANES_SHOWN]

    def _rows(self, now: float) -> list[MemberRow]:
        statuses = self._live(now)
        newest = max(statuses, key=lambda status: status.view, default=None)
        own = {follower.status.me: follower for follower in self.followers if follower.status}
        known = own.keys() | {member for status in statuses for member in status.members}
        rows = []
        for member in sorted(known):
            lags = [status.lag[member] for status in statuses if member in status.lag]
            follower = own.get(member)
            in_view = newest is not None and member in newest.members
            # of who is gone or out of the view it need not be said
            state: State = "unpublished" if follower is None else follower.state(now)
            lags_behind = in_view and state != "gone" and any(lag != 0 for lag in lags)
            holds_back_s = self._slowest_s[member] if lags_behind else 0
            published = None if follower is None else follower.published(now)
            says, level = _standing(state, published, in_view=in_view)
            rows.append(
                MemberRow(
                    member=member,
                    state=state,
                    in_view=in_view,
                    says=says,
                    level=level,
                    lag=None if None in lags else max((lag for lag in lags if lag is not None), default=None),
                    unheard=None in lags,
                    holds_back_s=holds_back_s if holds_back_s >= _CULPRIT_S else 0,
                    published=published,
                )
            )
        never = [one.address for one in self.followers if one.status is None]
        rows += [MemberRow(address, "never", says="not there yet", level="muted") for address in never]
        return rows if len(rows) <= _WORST_FIRST_FROM else sorted(rows, key=lambda row: _RANKS[row.level])


def _standing(state: State, own: Published | None, *, in_view: bool) -> tuple[str, Level | Literal["plain", "muted"]]:
    """Say how a member stands, and how bad that is."""
    if state == "unpublished" or own is None:
        return "publishes nothing", "muted"
    if state == "gone":
        if own.has_left:
            return "has left", "muted"
        return ("gone", "bad") if in_view else ("gone, out of the view", "bad")
    if state == "silent":
        return "silent", "bad"
    if own.standing != "active":
        return own.standing, "bad" if own.standing in ("stalled", "failed") else "warn"
    if own.unread_s:
        return f"its application has taken nothing for {own.unread_s} s", "bad"
    if own.full:
        return "its application does not keep up: the inbox is full", "bad"
    if own.stuck_s:
        return f"has delivered nothing for {own.stuck_s} s", "bad"
    return ("active, idle", "plain") if own.idle else ("active", "good")
