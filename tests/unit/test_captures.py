"""Frozen captures of the wire: today's code reads and writes its own version as it was, and takes none of 0.1.0's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.protocol.membership.messages import MembershipCodec
from antiphon.protocol.wire import Codec, Malformed, group_of, group_tag
from support.captures import GROUP, HEADER, capture, kinds, named

FOLDER = Path(__file__).parents[1] / "data" / "wire"


def frozen(version: int) -> dict[str, dict[str, Any]]:
    decoded: dict[str, dict[str, Any]] = msgspec.json.decode((FOLDER / f"version-{version}-frames.json").read_bytes())
    return decoded


SECOND = frozen(2)


def test_the_capture_has_every_kind_of_pdu() -> None:
    assert {named(kind) for kind in kinds()} == set(SECOND)


@pytest.mark.parametrize("name", SECOND)
def test_a_frame_means_what_it_meant_and_is_written_as_it_was(name: str) -> None:
    codec, frame = Codec(kinds()), bytes.fromhex(SECOND[name]["frame"])
    header, [pdu] = codec.decode(frame)
    assert header == HEADER
    assert msgspec.json.decode(msgspec.json.encode(pdu)) == SECOND[name]["value"]
    assert codec.frame(header, [codec.encode_pdu(pdu)]) == frame


def test_what_would_be_captured_now_is_what_was() -> None:
    assert msgspec.json.decode(msgspec.json.encode(capture())) == SECOND


def test_no_frame_of_the_first_version_is_taken() -> None:
    first = frozen(1)
    assert len(first) > 50
    for one in first.values():
        frame = bytes.fromhex(one["frame"])
        assert group_of(frame) != group_tag(GROUP)
        with pytest.raises(Malformed, match="foreign-group"):
            MembershipCodec(GROUP, 1_000).read(frame)
