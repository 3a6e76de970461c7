"""The backlog: events that the application sees after its state, kept until the state has come and was restored.

The group does not wait for a joiner's state, so the backlog may become long: beyond some memory it is kept in a
temporary file. Once the state has come, the application reads the backlog portion by portion; new events go to its end.
From then on it must shrink: it may grow past its shortest length since then by no more than the inbox's bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from antiphon.live.spill import SpilledQueue
from antiphon.protocol.machine import Capture, Deliver, EndHoldBack, HoldBack, Install, StandingChanged
from antiphon.protocol.membership.views import name_of

if TYPE_CHECKING:
    from antiphon.live.anomalies import Anomalies
    from antiphon.live.inbox import Inbox

StreamEffect: TypeAlias = Deliver | Install | Capture | StandingChanged  # what has its place in the stream
Handlers: TypeAlias = dict[type, Callable[[Any], None]]  # what is done with effects, by their kind
WITHOUT_STATE: Final = "this member begins with what it has"


class Backlog(SpilledQueue[StreamEffect]):
    """A queue of what the machine said, in bounded memory."""

    def __init__(self, growth_bytes_max: int) -> None:
        """`growth_bytes_max`: by how much it may exceed its shortest length since it began to shrink."""
        super().__init__((Deliver, Install, Capture, StandingChanged))
        self._growth_bytes_max = growth_bytes_max
        self._bytes_max: int | None = None  # None: the state has not come, and nothing is taken up

    @property
    def is_full(self) -> bool:
        """Whether it is so long that the group has to wait for this application."""
        return self._bytes_max is not None and self.bytes > self._bytes_max

    def begin_to_shrink(self) -> None:
        """Note that the state has come."""
        self._bytes_max = self.bytes + self._growth_bytes_max

    def take(self) -> Iterator[StreamEffect]:
        """Take some entries from the beginning; what is yielded is removed."""
        taken = super().take()
        if self._bytes_max is not None:
            self._bytes_max = min(self._bytes_max, self.bytes + self._growth_bytes_max)
        return taken

    def clear(self) -> None:
        """Throw away what is there, and the file with it."""
        super().clear()
        self._bytes_max = None


class BehindState:
    """Keeps what is held back behind the application's state, and then puts it into the inbox as that empties."""

    def __init__(
        self,
        in_stream: Mapping[type, Callable[[Any], None]],
        handlers: Handlers,
        inbox: Inbox,
        growth_bytes_max: int,
        names: Mapping[int, str],
        anomalies: Anomalies,
        waits: Callable[[StreamEffect], None],
    ) -> None:
        """`in_stream` handles effects of the stream; while something waits, `handlers` has others in their place.

        `waits` is told of each effect that has to wait.
        """
        self._in_stream, self._handlers, self._inbox = in_stream, handlers, inbox
        self._names, self._anomalies, self._waits = names, anomalies, waits
        self._backlog = Backlog(growth_bytes_max)
        handlers[HoldBack] = lambda held_back: self._keep(held_back.effect)
        handlers[EndHoldBack] = self._end

    def close(self) -> None:
        """Let the file go."""
        self._backlog.close()

    def _keep(self, effect: StreamEffect) -> None:
        self._waits(effect)
        self._backlog.append(effect)

    def _end(self, end: EndHoldBack) -> None:
        if end.lost:
            self._anomalies.note("states-lost", f"all who had the state are gone; {WITHOUT_STATE}")
        if end.refused_by:
            culprits = ", ".join(self._names[name_of(elder)] for elder in end.refused_by)
            self._anomalies.note("states-refused", f"{culprits}: snapshot failed there; this member joins anew")
        if not end.hand_over:
            self._backlog.clear()
            return
        self._backlog.begin_to_shrink()
        for kind in self._in_stream:
            self._handlers[kind] = self._follow
        self._inbox.taken = self._take_up
        self._take_up()

    def _follow(self, effect: StreamEffect) -> None:
        """Put what comes behind what still waits, in the order of the stream."""
        if isinstance(effect, StandingChanged) and effect.what in ("excluded", "yielded"):
            self._inbox.put_aside(self._give_all(effect))  # its receipts are told of while their incarnation lasts
        else:
            self._keep(effect)
            self._inbox.is_held_up = self._backlog.is_full

    def _give_all(self, end: StandingChanged) -> Iterator[None]:
        """Put all that waits into the stream, and what it ends with, portion by portion."""
        while self._backlog.bytes:
            self._give_some()
            yield
        self._take_up()  # there is nothing left: what comes next need not wait
        self._in_stream[StandingChanged](end)
        yield

    def _give_some(self) -> None:
        for effect in self._backlog.take():
            self._in_stream[type(effect)](effect)

    def _take_up(self) -> None:
        """Put some of what waits into the inbox, if there is little in it."""
        while self._backlog.bytes and self._inbox.is_low:
            self._give_some()
        self._inbox.is_held_up = self._backlog.is_full
        if not self._backlog.bytes:
            self._inbox.taken = None
            self._handlers.update(self._in_stream)
