"""Names: a view is shown once the names of all its members are known.

Members that find each other by discovery know one another by numbers, and learn from hellos whose they are. A view may
come before the hello of one that is new in it: it waits then, and what is delivered in it waits behind it. If nobody
tells the name in time, the member is shown by its number.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from antiphon.live.anomalies import Anomalies
from antiphon.live.backlog import Handlers, StreamEffect
from antiphon.protocol.machine import Deliver, Install, StandingChanged
from antiphon.protocol.membership.views import name_of

WAIT_S: Final = 3.0  # members say hello every second
WAITING_BYTES_MAX: Final = 4 << 20  # beyond, nothing waits for a name


class Names(dict[int, str]):
    """The members' names by number."""

    def __missing__(self, number: int) -> str:
        return f"member {number}"


class BehindNames:
    """Keeps what waits for a member's name, in the order of the stream."""

    def __init__(
        self,
        in_stream: Handlers,
        handlers: Callable[[], Handlers],
        names: Mapping[int, str],
        anomalies: Anomalies,
        waits: Callable[[StreamEffect], None],
    ) -> None:
        """`in_stream` handles effects of the stream; while a name is missing, other handlers take their place.

        `waits` is told of each effect that has to wait.
        """
        self._in_stream, self._handlers, self._names = in_stream, handlers, names
        self._anomalies, self._waits = anomalies, waits
        self._show = in_stream[Install]
        in_stream[Install] = self._install
        self._usual = dict(in_stream)
        self._waiting: list[StreamEffect] = []
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """Wait for nothing any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _unnamed(self, members: Iterable[int]) -> list[int]:
        return [name_of(member) for member in members if name_of(member) not in self._names]

    def _install(self, install: Install) -> None:
        if not self._unnamed(install.members):
            self._show(install)
            return
        self._waiting, self._bytes = [install], 0
        self._put(dict.fromkeys(self._usual, self._wait))
        self._timer = asyncio.get_running_loop().call_later(WAIT_S, self._give_up)

    def _wait(self, effect: StreamEffect) -> None:
        if isinstance(effect, StandingChanged) and effect.what in ("excluded", "yielded"):
            self._give_up()  # its receipts are told of while their incarnation lasts
            self._in_stream[StandingChanged](effect)
            return
        self._waits(effect)
        self._waiting.append(effect)
        self._bytes += len(effect.payload) if isinstance(effect, Deliver) else 0
        if self._bytes > WAITING_BYTES_MAX:
            self._give_up()

    def learnt(self) -> None:
        """Look whether what waits can be shown, since a name was learnt."""
        if self._waiting and isinstance(view := self._waiting[0], Install) and not self._unnamed(view.members):
            self._go_on()

    def _give_up(self) -> None:
        """Show a view with a member whose name is not known."""
        view = self._waiting[0]
        assert isinstance(view, Install), "what waits begins with a view"
        self._anomalies.note("members-unnamed", ", ".join(map(str, self._unnamed(view.members))))
        self._go_on(self._waiting.pop(0))

    def _go_on(self, view: StreamEffect | None = None) -> None:
        """Show what waits, up to the next view with a member whose name is not known."""
        self.close()
        waiting, self._waiting = self._waiting, []
        self._put(self._usual)
        if isinstance(view, Install):
            self._show(view)
        for effect in waiting:
            self._in_stream[type(effect)](effect)

    def _put(self, takers: Handlers) -> None:
        """Let these take what has its place in the stream, unless it has to wait for a state first."""
        handlers = self._handlers()
        for kind, taker in takers.items():
            if handlers[kind] == self._in_stream[kind]:
                handlers[kind] = taker
            self._in_stream[kind] = taker
