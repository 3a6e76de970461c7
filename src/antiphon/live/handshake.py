"""The handshake: packets of a session are taken once its sender has shown that it is alive, and set up alike.

Whoever hears of a session that it does not know challenges its sender with a fresh cookie. The answer comes in that
very session, with the cookie, the versions of the wire that the sender speaks and its description of the group. So
what was recorded in an earlier session, of a member that is dead or was restarted, is never taken, whatever the clocks
say; and a member that speaks no version that is spoken here, or is set up differently, is refused by everybody, and
told why. Nothing is kept for those who do not answer: a cookie is computed from what it stands for.

Where members never change (`views=False`), each has one session for ever: one that was started again knows nothing of
what it sent and acknowledged before, and would have its first messages taken for those. It is refused, and told.

All releases understand each other's handshakes: fields are only ever added, at the end.
"""

from __future__ import annotations

import hmac
import os
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from antiphon import __version__
from antiphon.live.session import PacketSession, Unproven
from antiphon.protocol.machine import MILLISECOND, Instant
from antiphon.protocol.wire import Spoken

CHALLENGE, RESPONSE, REPLACED = 4, 5, 9  # first byte of a body; 0 to 3 are those of `packets`, 6 to 8 of `prober`
CHALLENGE_NS: Final = 40 * MILLISECOND  # between challenges to one session: signs of life come every 50 ms
CHALLENGED_MAX: Final = 256  # sessions whose last challenge is remembered
DESCRIPTION_BYTES_MAX: Final = 1_100  # so that a response is one packet
_COOKIE_BYTES: Final = 16

_Cookie = Annotated[bytes, msgspec.Meta(min_length=_COOKIE_BYTES, max_length=_COOKIE_BYTES)]


class Challenge(msgspec.Struct, array_like=True):
    """Are you in this session now?"""

    session: int
    cookie: _Cookie


class Response(msgspec.Struct, array_like=True):
    """Yes; and this is what I speak, and how I am set up."""

    cookie: _Cookie
    spoken: Spoken
    release: Annotated[str, msgspec.Meta(max_length=32)]  # for people
    digest: bytes
    description: bytes  # compressed; empty if it is too long for a packet


_encode = msgspec.msgpack.Encoder().encode
_decode_challenge = msgspec.msgpack.Decoder(Challenge).decode
_decode_response = msgspec.msgpack.Decoder(Response).decode
_decode_description = msgspec.msgpack.Decoder(dict[str, str]).decode


class Description:
    """A member's settings; members take each other's packets only if these are equal.

    Settings at their `usual` values are told but not compared, so that a release with a new setting agrees with one
    without it.
    """

    def __init__(self, settings: Mapping[str, object], usual: Mapping[str, object] | None = None) -> None:
        self._settings = {name: _shown(value) for name, value in settings.items()}
        as_usual = {name: _shown(value) for name, value in (usual or {}).items()}
        encoded = _encode(sorted(self._settings.items() - as_usual.items()))
        self.digest = sha256(encoded).digest()[:16]
        packed = zlib.compress(_encode(self._settings))
        self.packed = packed if len(packed) <= DESCRIPTION_BYTES_MAX else b""

    def differences(self, response: Response) -> str:
        """Return which settings differ from those of a response, in words; empty if none does."""
        if response.digest == self.digest:
            return ""
        try:
            unpacked = zlib.decompressobj().decompress(response.description, 1 << 16)
            others = _decode_description(unpacked)
        except (zlib.error, msgspec.MsgspecError):
            return "its settings"
        different = [
            f"{name}: {self._settings.get(name, 'not known')} here and {others.get(name, 'not known')} there"
            for name in {**self._settings, **others}
            if self._settings.get(name) != others.get(name)
        ]
        return "; ".join(different) or "its settings"


