"""One sample of every kind of packet, written always the same: what a version's frozen capture of packets is made of.

`python tests/support/packet_captures.py FILE` writes one. A capture is made once, when a version is released.
"""

from __future__ import annotations

import json
import random
import struct
import sys
from pathlib import Path

import msgspec

from antiphon.live.freshness import Stamp
from antiphon.live.handshake import CHALLENGE, RESPONSE, Challenge, Description, Response
from antiphon.live.hello import Contact, Founding, Hello, Seal
from antiphon.live.packets import PacketCodec
from antiphon.live.prober import PROBE, PROBED
from antiphon.live.session import PlainSession, SealedSession
from antiphon.protocol.membership.views import GroupView
from antiphon.protocol.wire import Spoken

GROUP, KEY, SENDER, SESSION = "captured", bytes(range(16)), 7, 0x0102030405060708
HELLO = Hello(
    Stamp(11, 2, 13, (17, 19)),
    Contact("a", "10.0.0.1:7001"),
    True,
    Founding(("a", "b"), 23),
    (Contact("b", "10.0.0.2:7001"),),
    GroupView(2, (1, 10_000), (10_000, 10_001), (3, 4), 2),
)
COOKIE = b"sixteen bytes ok"
DATAGRAMS = (b"one datagram", b"another", bytes(range(250)) * 4)
ADDED = {"safe": True}, {"safe": False}  # a setting, and what it usually is


def bodies() -> dict[str, bytes]:
    """Return one body of every kind."""
    codec, encode = PacketCodec(500, random.Random(1)), msgspec.msgpack.encode
    (several,) = codec.encode(DATAGRAMS[:2])
    fragments = codec.encode(DATAGRAMS[2:])
    number = fragments[0][1:5]
    described = Description({"group": GROUP, **ADDED[0]}, ADDED[1])
    response = Response(COOKIE, Spoken(2, 2), "captured", described.digest, described.packed)
    return {
        "whole": codec.encode(DATAGRAMS[:1])[0],
        "several": several,
        **{f"fragment {index}": fragment for index, fragment in enumerate(fragments)},
        "again": b"\x03" + number + struct.pack("<2H", 0, 2),
        "challenge": bytes([CHALLENGE]) + encode(Challenge(SESSION, COOKIE)),
        "response": bytes([RESPONSE]) + encode(response),
        "probe with data": struct.pack("<BI", PROBE, 29) + codec.encode(DATAGRAMS[:1])[0],
        "probe with padding": struct.pack("<BI", PROBE, 29) + b"\x08" + bytes(20),
        "probed": struct.pack("<BI", PROBED, 29),
    }


def plain() -> PlainSession:
    """Return the session of the captured packets, without a key."""
    session = PlainSession(SENDER)
    session.number = SESSION
    session._header = session._header[:3] + SESSION.to_bytes(8, "big")
    return session


def sealed() -> SealedSession:
    """Return the session of the captured packets, with a key; its next packet is the first."""
    session = SealedSession(GROUP, SENDER, [KEY])
    session.number = SESSION
    session.set_keys([KEY])
    return session


def capture() -> dict[str, dict[str, str]]:
    """Return every kind of body, alone and in packets."""
    packets = {
        name: {"body": body.hex(), "plain": plain().seal(body).hex(), "sealed": sealed().seal(body).hex()}
        for name, body in bodies().items()
    }
    return {**packets, "hello": {"plain": Seal(GROUP, None).seal(HELLO).hex()}}


if __name__ == "__main__":
    lines = [f" {json.dumps(name)}: {json.dumps(one)}" for name, one in capture().items()]
    Path(sys.argv[1]).write_text("{\n" + ",\n".join(lines) + "\n}\n")
