"""`antiphon dashboard`: a live page of a running group."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path

from antiphon.errors import UsageError, require

_LOOPBACK = ("127.0.0.1", "localhost", "::1")

_EXAMPLES = """example:
  antiphon join orders --bind 127.0.0.1:7001 --peer 127.0.0.1:7002 --status-at 127.0.0.1:7101
  antiphon join orders --bind 127.0.0.1:7002 --peer 127.0.0.1:7001 --status-at 127.0.0.1:7102
  antiphon dashboard --member 127.0.0.1:7101 --member 127.0.0.1:7102

An application says antiphon.join(..., status_at="127.0.0.1:7101"). With --watch, the alarms of
antiphon watch are shown too. Ctrl-C ends it.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "--member",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="where a member publishes its status; repeat (one is enough to see the group through its eyes)",
    )
    parser.add_argument("--watch", type=Path, metavar="DIR", help="the checkpoint of an antiphon watch: its alarms")
    parser.add_argument(
        "--listen",
        default="127.0.0.1:8765",
        metavar="HOST:PORT",
        help="where the page is served (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Serve the page until the user stops it."""
    import asyncio

    if not args.member and args.watch is None:
        raise UsageError("nothing to show; name a member's status address (--member) or a watch's checkpoint (--watch)")
    if args.watch is not None and not args.watch.is_dir():
        raise UsageError(f"--watch: {args.watch} is no folder; give the --checkpoint of antiphon watch")
    require("aiohttp")
    from antiphon.commands.stop_signals import stop_event
    from antiphon.report.dashboard_server import serve
    from antiphon.report.live_board import Board, Follower, Watched

    board = Board(map(Follower, args.member), None if args.watch is None else Watched(args.watch))

    def ready(address: str) -> None:
        print(json.dumps({"listening": address}) if args.json else f"the page is at {address} (Ctrl-C ends it)")
        sys.stdout.flush()
        if args.listen.rpartition(":")[0].strip("[]") not in _LOOPBACK:
            print("antiphon dashboard: anyone who can reach this address sees the page", file=sys.stderr)

    async def serve_until_stopped() -> None:
        await serve(board, args.listen, ready, stop_event())

    with contextlib.suppress(KeyboardInterrupt):  # before there was a loop to take it
        asyncio.run(serve_until_stopped())
    return 0
