"""The server of `antiphon explore`: answers a page's questions about runs, windows and messages, one at a time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web
from markupsafe import Markup

from antiphon.diagram.links import Message
from antiphon.diagram.page import DIAGRAM_SCRIPT, DIAGRAM_STYLE
from antiphon.errors import UsageError
from antiphon.report.diagram_window import parse_members
from antiphon.report.explore.explorer import Explorer
from antiphon.report.local_server import page_at_root
from antiphon.web.page import asset, page


class FoundMessage(msgspec.Struct, frozen=True):
    """Where a message is; no `message` if there is none in that direction."""

    message: str | None
    start: int = 0
    end: int = 0


class NoAnswer(msgspec.Struct, frozen=True):
    """Why a question has no answer."""

    error: str


def application(explorer: Explorer, hosts: frozenset[str]) -> web.Application:
    """The page, and the answers to its questions."""
    document = page(
        f"Explore {explorer.trace}",
        Markup(asset("explore.html")),
        script=DIAGRAM_SCRIPT + asset("strip.js") + asset("explore.js"),
        style=DIAGRAM_STYLE + asset("strip.css") + asset("explore.css"),
    )
    reading = asyncio.Lock()  # files are read by one thread at a time

    def answering(answer: Callable[[web.Request], Any]) -> Callable[[web.Request], Any]:
        async def handler(request: web.Request) -> web.Response:
            try:
                async with reading:
                    found, status = await asyncio.to_thread(answer, request), 200
            except UsageError as error:
                found, status = NoAnswer(str(error)), 400
            except OSError as error:
                said = f"the rows cannot be read any more ({error.strerror or error}); is the trace still there?"
                found, status = NoAnswer(said), 400
            return web.Response(body=msgspec.json.encode(found), content_type="application/json", status=status)

        return handler

    def overview(request: web.Request) -> Any:
        return explorer.run(request.query.get("run")).overview(explorer)

    def window(request: web.Request) -> Any:
        run = explorer.run(request.query.get("run"))
        start, end = (_number(request, name) for name in ("from", "to"))
        members, focus = request.query.get("members"), request.query.get("focus")
        return run.window(
            start, end, parse_members(members, "members") if members else None, _message(focus) if focus else None
        )

    def message(request: web.Request) -> Any:
        run = explorer.run(request.query.get("run"))
        named = request.query.get("message")
        if named:
            wanted: Message | None = _message(named)
        else:
            backwards = request.query.get("direction") == "previous"
            wanted = run.message_near(_number(request, "at"), backwards=backwards)
        if wanted is None:
            return FoundMessage(None)
        start, end = run.around_message(wanted)
        return FoundMessage(f"{wanted[0]}:{wanted[1]}", start, end)

    made = page_at_root(document, hosts)
    made.add_routes(
        [
            web.get("/overview", answering(overview)),
            web.get("/window", answering(window)),
            web.get("/message", answering(message)),
        ]
    )
    return made


def _number(request: web.Request, name: str) -> int:
    text = request.query.get(name, "")
    if not re.fullmatch(r"-?\d{1,18}", text):
        raise UsageError(f"{name} must be a whole number of nanoseconds, not {text!r}")
    return int(text)


def _message(text: str) -> Message:
    found = re.fullmatch(r"\s*(-?\d{1,9}):(\d{1,18})\s*", text)
    if found is None:
        raise UsageError(f"{text}: write a message as SENDER:SEQ, such as 2:5")
    return int(found[1]), int(found[2])
