"""Upcalls: what the machine says, turned into what the application sees: events, receipts, its state."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from antiphon.live import burst
from antiphon.live.anomalies import Anomalies, MemberLogger
from antiphon.live.events import Notice, ViewChange
from antiphon.live.inbox import Inbox
from antiphon.live.receipts import Receipts
from antiphon.live.settings import Settings
from antiphon.protocol import machine as protocol
from antiphon.protocol.fragment import Fragment
from antiphon.protocol.machine import (
    Capture,
    Chunk,
    Deliver,
    Drop,
    Install,
    ReadChunk,
    Release,
    Restore,
    RestoreChunk,
    Snapshot,
    Stable,
)
from antiphon.protocol.membership.views import NAMES_MAX, name_of

_State = tuple[bytes, list[tuple[int, Fragment]]]  # the application's, and what large messages have begun
_decode_state = msgspec.msgpack.Decoder(_State).decode


class Upcalls:
    """Takes each effect of the machine that concerns the application, in the order in which the machine said it."""

    def __init__(
        self,
        settings: Settings,
        names: Mapping[int, str],
        drive: Callable[[Snapshot | Chunk], None],
        logger: MemberLogger,
        anomalies: Anomalies,
    ) -> None:
        """`names` are the members' addresses by name; `drive` gives the machine a snapshot that it asked for."""
        self._settings, self._names, self._drive = settings, names, drive
        self._logger, self._anomalies = logger, anomalies
        self.me = -1  # own name, once it is known
        self._reader = burst.BurstReader(settings.message_bytes_max)
        self._begun: dict[int, list[tuple[int, Fragment]]] = {}  # per view with joiners, what had begun by then
        self._captured: dict[int, bytes] = {}  # per view, the state that joiners may ask for
        self._received = bytearray()  # what has come of another's state
        self._restored: dict[int, bytes] = {}  # per view, the application's part of it, once it has come
        self.inbox = Inbox(settings.inbox_bytes_max, listen=settings.listen, at_state=self._at_state)
        self.receipts = Receipts()
        self.members: tuple[int, ...] = ()  # processes
        self.view = 0
        self.messages = 0  # delivered in all
        self.joined: Callable[[], None] = lambda: None  # called when a view begins

    def handlers(self) -> dict[type, Callable[[Any], None]]:
        """Return what is to be done with each kind of effect."""
        return {
            Deliver: self._deliver,
            Stable: self._stable,
            Drop: self._drop,
            Install: self._install,
            protocol.StandingChanged: self._notice,
            Capture: self._capture,
            ReadChunk: self._read_chunk,
            Release: self._release,
            RestoreChunk: self._restore_chunk,
            Restore: self._restore,
        }

    @property
    def broken_bursts(self) -> int:
        """How many bursts or messages could not be used."""
        return self._reader.broken

    def _deliver(self, effect: Deliver) -> None:
        sender = effect.sender
        messages = self._reader.messages(sender, effect.payload)
        if messages:
            self.messages += len(messages)
            self.inbox.put_messages(self._names[sender % NAMES_MAX], messages, self.view)
        if sender % NAMES_MAX == self.me:
            self.receipts.delivered(effect.seq, effect.payload)

    def _stable(self, effect: Stable) -> None:
        if name_of(effect.sender) == self.me:
            self.receipts.stable(effect.seq)

    def _drop(self, effect: Drop) -> None:
        if effect.sender is None or effect.seq is None:
            self._anomalies.note("dropped-" + effect.reason)
        elif name_of(effect.sender) == self.me:
            self.receipts.dropped(effect.seq, effect.reason)

    def _install(self, install: Install) -> None:
        old, self.members, self.view = self.members, install.members, install.view
        self._reader.keep_only(install.members)
        self._logger.info("view %d: %s", install.view, ", ".join(self._show(install.members)))
        self.receipts.view_ended()
        self.inbox.put(
            ViewChange(
                install.view,
                self._show(install.members),
                self._show(member for member in install.members if member not in old),
                self._show(member for member in old if member not in install.members),
                self._show(install.elders),
            )
        )
        self.joined()

    def _notice(self, notice: protocol.StandingChanged) -> None:
        self._logger.log(logging.INFO if notice.what == "resumed" else logging.WARNING, "%s", notice.what)
        if notice.what in ("excluded", "yielded"):
            self.receipts.incarnation_ended()
        self.inbox.put(Notice(notice.what))

    # The application's state

    def _capture(self, capture: Capture) -> None:
        self._begun[capture.view] = self._reader.unfinished()
        self.inbox.put(capture)

    def _read_chunk(self, effect: ReadChunk) -> None:
        state = self._captured.get(effect.view)
        if state is not None:
            data = state[effect.offset : effect.offset + effect.length]
            self._drive(Chunk(effect.view, effect.offset, data, effect.to))

    def _release(self, effect: Release) -> None:
        self._captured.pop(effect.view, None)

    def _restore_chunk(self, effect: RestoreChunk) -> None:
        del self._received[effect.offset :]
        self._received += effect.data

    def _restore(self, restore: Restore) -> None:
        self._restored[restore.view], begun = _decode_state(self._received)
        self._received = bytearray()
        self._reader.adopt(begun)
        self.inbox.put(restore)

    def _at_state(self, item: Capture | Restore) -> None:
        """Take or replace the state of the application, which has just seen all that came before."""
        if isinstance(item, Capture):
            assert self._settings.snapshot is not None
            state = msgspec.msgpack.encode((self._settings.snapshot(), self._begun.pop(item.view, [])))
            self._captured[item.view] = state
            self._drive(Snapshot(item.view, len(state), blake2b(state, digest_size=16).digest()))
        else:
            assert self._settings.restore is not None
            self._settings.restore(self._restored.pop(item.view))

    def _show(self, processes: Iterable[int]) -> tuple[str, ...]:
        return tuple(self._names[name_of(process)] for process in processes)
