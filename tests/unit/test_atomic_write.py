"""Whoever looks sees the old file or the whole new one; what is promised to be on the disk was brought there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

import pytest

from antiphon.atomic_write import Replacement, atomic_write


def test_bytes_text_and_a_function_that_writes(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "file"
    atomic_write(path, b"bytes")
    assert path.read_bytes() == b"bytes"
    atomic_write(path, "t\u00e9xt")
    assert path.read_text(encoding="utf-8") == "t\u00e9xt"
    atomic_write(path, lambda file: file.write(b"written"))
    assert path.read_bytes() == b"written"
    assert os.listdir(path.parent) == ["file"]


def test_the_old_file_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    atomic_write(path, b"old")
    with Replacement(path) as fresh:
        fresh.write_bytes(b"half")
        assert path.read_bytes() == b"old"
        fresh.write_bytes(b"whole")
    assert path.read_bytes() == b"whole"


def test_a_failure_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    atomic_write(path, b"old")

    def write_half(file: BinaryIO) -> None:
        file.write(b"half")
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        atomic_write(path, write_half)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_folder_takes_the_place_of_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    for content in ("first", "second"):
        with Replacement(path) as fresh:
            (fresh / "inner").mkdir(parents=True)
            (fresh / "inner" / content).write_text(content)
    assert [file.name for file in path.rglob("*") if file.is_file()] == ["second"]
    assert os.listdir(tmp_path) == ["folder"]


@pytest.mark.parametrize("durable", [True, False])
def test_file_then_rename_then_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def note_fsync(descriptor: int) -> None:
        done.append("sync " + Path(os.readlink(f"/proc/self/fd/{descriptor}")).name.split(".")[-1])
        fsync(descriptor)

    def note_replace(self: Path, target: Path) -> Path:
        done.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Path, "replace", note_replace)
    folder = tmp_path / "folder"
    atomic_write(folder / "file", b"content", durable=durable)
    assert done == (["sync unfinished", "rename", "sync folder"] if durable else ["rename"])
