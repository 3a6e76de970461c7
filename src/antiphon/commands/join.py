"""`antiphon join`: take part in a live group from a terminal: lines in, ordered lines out."""

from __future__ import annotations

import argparse
import json
import os
import select
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from antiphon.errors import UsageError

if TYPE_CHECKING:
    import asyncio
    import queue

    from antiphon.live.events import Notice, Status, ViewChange
    from antiphon.live.group import Group

_LINE_BYTES_MAX = 16 << 20  # as `message_bytes_max`
_LAST_LINES_S = 1.0  # may take until they are written, once the user stops: nobody may read them
_EXAMPLES = """examples:
  antiphon join orders --bind 127.0.0.1:7001 --peer 127.0.0.1:7002 --peer 127.0.0.1:7003
  antiphon join orders --bind 10.0.0.5:7001 --discover 239.1.2.3:7100 --members 3 --key-file group.key
  tail -f log | antiphon join logs --bind 10.0.0.5:7001 --peer 10.0.0.6:7001 --ordering causal --key-file group.key

Every line of the input is multicast; every line that any member sends comes out, in the group's order, after its
sender's address. A key file holds 16, 24 or 32 random bytes, as they are or in hexadecimal:
  openssl rand -hex 16 > group.key
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    from antiphon.live.settings import Settings, words

    said, usual = words(), Settings("", bind="")

    def setting(flag: str, keyword: str, add: str = "", **how: Any) -> None:
        parser.add_argument(flag, help=f"{said[keyword]}{add}".replace("`", ""), **how)

    def choice(flag: str, keyword: str, **how: Any) -> None:
        setting(flag, keyword, " (default: %(default)s)", default=getattr(usual, keyword), **how)

    parser.epilog = _EXAMPLES
    setting("group", "group")
    setting("--bind", "bind", required=True, metavar="HOST:PORT")
    setting("--address", "address", metavar="HOST:PORT")
    setting("--peer", "peers", "; give --peer once for each", action="append", default=[], metavar="HOST:PORT")
    choice("--ordering", "ordering", metavar="NAME")
    choice("--stability", "stability", metavar="NAME")
    setting("--safe", "safe", action="store_true")
    parser.add_argument("--fixed", action="store_true", help="the members never change, and all are waited for")
    choice("--slow", "slow", choices=["block", "drop", "lag"])
    choice("--partition", "partition", choices=["majority", "each-side"])
    setting("--key-file", "key", type=Path, metavar="FILE")
    setting("--discover", "discover", metavar="HOW")
    setting("--members", "members", type=int, metavar="N")
    setting("--name", "name")
    setting("--multicast", "multicast", metavar="GROUP:PORT")
    setting("--state", "state", type=Path, metavar="FOLDER")
    setting("--trace", "trace", type=Path, metavar="FOLDER")
    setting("--trace-payloads", "trace_payloads", action="store_true")
    parser.add_argument("--stay", action="store_true", help="go on listening when the input has ended")
    parser.add_argument("--count", type=int, metavar="LINES", help="leave after so many lines have come out")
    setting("--status-at", "status_at", metavar="HOST:PORT")
    parser.add_argument("--status", action="store_true", help="show the group's state on stderr, every second")


def run(args: argparse.Namespace) -> int:
    """Join, carry lines both ways until the input ends or the user stops, leave."""
    import asyncio

    if args.count is not None and args.count < 1:
        raise UsageError(f"--count: at least 1, not {args.count}")
    screen = _Screen(sys.stderr.isatty()) if args.status else None
    try:
        return asyncio.run(_take_part(args, _settings(args, screen)))
    except KeyboardInterrupt:
        return 0  # before the group was there
    finally:
        if screen is not None:
            screen.close()


def _settings(args: argparse.Namespace, screen: _Screen | None) -> dict[str, Any]:
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
        "key": None if args.key_file is None else read_key(args.key_file),
        "discover": args.discover,
        "members": args.members,
        "name": args.name,
        "multicast": args.multicast,
        "state": args.state,
        "trace": args.trace,
        "trace_payloads": args.trace_payloads,
        "status_at": args.status_at,
        "metrics": None if screen is None else screen.show,
    }


def read_key(path: Path) -> bytes:
    """Read a group key: its bytes as they are, or in hexadecimal, with or without a newline at the end."""
    from antiphon.live.session import KEY_LENGTHS

    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UsageError(f"--key-file: {path}: {error.strerror}; write 16 random bytes there") from None
    try:
        digits = bytes.fromhex(raw.decode())
    except ValueError:
        digits = b""
    for key in (digits, raw):  # digits first: 32 of them, without a newline at the end, are as long as a key
        if len(key) in KEY_LENGTHS:
            return key
    if digits:
        raise UsageError(f"--key-file: {path}: 16, 24 or 32 bytes make a key, not {len(digits)}")
    raise UsageError(f"--key-file: {path}: neither 16, 24 or 32 bytes nor hexadecimal")


async def _take_part(args: argparse.Namespace, settings: dict[str, Any]) -> int:
    import asyncio

    import antiphon
    from antiphon.commands.stop_signals import stop_event

    stop = stop_event()
    joining = antiphon.join(args.group, **settings)
    entering = asyncio.create_task(joining.__aenter__())
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({entering, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not entering.done():
        entering.cancel()
        await asyncio.gather(entering, return_exceptions=True)
        return 0
    group = await entering
    taken: int | None = None
    try:
        reading = asyncio.create_task(_carry_lines_in(group, args.stay))
        writing = asyncio.create_task(_carry_lines_out(group, args))
        await asyncio.wait({reading, writing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            reading.result()
    finally:
        await group.leave()
        reading.cancel()
        taken = await _written(writing, stopping)
        stopping.cancel()
    if args.json and taken is not None:
        print(json.dumps({"left": args.group, "delivered": taken}))
    return 0


async def _written(writing: asyncio.Task[int], stopping: asyncio.Task[Any]) -> int | None:
    """Wait until the last lines are written, and give how many messages; None if the user stops and nobody reads."""
    import asyncio

    await asyncio.wait({writing, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not writing.done():
        await asyncio.wait({writing}, timeout=_LAST_LINES_S)
    if writing.done():
        return writing.result()
    writing.cancel()
    return None


async def _carry_lines_in(group: Group, stay: bool) -> None:
    """Send every line of the input; its thread waits where the group has no room."""
    import asyncio
    import threading
    from concurrent.futures import CancelledError

    from antiphon.live.events import GroupClosed

    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def read() -> None:
        rest = bytearray()
        try:
            while chunk := os.read(0, 65_536):  # not sys.stdin, whose lock would be held at the end
                rest += chunk
                if b"\n" in chunk:
                    *lines, end = bytes(rest).split(b"\n")
                    rest = bytearray(end)
                    send(lines)
                elif len(rest) > _LINE_BYTES_MAX:
                    raise UsageError(f"input: a line is longer than {_LINE_BYTES_MAX} bytes; break it up")
            send([bytes(rest)] if rest else [])
            tell(ended.set_result, None)
        except (UsageError, OSError) as error:
            tell(ended.set_exception, error)
        except (GroupClosed, CancelledError):
            pass  # that is told elsewhere

    def send(lines: list[bytes]) -> None:
        if lines:
            asyncio.run_coroutine_threadsafe(group.send_many(lines), loop).result()

    def tell(how: Callable[[Any], None], what: object) -> None:
        _tell(ended, how, what)

    threading.Thread(target=read, name="antiphon-input", daemon=True).start()
    await ended
    if stay:
        await asyncio.Event().wait()


async def _carry_lines_out(group: Group, args: argparse.Namespace) -> int:
    """Write what the group delivers, in its order; give the number of messages."""
    from antiphon.live.events import Batch

    output, taken = _Output(), 0
    async for event in group.batches():
        if isinstance(event, Batch):
            payloads = event.payloads[: None if args.count is None else args.count - taken]
            taken += len(payloads)
            lines = [_line(event.sender, payload, event.view, args.json) for payload in payloads]
        else:
            lines = [_line_of_group(event, args.json)]
        await output.write(lines)
        if taken == args.count:
            break
    return taken


class _Output:
    """The output, written by a thread of its own: a pipe that nobody reads, or a terminal that was stopped, is full.

    The event loop must not wait for it, or the others would take this member for dead.
    """

    def __init__(self) -> None:
        import queue
        import threading

        self._jobs: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        threading.Thread(target=self._write_all, name="antiphon-output", daemon=True).start()

    async def write(self, lines: list[str]) -> None:
        """Write lines, and wait until they are."""
        import asyncio

        written = asyncio.get_running_loop().create_future()
        text = "".join(f"{line}\n" for line in lines)
        self._jobs.put((text.encode(sys.stdout.encoding, "backslashreplace"), written))
        await written

    def _write_all(self) -> None:
        while True:
            rest, written = self._jobs.get()
            try:
                while rest:
                    rest = rest[os.write(1, rest) :]  # not sys.stdout, whose lock would be held at the end
            except OSError as error:
                _tell(written, written.set_exception, error)
            else:
                _tell(written, written.set_result, None)


def _tell(future: asyncio.Future[None], how: Callable[[Any], None], what: object) -> None:
    """Let a future of the loop know, from another thread, unless it knows already."""
    with suppress(RuntimeError):  # the loop has ended before
        future.get_loop().call_soon_threadsafe(lambda: None if future.done() else how(what))


def _line(sender: str, payload: bytes, view: int, as_json: bool) -> str:
    text = payload.decode(errors="replace")
    return json.dumps({"sender": sender, "line": text, "view": view}) if as_json else f"{sender}\t{text}"


def _line_of_group(event: ViewChange | Notice, as_json: bool) -> str:
    from antiphon.live.events import ViewChange

    if isinstance(event, ViewChange):
        if as_json:
            return json.dumps({"view": event.view, "members": event.members})
        return f"# view {event.view}: {', '.join(event.members)}"
    return json.dumps({"notice": event.what}) if as_json else f"# {event.what}"


class _Screen:
    """The group's state: at the foot of a terminal, above which lines come and go; elsewhere, line after line."""

    def __init__(self, terminal: bool) -> None:
        self._terminal = terminal
        self._region = (0, 0)  # the terminal's height, and how much of it is the foot
        self._delivered: tuple[float, int] | None = None  # when last looked, and how many there were

    def show(self, status: Status) -> None:
        """Draw, unless the terminal was stopped: the event loop must not wait for it."""
        if not select.select([], [sys.stderr], [], 0)[1]:
            return
        lines = self._lines(status)
        if self._terminal:
            self._draw(lines)
        else:
            sys.stderr.write("\n".join(lines) + "\n")
        sys.stderr.flush()

    def close(self) -> None:
        """Give the whole terminal back."""
        height, foot = self._region
        if foot:
            sys.stderr.write(f"\0337\033[r\033[{height - foot + 1};1H\033[J\0338")
            sys.stderr.flush()

    def _lines(self, status: Status) -> list[str]:
        now, before = time.monotonic(), self._delivered
        self._delivered = (now, status.delivered)
        rate = 0.0 if before is None else (status.delivered - before[1]) / max(0.1, now - before[0])
        waiting = status.waiting_bytes + status.inbox_bytes
        behind = [
            f"  {member}: {'silent' if lacks is None else f'lacks {lacks} bursts'}"
            + (", holds the others back" if member == status.slowest else "")
            for member, lacks in status.lag.items()
        ]
        members = ", ".join(status.members) or "none yet"
        return [
            f"{status.group}: {status.standing}, view {status.view}, members: {members}",
            f"  {status.sent} sent, {status.delivered} delivered ({rate:,.0f}/s), "
            f"{status.held} bursts held, {waiting:,} bytes waiting",
            *behind,
        ]

    def _draw(self, lines: list[str]) -> None:
        size = os.get_terminal_size(sys.stderr.fileno())
        width, height = size.columns or 80, size.lines or 24  # some do not tell
        foot = min(len(lines), max(2, height // 3))
        out = []
        if self._region[0] != height or self._region[1] < foot:  # never smaller, so that nothing jumps
            out.append("\n" * foot + f"\033[{foot}A\0337\033[1;{height - foot}r\0338")
            self._region = (height, foot)
        foot = self._region[1]
        first = height - foot + 1
        shown = [*lines, *[""] * foot][:foot]
        out.append("\0337")
        out += [
            f"\033[{first + number};1H\033[2K\033[{7 if number == 0 else 2}m{line[:width]}\033[m"
            for number, line in enumerate(shown)
        ]
        sys.stderr.write("".join(out) + "\0338")
