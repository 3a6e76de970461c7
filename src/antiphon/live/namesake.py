"""Two members with one name: the second finds out before it says anything to the others.

A member may be known by another address than the one that it is bound to. If that address was given by mistake, another
member may live there. So a newcomer first asks at its own address: whoever has the name, and is not the newcomer
itself, answers. Questions and answers travel like all packets, so with a key only members of the group ask or answer.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Final

import msgspec

from antiphon.live.addresses import Address

_MARK: Final = b"antiphon/name/"
QUESTIONS: Final = 3  # one may be lost
ANSWER_S: Final = 0.1


class _Note(msgspec.Struct, array_like=True):
    """A question, or the answer to one, which has the same nonce."""

    nonce: bytes
    answer_to: Address | None  # None: this is the answer


class Namesake:
    """Asks whether a name is taken, and says so to those who ask."""

    def __init__(self, nonce: bytes, make_socket: Callable[[int], socket.socket]) -> None:
        self._nonce, self._make_socket = nonce, make_socket
        self.exists = False  # someone else has this name

    def question(self, bound: Address, address: Address) -> bytes:
        """Ask whoever lives at an address to answer to the one that packets from here to there come from."""
        with self._make_socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET) as way:
            way.connect(address)  # sends nothing, but chooses the way
            host = str(way.getsockname()[0]) if bound[0] in ("0.0.0.0", "::") else bound[0]
        return _MARK + msgspec.msgpack.encode(_Note(self._nonce, (host, bound[1])))

    def hear(self, body: bytes, source: Address | None) -> tuple[Address, bytes] | None:
        """Take what came under one's own name; give an answer and where it goes, if it is another's question.

        It goes where the question came from or, where that is not known because packets prove themselves, as asked.
        """
        if not body.startswith(_MARK):
            return None
        try:
            note = msgspec.msgpack.decode(body[len(_MARK) :], type=_Note)
        except msgspec.MsgspecError:
            return None
        if note.answer_to is None:
            self.exists |= note.nonce == self._nonce
            return None
        if note.nonce == self._nonce:
            return None  # one's own question
        return source or note.answer_to, _MARK + msgspec.msgpack.encode(_Note(note.nonce, None))
