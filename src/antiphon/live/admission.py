"""Whether a member has found its group and got into it, or why it cannot."""

from __future__ import annotations

import asyncio

from antiphon.errors import UsageError
from antiphon.live.discovery import Discovery


class Admission:
    """The search for the group and the wait for the first view; gives up if too few can be admitted."""

    def __init__(self) -> None:
        self._joined: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unlike: set[int] = set()  # names of those who speak other versions, or are set up differently
        self.founders: frozenset[int] = frozenset()  # names
        self.search: Discovery | None = None  # for the group, if it is not given who is in it

    def begin_search(self, search: Discovery) -> None:
        """Begin the search for the group; raise the reason if it is already known that this member cannot get in."""
        self.search = search
        if self._joined.done():
            self._joined.result()

    def unheard(self) -> list[str]:
        """Return the addresses that are asked for the group and do not answer."""
        return [] if self.search is None else self.search.unheard()

    async def wait(self) -> None:
        """Wait until this member is in, or raise what keeps it out."""
        await self._joined

    def admit(self) -> None:
        """Note that this member is in a view."""
        if not self._joined.done():
            self._joined.set_result(None)

    def refuse(self, error: BaseException) -> None:
        """Note what keeps this member out, if it is not in yet."""
        if not self._joined.done():
            if self.search is not None:
                self.search.close()
            self._joined.set_exception(error)
            self._joined.exception()  # whoever waits is told; that nobody does is no mistake

    def differs(self, name: int, how: str) -> None:
        """Note that a member is refused, and how it differs; without it there may be too few left for a majority."""
        self._unlike.add(name)
        if 2 * len(self.founders - self._unlike) <= len(self.founders):
            self.refuse(UsageError(how))
