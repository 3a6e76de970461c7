"""Output that takes its name only when it is whole, and scratch space where every worker can see it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from antiphon.atomic_write import Replacement
from antiphon.errors import UsageError


@contextmanager
def output_folder(out: str | None, marker: str, beside: str, *, shared: bool) -> Iterator[tuple[Path, Path]]:
    """Give (scratch, folder to write to); the latter becomes `out` at the end, or goes if there is none.

    An earlier output, known by its file `marker`, is replaced; anything else is left alone. `shared` puts the scratch
    next to `beside`, where the workers of a cluster see it, if no `out` says where.
    """
    final = Path(out).absolute() if out is not None else None
    if final is not None:
        if final.exists() and not (final / marker).exists() and (not final.is_dir() or any(final.iterdir())):
            raise UsageError(f"{out}: exists and holds something else; choose another --out")
        final.parent.mkdir(parents=True, exist_ok=True)
    near = final.parent if final is not None else Path(beside).absolute().parent if shared else None
    with (
        tempfile.TemporaryDirectory(prefix=".antiphon-", dir=near, ignore_cleanup_errors=True) as scratch,
        Replacement(final or Path(scratch, "out"), durable=final is not None) as fresh,
    ):
        fresh.mkdir()
        yield Path(scratch), fresh


def on_cluster(master: str | None) -> bool:
    """Whether workers may be in other processes than this machine's own."""
    return master is not None and not master.startswith("local")
