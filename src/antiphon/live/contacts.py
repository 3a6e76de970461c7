"""Contacts: hosts that are known by name, looked up again and again, since addresses change and may be several."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Final

from antiphon.live.addresses import Address, is_numeric, look_up, show
from antiphon.live.anomalies import Anomalies

LOOK_UP_S: Final = 2.0  # between two look-ups of the same names


class Contacts:
    """Hosts and ports, and the addresses at which each is now, as far as this member can speak to them."""

    def __init__(self, hosts: Iterable[Address], *, six: bool, anomalies: Anomalies) -> None:
        """Begin; hosts that are numeric addresses need no look-up. `six`: speak IPv6, else IPv4."""
        self._six, self._anomalies = six, anomalies
        self.found: dict[Address, tuple[Address, ...]] = {
            host: (host,) if is_numeric(host[0]) else () for host in hosts
        }
        self.changed: Callable[[Address, tuple[Address, ...]], None] = lambda host, addresses: None
        self._task: asyncio.Task[None] | None = None
        self.wrong: dict[Address, str] = {}  # what is wrong with those that could not be looked up

    def addresses(self) -> set[Address]:
        """Return all addresses that are known now."""
        return {address for addresses in self.found.values() for address in addresses}

    async def look_up(self) -> None:
        """Look every name up; one that is not known now may be known later."""
        await asyncio.gather(*map(self._look_up, self._names()))  # one slow answer does not delay the others

    async def _look_up(self, host: Address) -> None:
        try:
            found = [address for address in await look_up(*host) if (":" in address[0]) == self._six]
            self.wrong[host] = f"has no {'IPv6' if self._six else 'IPv4'} address, and this member speaks no other"
        except OSError as error:
            found, self.wrong[host] = [], f"cannot be resolved ({error.strerror})"
        if found:
            del self.wrong[host]
            self.found[host] = tuple(found)
            self.changed(host, tuple(found))
        else:
            self._anomalies.note("names-unknown", f"{show(host)} {self.wrong[host]}")

    def go_on(self) -> None:
        """Look names up again and again, if there are any."""
        if self._task is None and self._names():
            self._task = asyncio.get_running_loop().create_task(self._repeat())

    def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(LOOK_UP_S)
            await self.look_up()

    def _names(self) -> Collection[Address]:
        return [host for host in self.found if not is_numeric(host[0])]
