"""`antiphon join`: take part in a live group from a terminal: lines in, ordered lines out."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from antiphon.errors import UsageError

if TYPE_CHECKING:
    from antiphon.live.events import Event, Status
    from antiphon.live.group import Group

_EXAMPLES = """examples:
  antiphon join orders --bind 127.0.0.1:7001 --peer 127.0.0.1:7002 --peer 127.0.0.1:7003
  tail -f log | antiphon join logs --bind 10.0.0.5:7001 --peer 10.0.0.6:7001 --ordering causal --key-file group.key

Every line of the input is multicast; every line that any member sends comes out, in the group's order, after its
sender's address. A key file holds 16, 24 or 32 random bytes, as they are or in hexadecimal:
  openssl rand -hex 16 > group.key
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = _EXAMPLES
    parser.add_argument("group", help="the group's name")
    parser.add_argument("--bind", required=True, metavar="HOST:PORT", help="own address")
    parser.add_argument("--address", metavar="HOST:PORT", help="own address as the others know it, if another")
    parser.add_argument("--peer", action="append", default=[], metavar="HOST:PORT", help="another member; repeat")
    orderings = "fifo, causal-blocks, co, abcast, tomp, sequencer, or causal, total"
    parser.add_argument("--ordering", default="total", help=orderings)
    parser.add_argument("--stability", default="vector-ack", help="for the orderings that run on recovery")
    parser.add_argument("--safe", action="store_true", help="deliver only what every member holds")
    parser.add_argument("--fixed", action="store_true", help="no views: the members never change")
    parser.add_argument(
        "--slow", choices=["block", "drop", "lag"], default="block", help="what to do with a slow member"
    )
    parser.add_argument(
        "--partition",
        choices=["majority", "each-side"],
        default="majority",
        help="who goes on when the group is cut in two",
    )
    parser.add_argument("--key-file", type=Path, help="the group's key: everything is encrypted and authenticated")
    parser.add_argument("--multicast", metavar="GROUP:PORT", help="IPv4 multicast for what goes to all")
    parser.add_argument("--state", type=Path, help="folder for what must survive a crash")
    parser.add_argument("--trace", type=Path, help="folder for the member's trace")
    parser.add_argument("--stay", action="store_true", help="go on listening when the input has ended")
    parser.add_argument("--count", type=int, help="leave after so many lines have come out")
    parser.add_argument("--status-at", metavar="HOST:PORT", help="where antiphon dashboard may read the status")
    parser.add_argument("--status", action="store_true", help="show the group's state on stderr, every second")


def run(args: argparse.Namespace) -> int:
    """Join, carry lines both ways until the input ends or the user stops, leave."""
    import asyncio

    if args.count is not None and args.count < 1:
        raise UsageError(f"--count: at least 1, not {args.count}")
    try:
        return asyncio.run(_take_part(args, _settings(args)))
    except KeyboardInterrupt:
        return 0  # before the group was there


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    return {
        "bind": args.bind,
        "address": args.address,
        "peers": args.peer,
        "ordering": args.ordering,
        "stability": args.stability,
        "safe": args.safe,
        "views": not args.fixed,
        "slow": args.slow,
        "partition": args.partition,
        "key": None if args.key_file is None else _read_key(args.key_file),
        "multicast": args.multicast,
        "state": args.state,
        "trace": args.trace,
        "status_at": args.status_at,
        "metrics": _Screen(sys.stderr.isatty()).show if args.status else None,
    }


def _read_key(path: Path) -> bytes:
    from antiphon.live.security import KEY_LENGTHS

    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UsageError(f"--key-file: {path}: {error.strerror}; write 16 random bytes there") from None
    if len(raw) in KEY_LENGTHS:
        return raw
    try:
        return bytes.fromhex(raw.decode())
    except ValueError:
        raise UsageError(f"--key-file: {path}: neither 16, 24 or 32 bytes nor hexadecimal") from None


async def _take_part(args: argparse.Namespace, settings: dict[str, Any]) -> int:
    import asyncio

    import antiphon

    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    joining = antiphon.join(args.group, **settings)
    entering = asyncio.create_task(joining.__aenter__())
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({entering, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not entering.done():
        entering.cancel()
        await asyncio.gather(entering, return_exceptions=True)
        return 0
    group = await entering
    taken = 0
    try:
        reading = asyncio.create_task(_carry_lines_in(group, args.stay))
        writing = asyncio.create_task(_carry_lines_out(group, args))
        await asyncio.wait({reading, writing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            reading.result()
    finally:
        await group.leave()
        reading.cancel()
        taken = await writing
        stopping.cancel()
    if args.json:
        print(json.dumps({"left": args.group, "delivered": taken}))
    return 0


async def _carry_lines_in(group: Group, stay: bool) -> None:
    """Send every line of the input; its thread waits where the group has no room."""
    import asyncio
    import threading

    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def read() -> None:
        rest = b""
        while chunk := os.read(0, 65_536):  # not sys.stdin, whose lock would be held at the end
            *lines, rest = (rest + chunk).split(b"\n")
            if not _send(lines):
                return
        if rest:
            _send([rest])
        loop.call_soon_threadsafe(ended.set)

    def _send(lines: list[bytes]) -> bool:
        try:
            if lines:
                asyncio.run_coroutine_threadsafe(group.send_many(lines), loop).result()
        except Exception:
            return False  # the group is gone; that is told elsewhere
        return True

    threading.Thread(target=read, name="antiphon-input", daemon=True).start()
    await ended.wait()
    if stay:
        await asyncio.Event().wait()


async def _carry_lines_out(group: Group, args: argparse.Namespace) -> int:
    """Write what the group delivers, in its order; give the number of messages."""
    from antiphon.live.events import Message

    taken = 0
    async for event in group:
        if isinstance(event, Message):
            taken += 1
        print(_line(event, args.json), flush=True)
        if taken == args.count:
            break
    return taken


def _line(event: Event, as_json: bool) -> str:
    from antiphon.live.events import Message, ViewChange

    if isinstance(event, Message):
        text = event.payload.decode(errors="replace")
        if as_json:
            return json.dumps({"sender": event.sender, "line": text, "view": event.view})
        return f"{event.sender}\t{text}"
    if isinstance(event, ViewChange):
        if as_json:
            return json.dumps({"view": event.view, "members": event.members})
        return f"# view {event.view}: {', '.join(event.members)}"
    return json.dumps({"notice": event.what}) if as_json else f"# {event.what}"


class _Screen:
    """A few lines about the group, drawn in place on a terminal, one after another elsewhere."""

    def __init__(self, in_place: bool) -> None:
        self._in_place, self._height = in_place, 0

    def show(self, status: Status) -> None:
        """Draw."""
        waiting = status.waiting_bytes + status.inbox_bytes
        lines = [
            f"{status.group}: {status.standing}, view {status.view}, {len(status.members)} members, "
            f"{status.held} bursts held, {waiting} bytes waiting",
            *(f"  {member}: {'silent' if lacks is None else f'lacks {lacks}'}" for member, lacks in status.lag.items()),
        ]
        if status.slowest is not None:
            lines.append(f"  waiting for {status.slowest}")
        up = f"\033[{self._height}A\033[J" if self._in_place and self._height else ""
        self._height = len(lines)
        sys.stderr.write(up + "\n".join(lines) + "\n")
        sys.stderr.flush()