def _shown(value: object) -> str:
    """Write a value as text; equal values give equal texts."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_shown(one)}" for name, one in sorted(value.items())) + "}"
    return repr(value)


Difference: TypeAlias = Literal["other-version", "other-settings", "restarted", "replaced"]
ADVICE: Final[dict[Difference, str]] = {
    "other-version": "members of a group speak one version; see Upgrading in docs/operations.md",
    "other-settings": "all members of a group are set up alike",
    "restarted": "with views=False nobody comes back: stop all members, then start them",
    "replaced": "with views=False nobody comes back: stop all members, then start them",
}
Differs: TypeAlias = Callable[[int, Difference, str], None]  # is told a member by its name, why it is refused, and how


class Handshake:
    """Lets the sessions of other members in."""

    def __init__(
        self,
        session: PacketSession,
        spoken: Spoken,
        description: Description,
        send: Callable[[int, bytes], None],
        differs: Differs,
        *,
        fixed: bool = False,
    ) -> None:
        """`send` gives a body to a member by its name; `differs` is told who is refused, and why.

        `fixed`: members never change, and one that was started again is none.
        """
        self._fixed = fixed
        self._session, self._spoken, self._description = session, spoken, description
        self._send, self._differs = send, differs
        self._secret = os.urandom(32)
        self._accepted: Counter[int] = Counter()  # by name, how many sessions were let in
        self._challenged: dict[tuple[int, int], Instant] = {}  # when, by name and session
        self._answered: dict[tuple[int, int], Instant] = {}  # the same, of those whose session was not let in

    def greet(self, name: int) -> None:
        """Ask a member which session it is in, before it says anything."""
        self._challenge(name, 0)

    def meet(self, unproven: Unproven, now: Instant) -> bool:
        """Take a packet of a session that is not let in yet: an answer lets it in, all else is asked who it is.

        Return whether it was a valid answer. What was recorded may come by the thousand, so each session is answered
        rarely.
        """
        sender, session, body = unproven.sender, unproven.session, unproven.body
        if body[0] == RESPONSE:
            return self._take_response(unproven)
        if body[0] == REPLACED:
            self.hear(sender, body)  # it names this session, which nobody knew before its start
            return True
        is_another = self._fixed and self._accepted[sender] > 0  # must not hear what its first start is told
        if body[0] == CHALLENGE and not is_another and _is_due(self._answered, (sender, session), now):
            self.answer(sender, body)
        if _is_due(self._challenged, (sender, session), now):
            self._challenge(sender, session)
        return False

    def _challenge(self, name: int, session: int) -> None:
        body = bytes([CHALLENGE]) + _encode(Challenge(session, self._cookie(name, session)))
        self._send(name, body)

    def hear(self, sender: int, body: bytes) -> None:
        """Take what a member says in a session that was let in: it asks for this one, or will not let it in."""
        if body[0] == CHALLENGE:
            self.answer(sender, body)
        elif body[0] == REPLACED and self._fixed and body[1:] == self._session.number.to_bytes(8, "big"):
            self._differs(sender, "replaced", "this member was started again; the others know its first start")

    def answer(self, sender: int, body: bytes) -> None:
        """Answer a challenge, if it is for this session or for whichever there is; anything else is passed over."""
        try:
            challenge = _decode_challenge(body[1:])
        except msgspec.MsgspecError:
            return
        if challenge.session in (0, self._session.number):
            mine = self._description
            response = Response(challenge.cookie, self._spoken, __version__, mine.digest, mine.packed)
            self._send(sender, bytes([RESPONSE]) + _encode(response))

    def _take_response(self, unproven: Unproven) -> bool:
        sender, session = unproven.sender, unproven.session
        try:
            response = _decode_response(unproven.body[1:])
        except msgspec.MsgspecError:
            return False
        if response.cookie not in (self._cookie(sender, session), self._cookie(sender, 0)):
            return False  # the answer to a question of another time
        if not self._spoken.shares(response.spoken):
            theirs, release = response.spoken, response.release
            how = f"wire: {self._spoken} here (Antiphon {__version__}) and {theirs} there (Antiphon {release})"
            self._differs(sender, "other-version", how)
        elif different := self._description.differences(response):
            self._differs(sender, "other-settings", different)
        elif self._fixed and self._accepted[sender]:
            self._differs(sender, "restarted", "it was started again, and knows nothing of what it sent before")
            self._send(sender, bytes([REPLACED]) + session.to_bytes(8, "big"))
        else:
            self._accepted[sender] += 1  # cookies that were given until now are worth nothing any more
            self._session.accept(sender, session, unproven.counter)
        return True

    def _cookie(self, name: int, session: int) -> bytes:
        about = b"%d/%d/%d" % (name, session, self._accepted[name])
        return hmac.digest(self._secret, about, sha256)[:_COOKIE_BYTES]


def _is_due(last: dict[tuple[int, int], Instant], session: tuple[int, int], now: Instant) -> bool:
    """Return whether something was not done for a session for a while, and note that it is done now."""
    if now - last.get(session, now - CHALLENGE_NS) < CHALLENGE_NS:
        return False
    if len(last) >= CHALLENGED_MAX:
        last.clear()
    last[session] = now
    return True
