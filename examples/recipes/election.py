"""An election: the first member of the view leads, for a term that is the view's number.

No message is needed: all members of a view know who is first, and two views in a row have a majority in common. A
leader that is cut off learns it after the others may have elected another; so whatever it orders carries its term, and
whoever obeys refuses a lower term than it has seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import antiphon


class Election:
    """One member's knowledge of who leads: `leader` is None while it cannot know."""

    def __init__(self, group: str, bind: str, peers: list[str], **settings: Any) -> None:
        self.me, self.leader, self.term = bind, "", 0
        self.told: Callable[[str, int], None] = lambda leader, term: None
        self._group = antiphon.join(group, bind=bind, peers=peers, ordering="total", **settings)

    @property
    def leading(self) -> bool:
        """Whether this member leads, as far as it knows."""
        return self.leader == self.me

    async def __aenter__(self) -> Election:
        await self._group.__aenter__()
        self._following = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._group.leave()
        await self._following

    async def _follow(self) -> None:
        async for event in self._group:
            match event:
                case antiphon.ViewChange(view=term, members=members):
                    self._now(members[0], term)
                case antiphon.Notice(what="stalled" | "excluded"):
                    self._now("", self.term)
                case antiphon.Notice(what="resumed"):
                    self._now(self._group.status().members[0], self.term)

    def _now(self, leader: str, term: int) -> None:
        self.leader, self.term = leader, term
        self.told(leader, term)
