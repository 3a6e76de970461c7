"""What a loop in virtual time refuses to do, because it would be real."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NoReturn

from antiphon.testing.errors import NotSimulated


def refused(name: str) -> NotSimulated:
    """Say what to do instead."""
    return NotSimulated(
        f"{name}: a simulated loop has no input or output of its own; talk through a group, or put something "
        f"in memory in place of what talks to the outside"
    )


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise refused(name)

    return refuse


class NothingReal(asyncio.AbstractEventLoop):
    """A loop without sockets, pipes, signals, threads and processes."""

    add_writer = _refusal("add_writer")  # type: ignore[assignment]
    add_signal_handler = _refusal("add_signal_handler")  # type: ignore[assignment]
    remove_signal_handler = _refusal("remove_signal_handler")
    connect_accepted_socket = _refusal("connect_accepted_socket")
    connect_read_pipe = _refusal("connect_read_pipe")
    connect_write_pipe = _refusal("connect_write_pipe")
    create_connection = _refusal("create_connection")
    create_datagram_endpoint = _refusal("create_datagram_endpoint")
    create_server = _refusal("create_server")
    create_unix_connection = _refusal("create_unix_connection")
    create_unix_server = _refusal("create_unix_server")
    getnameinfo = _refusal("getnameinfo")
    sendfile = _refusal("sendfile")
    set_default_executor = _refusal("set_default_executor")
    sock_accept = _refusal("sock_accept")
    sock_connect = _refusal("sock_connect")
    sock_recv = _refusal("sock_recv")
    sock_recv_into = _refusal("sock_recv_into")
    sock_recvfrom = _refusal("sock_recvfrom")
    sock_recvfrom_into = _refusal("sock_recvfrom_into")
    sock_sendall = _refusal("sock_sendall")
    sock_sendfile = _refusal("sock_sendfile")
    sock_sendto = _refusal("sock_sendto")
    start_tls = _refusal("start_tls")
    subprocess_exec = _refusal("subprocess_exec")
    subprocess_shell = _refusal("subprocess_shell")
