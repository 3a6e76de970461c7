"""The backlog: events that the application sees after its state, kept until the state has come and was restored.

The group does not wait for a joiner's state, so the backlog may become long: beyond some memory it is kept in a
temporary file. Once the state has come, the application reads the backlog portion by portion; new events go to its end.
From then on it must shrink: it may grow past its shortest length since then by no more than the inbox's bound.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from antiphon.live.spill import Spill
from antiphon.protocol.machine import Capture, Deliver, EndHoldBack, HoldBack, Install, StandingChanged
from antiphon.protocol.membership.views import name_of

if TYPE_CHECKING:
    from antiphon.live.anomalies import Anomalies
    from antiphon.live.inbox import Inbox

_PORTION_BYTES: Final = 64 << 10  # is read at once
_FRAME: Final = struct.Struct(">BI")  # kind, length

StreamEffect: TypeAlias = Deliver | Install | Capture | StandingChanged  # what has its place in the stream
Handlers: TypeAlias = dict[type, Callable[[Any], None]]  # what is done with effects, by their kind
_KINDS: Final[tuple[type[StreamEffect], ...]] = (Deliver, Install, Capture, StandingChanged)
_CODES: Final = {kind: code for code, kind in enumerate(_KINDS)}
_DECODERS: Final = [msgspec.msgpack.Decoder(kind) for kind in _KINDS]
WITHOUT_STATE: Final = "this member begins with what it has"
_encode: Final = msgspec.msgpack.Encoder().encode


class Backlog:
    """A queue of what the machine said, in bounded memory."""

    def __init__(self, growth_bytes_max: int) -> None:
        """`growth_bytes_max`: by how much it may exceed its shortest length since it began to shrink."""
        self._growth_bytes_max = growth_bytes_max
        self._bytes = Spill()
        self._start = self._end = 0  # what is left of it
        self._bytes_max: int | None = None  # None: the state has not come, and nothing is taken up

    @property
    def bytes(self) -> int:
        """How long it is."""
        return self._end - self._start

    @property
    def is_full(self) -> bool:
        """Whether it is so long that the group has to wait for this application."""
        return self._bytes_max is not None and self.bytes > self._bytes_max

    def append(self, effect: StreamEffect) -> None:
        """Put something behind all that is there."""
        data = _encode(effect)
        self._bytes.write(self._end, _FRAME.pack(_CODES[type(effect)], len(data)) + data)
        self._end += _FRAME.size + len(data)

    def begin_to_shrink(self) -> None:
        """Note that the state has come."""
        self._bytes_max = self.bytes + self._growth_bytes_max

    def take(self) -> Iterator[StreamEffect]:
        """Take some entries from the beginning; what is yielded is removed."""
        portion = self._bytes.read(self._start, _PORTION_BYTES)
        effects: list[StreamEffect] = []
        at = 0
        while at + _FRAME.size <= len(portion):
            code, length = _FRAME.unpack_from(portion, at)
            end = at + _FRAME.size + length
            if end > len(portion):
                if effects:
                    break
                portion += self._bytes.read(self._start + len(portion), end - len(portion))
            effects.append(_DECODERS[code].decode(portion[at + _FRAME.size : end]))
            at = end
        self._start += at
        if self._start == self._end:
            self.clear()
        elif self._bytes_max is not None:
            self._bytes_max = min(self._bytes_max, self.bytes + self._growth_bytes_max)
        return iter(effects)

    def clear(self) -> None:
        """Throw away what is there, and the file with it."""
        if self._end:
            self._bytes.close()
            self._bytes = Spill()
        self._start = self._end = 0
        self._bytes_max = None

    def close(self) -> None:
        """Let the file go."""
        self._bytes.close()
        self._start = self._end = 0


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
            self._take_up(all_of_it=True)  # its receipts are told of while their incarnation lasts
            self._in_stream[StandingChanged](effect)
        else:
            self._keep(effect)
            self._inbox.is_held_up = self._backlog.is_full

    def _take_up(self, *, all_of_it: bool = False) -> None:
        """Put some of what waits into the inbox, if there is little in it."""
        while self._backlog.bytes and (all_of_it or self._inbox.is_low):
            for effect in self._backlog.take():
                self._in_stream[type(effect)](effect)
        self._inbox.is_held_up = self._backlog.is_full
        if not self._backlog.bytes:
            self._inbox.taken = None
            self._handlers.update(self._in_stream)
