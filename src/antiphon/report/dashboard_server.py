"""The live page's server: pushes what a `Board` knows to browsers, and serves it as JSON to scripts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

import msgspec
from aiohttp import web
from markupsafe import Markup

from antiphon.report.live_board import Board
from antiphon.report.local_server import page_at_root
from antiphon.web.page import asset, page

_PUSH_S: Final = 0.25


def application(board: Board, hosts: frozenset[str]) -> web.Application:
    """The pages: the dashboard itself, its events, and the same as JSON for a script."""
    document = page(
        "Antiphon: a live group",
        Markup(asset("dashboard.html")),
        script=asset("strip.js") + asset("dashboard.js"),
        style=asset("strip.css") + asset("dashboard.css"),
    )
    stopping = asyncio.Event()

    async def state(_: web.Request) -> web.Response:
        return web.Response(body=msgspec.json.encode(board.show()), content_type="application/json")

    async def events(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await response.prepare(request)
        sent = -1
        with contextlib.suppress(ConnectionError):  # the browser went away
            while not stopping.is_set():
                if board.version != sent:
                    sent = board.version
                    await response.write(b"data: " + msgspec.json.encode(board.show()) + b"\n\n")
                await asyncio.sleep(_PUSH_S)
        return response

    async def end_streams(_: web.Application) -> None:
        stopping.set()

    made = page_at_root(document, hosts)
    made.on_shutdown.append(end_streams)
    made.add_routes([web.get("/state", state), web.get("/events", events)])

    async def work(_: web.Application) -> AsyncIterator[None]:
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
