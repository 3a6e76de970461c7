"""Whether a member is here, leaves or has left: several tasks may ask it to leave, and the first does the work."""

from __future__ import annotations

import asyncio
from typing import Literal


class Departure:
    """How far a member is with leaving its group."""

    def __init__(self) -> None:
        self.standing: Literal["open", "leaving", "left"] = "open"
        self.hurries = False  # whoever leaves waits for no more deliveries
        self._over = asyncio.Event()

    async def begin(self, *, hurry: bool) -> bool:
        """Return True to the first caller, who does the work; make others wait until it is done, or hurry it."""
        self.hurries |= hurry
        if self.standing == "leaving":
            await self._over.wait()
        is_first = self.standing == "open"
        if is_first:
            self.standing = "leaving"
        return is_first

    def end(self) -> bool:
        """Note that the group was left; return whether that is news."""
        before, self.standing = self.standing, "left"
        self._over.set()
        return before != "left"
