"""The application's state on its way from an older member to a joiner, in bounded memory.

`snapshot` may give bytes, a path or an open binary file, or an async iterator of bytes; the joiner's `restore` is given
the like: bytes, an open binary file, or an async iterator. What does not fit into some memory lies in a temporary file
on both sides, which a thread writes: a busy disk must not make a member look dead. Behind the application's bytes come
those of large messages that had begun when the view began.
"""

from __future__ import annotations

import asyncio
import inspect
import io
import os
import struct
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor, Future
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, TypeAlias, cast

import msgspec

from antiphon.errors import UsageError, UsageTypeError
from antiphon.live.anomalies import Anomalies
from antiphon.live.spill import MEMORY_BYTES_MAX, Spill
from antiphon.protocol.fragment import Fragment
from antiphon.protocol.machine import Chunk, ReadChunk, Release, RestoreChunk, Snapshot

_PIECE_BYTES: Final = 256 << 10  # is copied in one turn of the loop
_PIECES_WAITING_MAX: Final = 8  # if the disk is slower than the network, beyond this the event loop waits for the disk
_FOOTER: Final = struct.Struct(">cI")  # kind, length of what had begun, which stands before it
_KINDS: Final[dict[bytes, Literal["bytes", "file", "iterator"]]] = {b"b": "bytes", b"f": "file", b"i": "iterator"}
_decode_begun = msgspec.msgpack.Decoder(list[tuple[int, Fragment]]).decode

State: TypeAlias = bytes | PathLike[str] | BinaryIO | AsyncIterable[bytes]  # what `snapshot` gives
Begun: TypeAlias = list[tuple[int, Fragment]]  # fragments of messages that had begun, each with its sender


class Spool:
    """Bytes in a row: in memory, and beyond some in a temporary file."""

    def __init__(self, *, told_apart: bool = False) -> None:
        """`told_apart`: its digest will be asked for."""
        self._bytes = Spill()
        self._digest = blake2b(digest_size=16) if told_apart else None
        self._is_on_disk = False
        self.size = 0

    def append(self, data: bytes) -> None:
        """Write behind what was written before."""
        self._bytes.write(self.size, data)
        if self._digest is not None:
            self._digest.update(data)
        self.size += len(data)
        self._is_on_disk = self.size > MEMORY_BYTES_MAX

    def read(self, offset: int, length: int = -1) -> bytes:
        """Return bytes from somewhere."""
        return self._bytes.read(offset, length)

    def truncate(self, size: int) -> None:
        """Let all but the first bytes go."""
        self._bytes.truncate(size)
        self.size = size

    def file(self) -> BinaryIO:
        """Return the bytes as a file of its own, at its beginning."""
        return self._bytes.reopened() if self._is_on_disk else io.BytesIO(self._bytes.read(0))

    @property
    def digest(self) -> bytes:
        """What tells these bytes from others."""
        assert self._digest is not None
        return self._digest.digest()

    def close(self) -> None:
        """Let the bytes go."""
        self._bytes.close()


class ArrivingState:
    """A state that comes from another member, written piece by piece as the disk takes it."""

    def __init__(self, worker: Executor) -> None:
        self._spool, self._worker = Spool(), worker
        self._collected: list[bytes] = []
        self._collected_bytes = 0
        self._waiting: deque[Future[None]] = deque()  # for what is being written, the oldest first

    def append(self, data: bytes) -> None:
        """Put bytes behind those that came before."""
        self._collected.append(data)
        self._collected_bytes += len(data)
        if self._collected_bytes >= _PIECE_BYTES:
            self._write()

    def _write(self) -> None:
        piece, self._collected, self._collected_bytes = b"".join(self._collected), [], 0
        self._waiting.append(self._worker.submit(self._spool.append, piece))
        while self._waiting and (self._waiting[0].done() or len(self._waiting) > _PIECES_WAITING_MAX):
            self._waiting.popleft().result()

    def whole(self) -> Spool:
        """Return all that came, once it is written."""
        self._write()
        while self._waiting:
            self._waiting.popleft().result()
        return self._spool

    def close(self) -> None:
        """Let the bytes go, once what was begun is written."""
        self._worker.submit(self._spool.close)


