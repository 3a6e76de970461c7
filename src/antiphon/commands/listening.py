"""Serving a page until the user stops it: the option that says where, and what is printed."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiohttp import web


def add_listen_option(parser: argparse.ArgumentParser, default: str) -> None:
    """Declare where the page is served."""
    parser.add_argument(
        "--listen", default=default, metavar="HOST:PORT", help="where the page is served (default: %(default)s)"
    )


def serve_until_stopped(
    args: argparse.Namespace, application: Callable[[frozenset[str]], web.Application], about: Mapping[str, Any]
) -> None:
    """Serve a page; say its address, as JSON with what it is about if that is asked for."""
    import asyncio

    from antiphon.commands.stop_signals import stop_event
    from antiphon.report.local_server import LOOPBACK, serve

    def ready(address: str) -> None:
        said = {"listening": address, **about}
        print(json.dumps(said) if args.json else f"the page is at {address} (Ctrl-C ends it)")
        sys.stdout.flush()
        if args.listen.rpartition(":")[0].strip("[]") not in LOOPBACK:
            print(f"antiphon {args.command}: anyone who can reach this address sees the page", file=sys.stderr)

    async def until_stopped() -> None:
        await serve(application, args.listen, ready, stop_event())

    with contextlib.suppress(KeyboardInterrupt):  # before there was a loop to take it
        asyncio.run(until_stopped())
