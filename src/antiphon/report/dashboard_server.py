"""The live page's server: pushes what a `Board` knows to browsers, and serves it as JSON to scripts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import msgspec
from aiohttp import web
from markupsafe import Markup

from antiphon.errors import UsageError
from antiphon.live.addresses import parse
from antiphon.report.live_board import Board
from antiphon.web.page import asset, page

_PUSH_S: Final = 0.25
_GRACE_S: Final = 0.5  # at the end, for answers under way; a page that does not read is cut off then


def application(board: Board, hosts: frozenset[str]) -> web.Application:
    """The pages: the dashboard itself, its events, and the same as JSON for a script."""
    document = page(
        "Antiphon: a live group",
        Markup(asset("dashboard.html")),
        script=asset("dashboard.js"),
        style=asset("dashboard.css"),
    )

    stopping = asyncio.Event()

    @web.middleware
    async def guard(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        # a page of another site may not read this one through a name of its own that leads here
        if request.host.rsplit(":", 1)[0].strip("[]") not in hosts:
            raise web.HTTPForbidden(text="this dashboard answers to its own address only\n")
        return await handler(request)

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

    made = web.Application(middlewares=[guard])
    made.on_shutdown.append(end_streams)
    made.add_routes([web.get("/", index), web.get("/state", state), web.get("/events", events)])

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


async def serve(board: Board, listen: str, ready: Callable[[str], None], stop: asyncio.Event) -> None:
    """Serve until `stop` is set; `ready` is told the page's address."""
    host, port = parse(listen, "--listen", port_min=0)
    hosts = frozenset({host, "localhost", "127.0.0.1", "::1"})
    runner = web.AppRunner(application(board, hosts), access_log=None, shutdown_timeout=_GRACE_S)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as error:
            raise UsageError(f"--listen: {listen}: {error.strerror or error}; choose another port") from None
        port = runner.addresses[0][1]
        ready(f"http://{f'[{host}]' if ':' in host else host}:{port}/")
        await stop.wait()
    finally:
        await runner.cleanup()