class StateKeeper:
    """Keeps states that joiners may ask for, and what has come of one that is due here."""

    def __init__(
        self,
        snapshot: Callable[[], Any] | None,
        restore: Callable[[Any], Any] | None,
        drive: Callable[[Snapshot | Chunk], None],
        anomalies: Anomalies,
        worker: Executor,
    ) -> None:
        """`drive` gives the machine what it asked for; `worker` writes files, one piece after the other."""
        self._snapshot, self._restore, self._drive, self._anomalies = snapshot, restore, drive, anomalies
        self._worker = worker
        self._begun: dict[int, Begun] = {}  # by view, until the application's state is taken
        self._captured: dict[int, Spool] = {}  # by view
        self._received: dict[int, ArrivingState] = {}  # by view
        self._whole: dict[int, tuple[Literal["bytes", "file", "iterator"], Spool]] = {}  # by view, what has all come
        self._copying: set[asyncio.Task[None]] = set()

    @property
    def brings_up_to_date(self) -> bool:
        """Whether joiners are given the application's state."""
        return self._snapshot is not None

    # As one who was there before

    @property
    def has_taken(self) -> bool:
        """Whether the application has given a state that somebody may need."""
        return bool(self._captured)

    def due(self, view: int, begun: Begun) -> None:
        """Note what had begun when the view began, and that the application's state is to be taken later."""
        self._begun[view] = begun

    def capture(self, view: int) -> None:
        """Take the application's state, now that it has seen everything that came before the view."""
        assert self._snapshot is not None
        if view not in self._begun:
            return  # everyone has the state already, from others whose applications were quicker
        try:
            given = self._snapshot()
            kind, source = _opened(given)
        except BaseException as error:  # the application's, which hears of it where it reads
            self._fail(view, error)
            raise
        begun = msgspec.msgpack.encode(self._begun.pop(view, []))
        end = begun + _FOOTER.pack(kind, len(begun))
        spool = self._captured[view] = Spool(told_apart=True)
        if isinstance(source, bytes) and len(source) <= _PIECE_BYTES:
            spool.append(source)
            self._offer(view, spool, end)
        else:
            source = io.BytesIO(source) if isinstance(source, bytes) else source
            copying = self._copy(view, spool, source, end, closes=isinstance(given, PathLike))
            task = asyncio.get_running_loop().create_task(copying)
            self._copying.add(task)
            task.add_done_callback(self._copying.discard)

    async def _copy(
        self, view: int, spool: Spool, source: BinaryIO | AsyncIterable[bytes], end: bytes, *, closes: bool
    ) -> None:
        """Copy a state piece by piece while the group goes on; `closes`: its file was opened here."""
        try:
            async for piece in source if isinstance(source, AsyncIterable) else _pieces(source):
                if not isinstance(piece, bytes | bytearray | memoryview):
                    raise UsageTypeError(f"snapshot: must yield bytes, not {type(piece).__name__}")
                if self._captured.get(view) is not spool:
                    return  # nobody needs it any more
                for start in range(0, len(piece), _PIECE_BYTES):
                    written = self._worker.submit(spool.append, bytes(piece[start : start + _PIECE_BYTES]))
                    await (asyncio.sleep(0) if written.done() else asyncio.wrap_future(written))
                    written.result()  # a state that lacks a piece is none
        except (Exception, asyncio.CancelledError) as error:  # an iterator may wait for what somebody cancelled
            if self._captured.get(view) is spool:
                self._fail(view, error)
        else:
            if self._captured.get(view) is spool:
                self._offer(view, spool, end)
        finally:
            if closes:
                cast(BinaryIO, source).close()

    def _fail(self, view: int, error: BaseException) -> None:
        """Say that there is no state to give: joiners ask another member."""
        self._anomalies.note("snapshots-failed", repr(error))
        self.release(Release(view))
        self._drive(Snapshot(view, None))

    def _offer(self, view: int, spool: Spool, end: bytes) -> None:
        spool.append(end)
        self._drive(Snapshot(view, spool.size, spool.digest))

    def read(self, wanted: ReadChunk) -> None:
        """Give part of a state that was captured, if it is still there."""
        spool = self._captured.get(wanted.view)
        if spool is None:
            return
        try:
            data = spool.read(wanted.offset, wanted.length)
        except UsageError as error:
            self._fail(wanted.view, error)
        else:
            self._drive(Chunk(wanted.view, wanted.offset, data, wanted.to))

    def release(self, release: Release) -> None:
        """Let a state go that nobody needs any more."""
        self._begun.pop(release.view, None)
        spool = self._captured.pop(release.view, None)
        if spool is not None:
            self._worker.submit(spool.close)  # to let a large file go takes a second

    # As a joiner

    def receive(self, chunk: RestoreChunk) -> None:
        """Keep the next part of a state."""
        if chunk.offset == 0:
            old = self._received.pop(chunk.view, None)
            if old is not None:
                old.close()
            self._received[chunk.view] = ArrivingState(self._worker)
        if chunk.view in self._received:
            self._received[chunk.view].append(chunk.data)

    def received(self, view: int) -> Begun:
        """Return what had begun when the view began, now that all of the state has come."""
        spool = self._received.pop(view).whole()
        kind, length = _FOOTER.unpack(spool.read(spool.size - _FOOTER.size))
        size = spool.size - _FOOTER.size - length
        begun = _decode_begun(spool.read(size, length))
        spool.truncate(size)
        self._whole[view] = _KINDS[kind], spool
        return begun

    async def restore(self, view: int) -> None:
        """Give the application the state that has come; it can be given again, until the application has taken it."""
        assert self._restore is not None
        kind, spool = self._whole[view]
        given: bytes | BinaryIO | AsyncIterator[bytes]
        with spool.file() as file:
            match kind:
                case "bytes":
                    given = file.read()
                case "file":
                    given = file
                case "iterator":
                    given = _pieces(file)
            done = self._restore(given)
            if isinstance(done, Awaitable):
                await done
        if self._whole.pop(view, None) is not None:  # else the group was left while the application took it over
            self._worker.submit(spool.close)

    def close(self) -> None:
        """Let everything go."""
        for task in self._copying:
            task.cancel()
        for captured in self._captured.values():
            self._worker.submit(captured.close)
        for arriving in self._received.values():
            arriving.close()
        for _, whole in self._whole.values():
            self._worker.submit(whole.close)
        self._captured, self._received, self._whole = {}, {}, {}
        self._worker.shutdown(wait=False)


def _opened(state: object) -> tuple[bytes, bytes | BinaryIO | AsyncIterable[bytes]]:
    """Return the kind of a state, and what its bytes are read from; a path is opened now, so that it may change."""
    if isinstance(state, bytes | bytearray | memoryview):
        return b"b", bytes(state)
    if isinstance(state, PathLike):
        try:
            return b"f", Path(os.fspath(state)).open("rb")
        except (OSError, ValueError, TypeError) as error:
            raise UsageError(f"snapshot: {state!r:.200} cannot be read: {error}") from error
    if isinstance(state, AsyncIterable):
        return b"i", state
    if hasattr(state, "read"):
        return b"f", cast(BinaryIO, state)
    if inspect.iscoroutine(state):
        state.close()
    raise UsageTypeError(
        f"snapshot: must give bytes, a path, an open binary file or an async iterator, not {type(state).__name__}"
    )


async def _pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    """Yield what a file holds, and let the loop go on in between."""
    while piece := file.read(_PIECE_BYTES):
        yield piece
        await asyncio.sleep(0)
