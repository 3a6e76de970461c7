"""Garbage for members: datagrams that no correct member of this group and view sends."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any
from zlib import crc32

import msgspec

from antiphon.protocol.machine import Receive, Send, Submit, Wake
from antiphon.protocol.options import GroupOptions
from antiphon.protocol.view.member import Member, View
from antiphon.protocol.wire import DATAGRAM_BYTES_MAX, HEADER_BYTES, Codec


def busy_group(ordering: str, seed: int, size: int = 3) -> tuple[list[Member], list[bytes]]:
    """Give members in the middle of a conversation, and the datagrams that they have exchanged."""
    view, config = View(0, tuple(range(size))), GroupOptions(group="fuzzed", ordering=ordering)
    members = [Member(me, view, config, random.Random(f"{seed}/{me}")) for me in range(size)]
    rng, now, said = random.Random(seed), 0, []
    for turn in range(60):
        now += 3_000_000
        me = rng.randrange(size)
        event = Submit(b"m%d" % turn) if turn % 3 == 0 and members[me].room else Wake()
        for effect in members[me].handle(event, now):
            if isinstance(effect, Send):
                said.append(effect.datagram)
                for other in members:
                    if (
                        other.output.me != me
                        and (effect.to is None or other.output.me in effect.to)
                        and rng.random() < 0.8
                    ):
                        other.handle(Receive(effect.datagram), now)
    return members, said


def garbage(said: list[bytes], seed: int, count: int) -> Iterator[bytes]:
    """Damage, truncate, lengthen and misaddress real datagrams, and make some up."""
    rng = random.Random(seed)
    for _ in range(count):
        real = rng.choice(said)
        match rng.randrange(8):
            case 0:
                yield rng.randbytes(rng.randrange(0, 120))
            case 1:
                yield real[: rng.randrange(len(real))]
            case 2 | 3:
                damaged = bytearray(real)
                for _ in range(rng.randint(1, 4)):
                    damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
                yield bytes(damaged) if bytes(damaged) != real else b""
            case 4:
                yield real + rng.randbytes(rng.randint(1, 20))
            case 5:  # another group, another view or an impossible sender, with a right checksum
                field = rng.choice((4, 8, 12))
                yield _sealed(real[4:field] + rng.randbytes(3) + b"\x7f" + real[field + 4 :])
            case 6:  # a right checksum over a body that is no list of PDUs
                yield _sealed(real[4:HEADER_BYTES] + b"\xc1" + rng.randbytes(rng.randrange(0, 60)))
            case _:
                yield bytes(DATAGRAM_BYTES_MAX + 1) if rng.random() < 0.01 else _sealed(real[4:-1])


def forged(member: Member, said: list[bytes], seed: int, count: int) -> Iterator[bytes]:
    """Make well-formed datagrams with absurd contents, as a faulty or hostile member could."""
    rng = random.Random(seed)
    codec = Codec(member.handlers)
    for _ in range(count):
        header, pdus = codec.decode(rng.choice(said))
        for pdu in pdus:
            for field in pdu.__struct_fields__:
                if rng.random() < 0.4:
                    setattr(pdu, field, _absurd(rng, getattr(pdu, field)))
        sent, free = (rng.choice((value, rng.getrandbits(32))) for value in (header.sent, header.free))
        header = type(header)(header.group, header.view, header.sender, sent, free)
        yield codec.frame(header, [codec.encode_pdu(pdu) for pdu in pdus])


def _absurd(rng: random.Random, value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice((0, 1, value + 1, max(0, value - 1), 2**31, 2**32 - 1, 2**63 - 1))
    if isinstance(value, bytes):
        return rng.choice((b"", value[:-1], rng.randbytes(len(value)), value + b"\xff" * 4))
    if isinstance(value, list):
        return rng.choice(([], value * 2, [(1, 2**32 - 1)]))
    return value


def _sealed(rest: bytes) -> bytes:
    return crc32(rest).to_bytes(4, "little") + rest


def snapshot(thing: Any, seen: frozenset[int] = frozenset()) -> Any:
    """Give all state of a member as plain data, without its counters."""
    if id(thing) in seen:
        return "again"
    seen |= {id(thing)}
    if isinstance(thing, msgspec.Struct):
        return (type(thing).__name__, [snapshot(getattr(thing, name), seen) for name in thing.__struct_fields__])
    if isinstance(thing, random.Random):
        return hash(thing.getstate())
    if isinstance(thing, dict):
        return [(snapshot(key, seen), snapshot(value, seen)) for key, value in thing.items()]
    if isinstance(thing, list | tuple | set | frozenset) or type(thing).__name__ == "deque":
        return [snapshot(item, seen) for item in thing]
    if hasattr(thing, "__dict__") and type(thing).__module__.startswith("antiphon"):
        state = {k: v for k, v in vars(thing).items() if k not in ("counts", "_counts", "effects", "size_each")}
        return (type(thing).__name__, snapshot(state, seen))
    if hasattr(thing, "__slots__") and type(thing).__module__.startswith("antiphon"):
        return [snapshot(getattr(thing, name), seen) for name in thing.__slots__]
    return repr(thing)
