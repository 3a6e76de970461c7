"""Whether a member is here, leaves or has left: several tasks may ask it to leave, and the first does the work."""

from __future__ import annotations

import asyncio
from typing import Literal

from antiphon.live.driver import Driver
from antiphon.live.state import StateKeeper
from antiphon.protocol.membership.process import Process

_UNREAD_S = 1.0  # until the application of one who leaves has come to where its state is asked for, if it still reads


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


class Handover:
    """Whether joiners have got the application's state from one who leaves, and who may be the last that has it."""

    def __init__(self, driver: Driver, states: StateKeeper) -> None:
        self._driver, self._states = driver, states
        self._unread_until = driver.loop.time() + _UNREAD_S

    def is_over(self) -> bool:
        """Return whether no joiner waits for the state, or the application does not give it."""
        machine = self._driver.machine
        if not isinstance(machine, Process):
            return True
        may_give = self._states.has_taken or self._driver.loop.time() < self._unread_until
        life = machine.lifecycle
        return not (may_give and life.transfer.gives_to(life.roster.without_state(machine.view)))
