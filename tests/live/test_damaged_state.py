"""Files of the state folder whose bytes are anything: they are refused in one line that names the file."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.errors import UsageError
from antiphon.live.storage import KeptState, StateFolder
from antiphon.protocol.membership.process import Saved
from antiphon.protocol.membership.views import NO_BALLOT, before_the_first
from antiphon.testing.disk import SimulatedDisk

KEPT = msgspec.msgpack.encode(
    KeptState(
        group="g",
        member="one",
        names={1: "one"},
        saved=msgspec.msgpack.encode(Saved(3, before_the_first((1, 2)), NO_BALLOT, None, None, remembers=True)),
    )
)


def read(content: bytes) -> bytes | None:
    disk = SimulatedDisk()
    file = StateFolder(disk, "/x", "g").member([], 1)
    file.write(b"")
    (path,) = disk.files(Path("/x"))
    disk.write(path, content)
    assert file.knows_view in (False, True)
    return file.read()


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.binary(max_size=60))
def test_any_bytes_in_the_state_folder(content: bytes) -> None:
    with pytest.raises(UsageError, match=r"^state: .* is damaged"):
        read(content)


def test_a_file_of_the_state_folder_that_ends_early() -> None:
    assert read(KEPT) is not None
    for length in range(len(KEPT)):
        with pytest.raises(UsageError, match=r"^state: .* is damaged"):
            read(KEPT[:length])
