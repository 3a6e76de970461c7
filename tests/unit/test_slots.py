"""A small file that is overwritten in place: whoever looks sees the old content or the whole new one."""

from __future__ import annotations

import errno
import os
import random
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon.live import slots
from antiphon.live.slots import content_of, overwrite

BLOCK = 4_096
OLD, NEW = b"old" * 100, b"new" * 120


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "file"


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count what waits for the disk, in the thread that writes."""
    calls: list[int] = []
    own = threading.get_ident()

    def noted(descriptor: int) -> None:
        if threading.get_ident() == own:
            calls.append(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(slots, "_bring_to_disk", noted)
    return calls


def images(before: bytes, after: bytes) -> Iterator[bytes]:
    """Give what a disk may hold after a write that was torn: some of its blocks, or the beginning of one, are new."""
    chance = random.Random(1)
    for end in (*range(0, len(after), len(after) // 30 + 1), len(after)):
        yield after[:end] + before[end:]
    for _ in range(10):
        chosen = [chance.choice((before, after)) for _ in range(0, len(after), BLOCK)]
        yield b"".join(one[at : at + BLOCK] for one, at in zip(chosen, range(0, len(after), BLOCK), strict=True))


def test_what_was_written_last_is_read(path: Path) -> None:
    for number in range(20):
        content = b"%d" % number * (1 + 300 * number)
        overwrite(path, content, may_wait=number % 3 == 1)
        assert content_of(path.read_bytes()) == content
    assert os.listdir(path.parent) == ["file"]


def test_a_write_waits_for_the_disk_once_and_one_that_may_wait_not_at_all(path: Path, synced: list[int]) -> None:
    overwrite(path, OLD)
    inode = path.stat().st_ino
    synced.clear()
    overwrite(path, NEW)
    assert len(synced) == 1
    overwrite(path, OLD, may_wait=True)
    assert len(synced) == 1
    assert path.stat().st_ino == inode
    assert content_of(path.read_bytes()) == OLD


def test_what_may_wait_is_brought_to_the_disk_by_another_thread(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overwrite(path, OLD)
    done, threads = threading.Event(), list[int]()

    def noted(descriptor: int) -> None:
        threads.append(threading.get_ident())
        done.set()

    monkeypatch.setattr(slots, "_bring_to_disk", noted)
    overwrite(path, NEW, may_wait=True)
    assert done.wait(10)
    assert threads != [threading.get_ident()]


def test_what_may_wait_does_not_wait_for_the_other_thread_either(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine that has to wait for a core."""
    overwrite(path, OLD)
    begun = threading.Event()
    monkeypatch.setattr(slots, "_bring_soon", lambda _: begun.set())
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(60)  # no other thread runs before this one waits for something
    try:
        overwrite(path, NEW, may_wait=True)
        assert not begun.is_set()
    finally:
        sys.setswitchinterval(interval_s)
    assert begun.wait(10)


@pytest.mark.parametrize("large", [b"", b"x" * 3 * BLOCK])
@pytest.mark.parametrize("writes", range(1, 5))
@pytest.mark.usefixtures("synced")
def test_a_torn_write_leaves_what_was_there(path: Path, writes: int, large: bytes) -> None:
    for number in range(writes):
        overwrite(path, large + OLD + b"%d" % number)
    before, old = path.read_bytes(), large + OLD + b"%d" % (writes - 1)
    overwrite(path, large + NEW)
    after = path.read_bytes()
    assert len(before) == len(after)
    seen = {content_of(image) for image in images(before, after)}
    assert seen == {old, large + NEW}
    for image in images(before, after):  # and the next write is as safe
        path.write_bytes(image)
        overwrite(path, b"next")
        assert content_of(path.read_bytes()) == b"next"
        assert content_of(image) in {content_of(torn) for torn in images(image, path.read_bytes())} | {b"next"}


@pytest.mark.parametrize("writes", range(1, 4))
@pytest.mark.usefixtures("synced")
def test_what_may_wait_may_be_lost_and_takes_nothing_with_it(path: Path, writes: int) -> None:
    """Neither when it is lost itself, nor when the write after it is torn before it is on the disk."""
    for number in range(writes):
        overwrite(path, OLD + b"%d" % number)
    synced, old = path.read_bytes(), OLD + b"%d" % (writes - 1)
    overwrite(path, b"waits", may_wait=True)
    overwrite(path, b"waits as well", may_wait=True)
    waiting = path.read_bytes()
    assert {content_of(image) for image in images(synced, waiting)} == {old, b"waits as well"}
    overwrite(path, NEW)
    after = path.read_bytes()
    for on_disk in images(synced, waiting):
        assert {content_of(image) for image in images(on_disk, after)} <= {old, b"waits as well", NEW}


def test_a_file_without_slots_is_its_own_content_and_gets_them(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"\x86 as it was")
    assert content_of(path.read_bytes()) == b"\x86 as it was"
    overwrite(path, NEW, may_wait=True)
    assert content_of(path.read_bytes()) == NEW


def test_a_file_that_was_cut_has_no_content(path: Path) -> None:
    """What is missing may have been the newest: an older vote would be taken for the last."""
    for content in (OLD, NEW):
        overwrite(path, content)
    whole = path.read_bytes()
    for length in (*range(0, len(whole), BLOCK), *range(100, len(whole), 53), len(whole) - 1):
        assert content_of(whole[:length]) == b""
    for more in (b"\0", b"\0" * BLOCK, b"\0" * len(whole)):
        assert content_of(whole + more) == b""


def test_an_error_of_the_disk_is_the_callers(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overwrite(path, OLD)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space"):
        overwrite(path, NEW)
    assert content_of(path.read_bytes()) == OLD
