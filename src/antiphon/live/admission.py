"""Whether a member has got into its group, or why it cannot."""

from __future__ import annotations

import asyncio

from antiphon.errors import UsageError


class Admission:
    """Waits for the first view; gives up where too few are left that are set up alike."""

    def __init__(self) -> None:
        self._joined: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unlike: set[int] = set()  # names of those who speak other versions, or are set up differently
        self.founders: frozenset[int] = frozenset()  # names

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
            self._joined.set_exception(error)

    def differs(self, name: int, how: str) -> None:
        """Note that a member is refused, and how it differs; without it there may be too few left for a majority."""
        self._unlike.add(name)
        if 2 * len(self.founders - self._unlike) <= len(self.founders):
            self.refuse(UsageError(how))
