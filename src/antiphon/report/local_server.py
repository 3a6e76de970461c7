"""A page for the user of this machine: served at one address, and only to requests for that address."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from antiphon.errors import UsageError
from antiphon.live.addresses import parse

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_GRACE_S: Final = 0.5  # at the end, for answers under way; a page that does not read is cut off then
_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:"
)


def page_at_root(document: str, hosts: frozenset[str]) -> web.Application:
    """Return an application that serves a page, which can load nothing but what this application answers."""

    @web.middleware
    async def guard(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        # a page of another site may not read this one through a name of its own that leads here
        if request.host.rsplit(":", 1)[0].strip("[]") not in hosts:
            raise web.HTTPForbidden(text="this page answers to its own address only\n")
        return await handler(request)

    async def index(_: web.Request) -> web.Response:
        return web.Response(text=document, content_type="text/html", headers={"Content-Security-Policy": _POLICY})

    made = web.Application(middlewares=[guard])
    made.add_routes([web.get("/", index)])
    return made


async def serve(
    application: Callable[[frozenset[str]], web.Application],
    listen: str,
    ready: Callable[[str], None],
    stop: asyncio.Event,
) -> None:
    """Serve until `stop` is set; `application` is given the names it answers to, `ready` the page's address."""
    host, port = parse(listen, "--listen", port_min=0)
    runner = web.AppRunner(application(frozenset({host, *LOOPBACK})), access_log=None, shutdown_timeout=_GRACE_S)
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
