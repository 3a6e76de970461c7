"""Addresses for members on this machine."""

from __future__ import annotations

import socket


def free_addresses(count: int) -> list[str]:
    """Find UDP ports of the loopback address that nobody uses now."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
    for one in sockets:
        one.close()
    return addresses
