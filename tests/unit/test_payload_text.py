"""What messages say, in traces and in what is drawn of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

import antiphon
from antiphon import testing
from antiphon.diagram.marks import tell_payload
from antiphon.live.burst import Burst, burst_text, encode, whole
from antiphon.protocol.ordering import ORDERINGS
from antiphon.trace.event import Event
from antiphon.trace.payload import TEXT_MAX, payload_text, payload_texts, printable


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b"", ""),
        (b"pay 17 euros", "pay 17 euros"),
        ("grüße\n世界".encode(), "grüße\n世界"),
        (b"\x00\x01\xff", "3 bytes: 00 01 ff"),
        (b"text and \x00", "10 bytes: 74 65 78 74 20 61 6e 64 20 00"),
        (bytes(2_000), "2,000 bytes: " + "00 " * 16 + "…"),
        (b"x" * TEXT_MAX, "x" * TEXT_MAX),
        (b"x" * (TEXT_MAX + 1), "x" * (TEXT_MAX - 1) + "…"),
        ("世".encode() * 5_000, "世" * (TEXT_MAX - 1) + "…"),  # cut inside a character
    ],
)
def test_text_is_shown_as_text_and_bytes_as_bytes(payload: bytes, text: str) -> None:
    assert payload_text(payload) == text


def test_messages_that_were_sent_together_are_told_together() -> None:
    assert payload_texts([b"a", b"\xff", b"c"]) == "a | 1 bytes: ff | c"
    assert payload_texts([b"%d" % number for number in range(1_007)]) == "0 | 1 | 2 | 3 | 4 | and 1,002 more"
    assert burst_text(whole([b"a", b"b"])) == "a | b"
    assert burst_text(encode(Burst(1, 0, 3, [b"begins"], 1))) == "part 1 of 3: begins"


def test_what_cannot_be_shown_is_not_drawn() -> None:
    evil = Event("r", 0, 1, "send", 0, 1, detail="a\x00b\u202ec \n<script>")
    assert tell_payload(evil) == "“a�b�c <script>”"
    assert printable("\ud800") == "�"


@pytest.mark.parametrize("ordering", sorted(ORDERINGS))
def test_the_kits_traces_have_what_was_sent(ordering: str, tmp_path: Path) -> None:
    async def main(world: testing.World) -> None:
        addresses = world.addresses(2)
        groups = [
            antiphon.join("g", bind=own, peers=[peer for peer in addresses if peer != own], ordering=ordering)
            for own in addresses
        ]
        await asyncio.gather(*(group.__aenter__() for group in groups))
        await groups[0].send(b"from the first")
        await groups[1].send(b"\x00")
        await asyncio.sleep(1)

    with testing.World(seed=1) as world:
        world.run(main(world))
        world.write_trace(tmp_path / "trace")
    said = {row.detail for row in world.events if row.event == "send"}
    assert said == {"from the first", "1 bytes: 00"}
    assert all(row.detail is None for row in world.events if row.event in ("receive", "deliver"))


def test_measuring_knows_no_kind_of_message_by_what_it_says() -> None:
    pa = pytest.importorskip("pyarrow")
    from antiphon.pipeline.columns import CONTROL, SEND
    from antiphon.pipeline.measuring.ledger import NO_KIND, _without_payloads

    names = pa.array(["final", "hello", "ack", "final words"])
    event = np.array([SEND, CONTROL, SEND, CONTROL, CONTROL, SEND], np.uint8)
    detail, kept = _without_payloads(event, np.array([1, 0, 3, 2, NO_KIND, NO_KIND]), names)
    assert kept.to_pylist() == ["final", "ack"]
    assert detail.tolist() == [NO_KIND, 0, NO_KIND, 1, NO_KIND, NO_KIND]
