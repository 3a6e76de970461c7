"""Output that takes its name only when it is whole, and scratch space where every worker can see it."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from antiphon.atomic_write import Replacement
from antiphon.errors import UsageError
from antiphon.pipeline.store.location import Location, StorePath, copy_tree, location, remove_tree


@contextmanager
def output_folder(
    out: str | None, marker: str, beside: str, *, shared: bool, scratch: str | None = None
) -> Iterator[tuple[Location, Location]]:
    """Give (scratch, folder to write to); the latter becomes `out` at the end, or goes if there is none.

    An earlier output, known by its file `marker`, is replaced; anything else is left alone. `shared` says that the
    workers see nothing of this machine but what they share: the scratch is then next to `out` or to `beside`, whichever
    is in a store, else in the folder of `out`, if there is one. `scratch` names another place for it.

    On a disk the whole folder takes its name at once. In a store the marker comes last, and goes first.
    """
    final = None if out is None else location(out)
    if out is not None:
        refuse_to_overwrite(out, marker)
    with _scratch(_near(final, location(beside), shared, scratch)) as work:
        fresh = work / "out"
        if isinstance(final, Path) and isinstance(work, Path):
            final.parent.mkdir(parents=True, exist_ok=True)
            with Replacement(final) as fresh:
                fresh.mkdir()
                yield work, fresh
            return
        fresh.mkdir()
        yield work, fresh
        if isinstance(final, Path):
            with Replacement(final) as here:
                copy_tree(fresh, here, last=marker)
        elif final is not None:
            if (final / marker).is_file():
                (final / marker).unlink()
            remove_tree(final)
            copy_tree(fresh, final, last=marker)


def refuse_to_overwrite(out: str, marker: str) -> None:
    """Raise UsageError if there is something else than an earlier output, which is known by its file `marker`."""
    final = location(out)
    if final.exists() and not (final / marker).exists() and _holds_something(final):
        raise UsageError(f"{out}: exists and holds something else; choose another --out")


def _holds_something(folder: Location) -> bool:
    return not folder.is_dir() or any(True for _ in folder.iterdir())


def _near(final: Location | None, beside: Location, shared: bool, scratch: str | None) -> Location | None:
    """Return the folder to make the scratch in; None is this machine's own for such things."""
    if scratch is not None:
        return location(scratch)
    if not shared:
        return final.parent if isinstance(final, Path) else None
    if final is None or (isinstance(final, Path) and isinstance(beside, StorePath)):
        return beside.parent
    return final.parent


@contextmanager
def _scratch(near: Location | None) -> Iterator[Location]:
    """Make a folder for a while."""
    if isinstance(near, StorePath):
        folder = near / f".antiphon-{uuid.uuid4().hex[:12]}"
        try:
            yield folder
        finally:
            remove_tree(folder)
        return
    if near is not None:
        near.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".antiphon-", dir=near, ignore_cleanup_errors=True) as name:
        yield Path(name)
