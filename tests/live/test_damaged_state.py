"""Files of the state folder whose bytes are anything: they are refused in one line that names the file."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.errors import UsageError
from antiphon.live.storage import KeptState, Memory, StateFolder, digest
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


def test_a_file_of_another_group_or_member_is_refused() -> None:
    """One that was copied to where another looks for its own would make two processes one."""
    disk = SimulatedDisk()
    first = StateFolder(disk, "/x", "g").member([], 1, {1: "one"})
    first.write(msgspec.msgpack.decode(KEPT, type=KeptState).saved)
    (content,) = disk.files(Path("/x")).values()
    for group, name in (("h", "one"), ("g", "two")):
        other = StateFolder(disk, "/y", group).member([], 1, {1: name})
        other.write(b"")
        (path,) = disk.files(Path("/y"))
        disk.write(path, content)
        with pytest.raises(UsageError, match=rf"^state: .* is of one in 'g', not of {name} in '{group}'; give each"):
            other.read()
        disk.replace(Path("/y"), {})


class BrokenDisk(SimulatedDisk):
    """A disk that reads nothing."""

    def read(self, path: Path) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))


def test_a_disk_that_cannot_be_read_or_written_is_named() -> None:
    """What could not be read was once taken for not being there: the member made itself another name."""
    folder = StateFolder(BrokenDisk(), "/x", "g")
    for read in (
        lambda: folder.memory("a:1"),
        lambda: folder.memory_of_an_address(("a", 1)),
        folder.member([], 1).read,
    ):
        with pytest.raises(UsageError, match=r"^state: /x/.*: Input/output error; mend that, or name a folder"):
            read()
    disk = SimulatedDisk()
    disk.fails = lambda path: errno.ENOSPC
    folder = StateFolder(disk, "/x", "g")
    for write in (lambda: folder.remember("a:1", Memory(name="n")), lambda: folder.member([], 1).write(b"")):
        with pytest.raises(UsageError, match=r"^state: /x/.*: No space left on device; mend that, or name a folder"):
            write()


def test_founders_that_are_no_text_are_damaged() -> None:
    disk = SimulatedDisk()
    folder = StateFolder(disk, "/x", "g")
    disk.write(Path("/x") / f"{digest('g', 'a:1')}.founders", b"\xff\xfe")
    with pytest.raises(UsageError, match=r"^state: .*founders is damaged"):
        folder.memory_of_an_address(("a", 1))
