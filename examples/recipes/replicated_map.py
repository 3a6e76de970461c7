"""A map that all members share: writes in one order, reads that see every write that was acknowledged before them.

async with ReplicatedMap("settings", bind="10.0.0.1:7000", peers=[...]) as settings:
    await settings.put("colour", "green")
    await settings.swap("colour", "green", "blue")  # True: nobody else was faster
    await settings.get("colour")
"""

from __future__ import annotations

from typing import Any

from replica import Replica


class ReplicatedMap(Replica):
    """A dictionary; every method returns when all members hold the command, and this one has applied it."""

    def begin(self) -> Any:
        return {}

    async def put(self, key: str, value: Any) -> None:
        """Write a value."""
        await self.do(["put", key, value])

    async def get(self, key: str) -> Any:
        """Read in the common order, so that no acknowledged write is missed; `state` is quicker, and older."""
        return await self.do(["get", key])

    async def swap(self, key: str, expected: Any, value: Any) -> bool:
        """Write a value if the present one is as expected, and say whether it was."""
        return bool(await self.do(["swap", key, expected, value]))

    def apply(self, sender: str, command: Any) -> Any:
        match command:
            case ["put", key, value]:
                self.state[key] = value
            case ["get", key]:
                return self.state.get(key)
            case ["swap", key, expected, value]:
                swapped = self.state.get(key) == expected
                if swapped:
                    self.state[key] = value
                return swapped
        return None
