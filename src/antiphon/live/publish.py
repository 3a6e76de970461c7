"""A member's status for whoever connects: a line of JSON at once, then a few a second; `antiphon dashboard` reads it.

It tells and never listens: what a client sends is not read. It is off unless an address is given, and that should be
one of this machine, since nothing is encrypted here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from antiphon.errors import UsageError
from antiphon.live.addresses import resolve
from antiphon.live.events import Status

PERIOD_S = 0.25
_CLIENTS_MAX = 16


class Publisher:
    """Serves one member's status on one TCP address."""

    def __init__(self, server: asyncio.Server, clients: set[asyncio.Task[None]]) -> None:
        self._server, self._clients = server, clients

    @classmethod
    async def start(cls, address: str, status: Callable[[], Status]) -> Publisher:
        """Begin to serve what `status` gives."""
        host, port = await resolve(address, "status_at")
        clients: set[asyncio.Task[None]] = set()

        async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            clients.add(task)
            try:
                while len(clients) <= _CLIENTS_MAX:
                    writer.write(msgspec.json.encode(status()) + b"\n")
                    await writer.drain()  # a client that does not read holds up itself alone
                    await asyncio.sleep(PERIOD_S)
            except (ConnectionError, asyncio.CancelledError):
                pass
            finally:
                clients.discard(task)
                writer.close()

        try:
            server = await asyncio.start_server(serve, host, port)
        except OSError as error:
            raise UsageError(f"status_at: {address}: {error.strerror or error}; choose another port") from None
        return cls(server, clients)

    def close(self) -> None:
        """Stop serving; the clients see the end of the stream."""
        self._server.close()
        for task in self._clients:
            task.cancel()
