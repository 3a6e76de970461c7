"""`antiphon dashboard`: a live page of a running group."""

from __future__ import annotations

import argparse
import functools
from pathlib import Path

from antiphon.commands.listening import add_listen_option, serve_until_stopped
from antiphon.errors import UsageError, require

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
    add_listen_option(parser, "127.0.0.1:8765")


def run(args: argparse.Namespace) -> int:
    """Serve the page until the user stops it."""
    if not args.member and args.watch is None:
        raise UsageError("nothing to show; name a member's status address (--member) or a watch's checkpoint (--watch)")
    if args.watch is not None and not args.watch.is_dir():
        raise UsageError(f"--watch: {args.watch} is no folder; give the --checkpoint of antiphon watch")
    require("aiohttp")
    from antiphon.report.dashboard_server import application
    from antiphon.report.live_board import Board, Follower, Watched

    board = Board(map(Follower, args.member), None if args.watch is None else Watched(args.watch))
    serve_until_stopped(args, functools.partial(application, board), {})
    return 0
