"""Which files a folder of a trace holds, at any depth; what begins with . or _ is somebody's bookkeeping."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from antiphon.errors import UsageError


def _refuse(problem: UsageError) -> None:
    raise problem


def visible_files(
    root: Path, wanted: Callable[[str], bool], on_problem: Callable[[UsageError], None] = _refuse
) -> Iterator[Path]:
    """Yield the files below a folder whose names are wanted, in order; a link to a folder is that folder.

    A folder is visited once, however many links lead to it. What cannot be looked into is an error: a trace of which a
    part is missing would be taken for whole. `on_problem` may note it instead and go on.
    """
    visited: set[tuple[int, int]] = set()

    def cannot_list(error: OSError) -> None:
        on_problem(UsageError(f"{error.filename}: {error.strerror}"))

    for folder, folders, files in os.walk(root, followlinks=True, onerror=cannot_list):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
        status = os.stat(folder)
        if (status.st_dev, status.st_ino) in visited:
            folders.clear()
            continue
        visited.add((status.st_dev, status.st_ino))
        for name in sorted(files):
            path = Path(folder, name)
            if name.startswith((".", "_")):
                continue
            if path.is_symlink() and not path.exists():
                on_problem(UsageError(f"{path}: a link to {os.readlink(path)}, which is not there; mend or remove it"))
            elif wanted(name) and path.is_file():
                yield path
