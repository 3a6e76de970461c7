"""Upcalls: what the machine says, turned into what the application sees: events, receipts, its state."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from typing import Final

from antiphon.live import burst
from antiphon.live.anomalies import Anomalies
from antiphon.live.backlog import WITHOUT_STATE, BehindState, Handlers, StreamEffect
from antiphon.live.events import Notice, ViewChange
from antiphon.live.inbox import Inbox
from antiphon.live.naming import BehindNames
from antiphon.live.receipts import Receipts
from antiphon.live.settings import Settings
from antiphon.live.state import StateKeeper
from antiphon.live.status import shown_links
from antiphon.protocol import machine as protocol
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

_WHY_ENDED: Final = {  # what becomes of messages that were under way
    "excluded": "the group went on without this member",
    "yielded": "another part of the group, or another group of its name, stands",
}

_WHY_DROPPED: Final = {"unknown": "it was under way when the view ended for this member"}

_ALL_ARE_HEARD: Final = (
    "; no link is broken: if this lasts, so many members came back without their state that the rest cannot decide"
    " (antiphon rescue)"
)


class Upcalls:
    """Takes each effect of the machine that concerns the application, in the order in which the machine said it."""

    def __init__(
        self,
        settings: Settings,
        names: Mapping[int, str],
        drive: Callable[[Snapshot | Chunk], None],
        anomalies: Anomalies,
        worker: Executor,
    ) -> None:
        """`names` are the members' addresses by name; `drive` gives the machine a snapshot that it asked for.

        `worker` does what may take long and must not keep the loop.
        """
        self._names = names
        self._anomalies = anomalies
        self.me = -1  # own name, once it is known
        self._reader = burst.BurstReader(settings.message_bytes_max)
        self.states = StateKeeper(settings.snapshot, settings.restore, drive, anomalies, worker)
        self.inbox = Inbox(settings.inbox_bytes_max, listen=settings.listen, at_state=self._at_state)
        in_stream: Handlers = {
            Deliver: self._deliver,
            Install: self._install,
            Capture: self._capture,
            protocol.StandingChanged: self._notice,
        }
        self._behind_names = BehindNames(in_stream, lambda: self.handlers, names, anomalies, self._waits)
        self.handlers: Handlers = {  # what is to be done with each kind of effect
            **in_stream,
            Stable: self._stable,
            Drop: self._drop,
            Restore: self._restore,
            ReadChunk: self.states.read,
            Release: self.states.release,
            RestoreChunk: self.states.receive,
        }
        self._behind_state = BehindState(
            in_stream, self.handlers, self.inbox, settings.inbox_bytes_max, names, anomalies, self._waits
        )
        self.receipts = Receipts(lags=settings.slow == "lag")
        self.members: tuple[int, ...] = ()  # processes
        self.view = 0
        self.messages = 0  # delivered in all
        self.joined: Callable[[], None] = lambda: None  # called when a view begins
        self.left: list[Callable[[int], None]] = []  # told the names of those who are not in it any more

    def close(self) -> None:
        """Let the files go in which something waits."""
        self.states.close()
        self._behind_state.close()
        self._behind_names.close()

    def named(self) -> None:
        """Hear that a member's name was learnt, for which a view may wait."""
        self._behind_names.learnt()

    def _deliver(self, effect: Deliver) -> None:
        sender = effect.sender
        messages = self._reader.messages(sender, effect.payload)
        if self._reader.broken:
            self._anomalies.note("broken-bursts", f"of {self._names[name_of(sender)]}", self._reader.take_broken())
        if messages:
            self.messages += len(messages)
            self.inbox.put_messages(self._names[sender % NAMES_MAX], messages, self.view)
        if sender % NAMES_MAX == self.me:
            self.receipts.delivered(effect.seq, effect.payload)

    def _waits(self, effect: StreamEffect) -> None:
        """Hear that the application gets something later than the machine has said it."""
        if type(effect) is Deliver and name_of(effect.sender) == self.me:
            self.receipts.sent(effect.seq)

    def _stable(self, effect: Stable) -> None:
        if name_of(effect.sender) == self.me:
            self.receipts.stable(effect.seq)

    def _drop(self, effect: Drop) -> None:
        if effect.sender is None or effect.seq is None:
            self._anomalies.note("dropped-" + effect.reason)
            return
        if effect.reason != "unknown":
            self._anomalies.note("discarded", f"of {self._names[name_of(effect.sender)]}: {effect.reason}")
        if name_of(effect.sender) == self.me:
            self.receipts.dropped(effect.seq, _WHY_DROPPED.get(effect.reason, effect.reason))

    def _install(self, install: Install) -> None:
        old, self.members, self.view = self.members, install.members, install.view
        self._reader.keep_only(install.members)
        for name in set(map(name_of, old)) - set(map(name_of, install.members)):
            for hear in self.left:
                hear(name)
        members = ", ".join(self._show(install.members))
        self._anomalies.logger.info("view %d: %s; version %d of the wire", install.view, members, install.wire)
        if self.states.brings_up_to_date and install.view > 1 and not install.elders:
            self._anomalies.note("states-lost", f"nobody of an earlier view is in view {install.view}, {WITHOUT_STATE}")
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
        links = shown_links(notice.links, self._names)
        silent = f"; nothing is heard from {', '.join(f'{one} at {other}' for one, other in links)}" if links else ""
        if notice.what == "stalled" and not links:
            silent = _ALL_ARE_HEARD
        self._anomalies.logger.log(
            logging.INFO if notice.what == "resumed" else logging.WARNING, "%s%s", notice.what, silent
        )
        if notice.what in ("excluded", "yielded"):
            self.receipts.incarnation_ended(_WHY_ENDED[notice.what])
        self.inbox.put(Notice(notice.what, links))

    # The application's state

    def _capture(self, capture: Capture) -> None:
        self.states.due(capture.view, self._reader.unfinished())
        self.inbox.put(capture)

    def _restore(self, restore: Restore) -> None:
        self._reader.adopt(self.states.received(restore.view))
        self.inbox.put(restore)

    async def _at_state(self, item: Capture | Restore) -> None:
        """Take or replace the state of the application, which has just seen all that came before."""
        try:
            if isinstance(item, Capture):
                self.states.capture(item.view)
            else:
                await self.states.restore(item.view)
        except StopAsyncIteration as error:  # as `anext` of an empty state raises it: it would end the stream
            raise RuntimeError("snapshot or restore raised StopAsyncIteration") from error

    @property
    def shown_members(self) -> tuple[str, ...]:
        """The addresses of the present view's members."""
        return self._show(self.members)

    def _show(self, processes: Iterable[int]) -> tuple[str, ...]:
        return tuple(self._names[name_of(process)] for process in processes)
