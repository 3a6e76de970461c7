"""A live page of a running group: reads what members publish and what `watch` found, and pushes it to browsers.

The data goes one way: members -> `Follower` (one a member) -> `Board` (what is known now, bounded) -> server-sent
events -> the page. Nothing is asked of the group, and nothing is told to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec
from aiohttp import web
from markupsafe import Markup

from antiphon.errors import UsageError
from antiphon.live.addresses import parse
from antiphon.live.events import Status
from antiphon.report.page import asset, page

SILENT_S = 1.0  # a member publishes four times a second; one that misses four is called silent
_RETRY_S = 0.5
_PUSH_S = 0.25
_SAMPLES = 60  # seconds of rates that the page draws
_CULPRIT_S = 3  # some member is always the slowest; one that stays it for so long is a culprit
_REMEMBERED = 100  # news, views, alarms
_LINE_BYTES_MAX = 1 << 20

Level = Literal["good", "warn", "bad"]


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

    def state(self, now: float) -> Literal["live", "silent", "gone", "never"]:
        """How it stands with this member, seen from here."""
        if self.status is None:
            return "never"
        if not self.connected:
            return "gone"
        return "silent" if now - self.heard_at > SILENT_S else "live"

    def take(self, status: Status) -> Status | None:
        """Take the newest status; give the one before."""
        before, self.status = self.status, status
        if before is None:
            self._counted = (time.time(), status.sent, status.delivered)
        return before

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


class Watched:
    """What `antiphon watch` has written into its checkpoint so far."""

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self.summary: dict[str, Any] | None = None
        self.alarms: deque[dict[str, Any]] = deque(maxlen=_REMEMBERED)
        self._upto = -1

    def read(self) -> bool:
        """Read what is new; whether there was anything."""
        import pyarrow.parquet as pq

        commits = sorted(self.checkpoint.glob("commits/*.json"))
        if not commits or int(commits[-1].stem) == self._upto:
            return False
        try:
            summary = msgspec.json.decode(commits[-1].read_bytes())
        except FileNotFoundError:
            return False  # replaced by the next one meanwhile
        committed = int(commits[-1].stem)
        for file in sorted(self.checkpoint.glob("alarms/*.parquet")):
            if self._upto < int(file.name.split("-")[0]) <= committed:
                self.alarms.extend(pq.read_table(file).to_pylist())
        self.summary, self._upto = summary, committed
        return True

    def show(self) -> dict[str, Any]:
        """What the page draws of it."""
        if self.summary is None:
            return {"checkpoint": str(self.checkpoint), "events": None, "guarantees": {}, "alarms": [], "count": 0}
        found: dict[str, dict[str, Any]] = self.summary["findings"]
        promises = self.summary.get("promises") or found  # where nothing is promised, everything decides
        return {
            "checkpoint": str(self.checkpoint),
            "events": self.summary["events"],
            "events_per_s": round(self.summary["events_per_s"]),
            "count": self.summary["alarms"],
            "guarantees": {
                name: {
                    "examined": finding["examined"],
                    "violations": finding["violations"],
                    "decides": name in promises,
                }
                for name, finding in found.items()
            },
            "alarms": list(self.alarms)[::-1],
        }


class Board:
    """All that is known of the group now, and its last changes."""

    def __init__(self, followers: Iterable[Follower], watched: Watched | None = None) -> None:
        self.followers, self.watched = list(followers), watched
        self.version = 0
        self._views: deque[dict[str, Any]] = deque(maxlen=_REMEMBERED)
        self._news: deque[dict[str, Any]] = deque(maxlen=_REMEMBERED)
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
        if status.members and view not in [(known["view"], known["members"]) for known in self._views]:
            last: tuple[str, ...] = self._views[-1]["members"] if self._views else ()
            self._views.append(
                {
                    "at": time.time(),
                    "view": status.view,
                    "members": status.members,
                    "joined": [member for member in status.members if member not in last],
                    "left": [member for member in last if member not in status.members],
                }
            )

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
        named = Counter(status.slowest for status in self._live(now) if status.slowest is not None)
        most = {member for member, count in named.items() if 2 * count >= len(self._live(now)) - 1}
        self._slowest_s = Counter({member: self._slowest_s[member] + 1 for member in most})

    def _say(self, level: Level, text: str) -> None:
        self._news.append({"at": time.time(), "level": level, "text": text})

    def _live(self, now: float) -> list[Status]:
        return [follower.status for follower in self.followers if follower.status and follower.state(now) == "live"]

    def show(self) -> dict[str, Any]:
        """Everything, as the page takes it."""
        now = time.time()
        rows = self._rows(now)
        group = next((follower.status.group for follower in self.followers if follower.status), None)
        return {
            "now": now,
            "group": group,
            "headline": self._headline(rows, self._live(now)),
            "members": rows,
            "views": list(self._views)[::-1],
            "news": list(self._news)[::-1],
            "watch": None if self.watched is None else self.watched.show(),
        }

    def _rows(self, now: float) -> list[dict[str, Any]]:
        """One row a member: from its own status where it publishes one, and from what the others say of it."""
        statuses = self._live(now)
        newest = max(statuses, key=lambda status: status.view, default=None)
        own = {follower.status.me: follower for follower in self.followers if follower.status}
        known = dict.fromkeys(own) | dict.fromkeys(member for status in statuses for member in status.members)
        rows = []
        for member in sorted(known):
            lags = [status.lag[member] for status in statuses if member in status.lag]
            row: dict[str, Any] = {
                "member": member,
                "state": "unpublished",
                "in_view": newest is not None and member in newest.members,
                "lag": None if not lags or None in lags else max(lag for lag in lags if lag is not None),
                "unheard": None in lags,
                "holds_back_s": self._slowest_s[member] if self._slowest_s[member] >= _CULPRIT_S else 0,
            }
            if member in own:
                row |= _own_row(own[member], now)
            rows.append(row)
        rows += [
            {"member": follower.address, "state": "never", "in_view": False, "lag": None, "unheard": False}
            for follower in self.followers
            if follower.status is None
        ]
        return rows

    def _headline(self, rows: list[dict[str, Any]], live: list[Status]) -> dict[str, str]:
        """One sentence: is everything well, and if not, who is the culprit."""
        level: Level = "good"
        stalled = [status.me for status in live if status.standing == "stalled"]
        missing = [row["member"] for row in rows if row["state"] in ("gone", "silent") and not row.get("has_left")]
        outside = [row["member"] for row in rows if row["state"] == "live" and not row["in_view"]]
        violations = sum(
            found["violations"]
            for found in (self.watched.show()["guarantees"] if self.watched else {}).values()
            if found["decides"]
        )
        if not live:
            return {"level": "warn", "text": "No member publishes its status (antiphon join --status-at HOST:PORT)."}
        view = max(status.view for status in live)
        count = sum(row["in_view"] for row in rows)
        where = f"{count} members, view {view}" if view else f"{count} members, fixed"
        parts = []
        if stalled:
            level = "bad"
            parts.append(f"{', '.join(stalled)} stopped delivering: too few members within reach")
        if missing:
            level = "bad"
            parts.append(f"no news from {', '.join(missing)}")
        slow = [row["member"] for row in rows if row.get("holds_back_s") and row["member"] not in missing]
        if slow:
            level = "warn" if level == "good" else level
            parts.append(f"{', '.join(slow)} holds stability back")
        if violations:
            level = "bad"
            parts.append(f"watch found {violations:,} violations")
        if outside:
            level = "warn" if level == "good" else level
            parts.append(f"{', '.join(outside)} not in the view")
        return {"level": level, "text": f"{where}: {'; '.join(parts) or 'everyone is heard from'}."}


def _own_row(follower: Follower, now: float) -> dict[str, Any]:
    status = follower.status
    assert status is not None
    state = follower.state(now)
    live = state == "live"
    return {
        "state": state,
        "standing": status.standing,
        "has_left": status.standing in ("leaving", "left"),
        "view": status.view,
        "held": status.held,
        "waiting_bytes": status.waiting_bytes,
        "inbox_bytes": status.inbox_bytes,
        "sent": status.sent,
        "delivered": status.delivered,
        "sent_per_s": follower.rates[-1][0] if live else 0.0,
        "delivered_per_s": follower.rates[-1][1] if live else 0.0,
        "history": [round(delivered, 1) for _, delivered in follower.rates],
        "refused": sum(count for what, count in status.counts.items() if what.startswith("refused")),
        "retransmissions": status.counts.get("retransmissions", 0),
        "heard_s": now - follower.heard_at,
    }


def application(board: Board, hosts: frozenset[str]) -> web.Application:
    """The pages: the dashboard itself, its events, and the same as JSON for a script."""
    document = page(
        "Antiphon: a live group",
        Markup(asset("dashboard.html")),
        script=asset("dashboard.js"),
        style=asset("dashboard.css"),
    )

    @web.middleware
    async def guard(request: web.Request, handler: Any) -> web.StreamResponse:
        # a page of another site may not read this one through a name of its own that leads here
        if request.host.rsplit(":", 1)[0].strip("[]") not in hosts:
            raise web.HTTPForbidden(text="this dashboard answers to its own address only\n")
        response: web.StreamResponse = await handler(request)
        return response

    async def index(_: web.Request) -> web.Response:
        return web.Response(
            text=document,
            content_type="text/html",
            headers={
                "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
                "connect-src 'self'; img-src data:"
            },
        )

    async def state(_: web.Request) -> web.Response:
        return web.json_response(board.show())

    async def events(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await response.prepare(request)
        sent = -1
        with contextlib.suppress(ConnectionError):  # the browser went away
            while True:
                if board.version != sent:
                    sent = board.version
                    await response.write(b"data: " + msgspec.json.encode(board.show()) + b"\n\n")
                await asyncio.sleep(_PUSH_S)
        return response

    made = web.Application(middlewares=[guard])
    made.add_routes([web.get("/", index), web.get("/state", state), web.get("/events", events)])

    async def work(_: web.Application) -> Any:
        tasks = [asyncio.create_task(follower.follow(board)) for follower in board.followers]
        tasks.append(asyncio.create_task(_tick(board)))
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    made.cleanup_ctx.append(work)
    return made


async def _tick(board: Board) -> None:
    while True:
        if board.watched is not None:
            await asyncio.to_thread(board.watched.read)
        board.tick()
        await asyncio.sleep(1.0)


async def serve(board: Board, listen: str, ready: Any) -> None:
    """Serve until cancelled; `ready` is told the page's address."""
    host, port = parse(listen, "--listen", port_min=0)
    hosts = frozenset({host, "localhost", "127.0.0.1", "::1"})
    runner = web.AppRunner(application(board, hosts), access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as error:
            raise UsageError(f"--listen: {listen}: {error.strerror or error}; choose another port") from None
        port = runner.addresses[0][1]
        ready(f"http://{f'[{host}]' if ':' in host else host}:{port}/")
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
