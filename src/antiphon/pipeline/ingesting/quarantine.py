"""Rows that cannot be read, kept beside the rest with a reason each."""

from __future__ import annotations

from collections import Counter

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from antiphon.atomic_write import Replacement
from antiphon.pipeline.ingesting.job import IngestPart
from antiphon.pipeline.reading.rows import UnreadableRow
from antiphon.pipeline.store.layout import QUARANTINE
from antiphon.pipeline.store.location import Upload, location, replacement

QUARANTINE_SCHEMA = pa.schema(
    [
        ("file", pa.string()),
        ("row", pa.int64()),
        ("reason", pa.string()),
        ("event", pa.string()),
        ("content", pa.string()),
    ]
)


EXAMPLE_CHARACTERS = 300


def example_of(row: UnreadableRow) -> str:
    """Return a row to be shown, and where it is."""
    where = f"{location(row.file).name} row {row.row}: " if row.file and row.row is not None else ""
    return f"{where}{row.content[:EXAMPLE_CHARACTERS]}"


class Quarantine:
    """Rows that cannot be read, written beside the rest with a reason each; no file is begun before there is one."""

    def __init__(self, folder: str, name: str) -> None:
        self.path = location(folder) / QUARANTINE / f"{name}.parquet"
        self.file: Replacement | Upload | None = None
        self.counts: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.examples: dict[str, str] = {}  # reason -> one such row, and where it is
        self.writer: pq.ParquetWriter | None = None

    def add(self, rubbish: list[UnreadableRow]) -> None:
        """Put rows aside."""
        if not rubbish:
            return
        if self.writer is None:
            self.file = replacement(self.path)
            self.writer = pq.ParquetWriter(self.file.fresh, QUARANTINE_SCHEMA)
        self.writer.write_table(
            pa.Table.from_pylist([msgspec.structs.asdict(row) for row in rubbish], QUARANTINE_SCHEMA)
        )
        self.counts.update(row.event or "" for row in rubbish)
        self.reasons.update(row.reason for row in rubbish)
        for row in rubbish:
            if row.reason not in self.examples:
                self.examples[row.reason] = example_of(row)

    def close(self, part: IngestPart) -> None:
        """Finish the file; note how many rows were put aside, by event and by reason."""
        if self.file is not None and self.writer is not None:
            self.writer.close()
            self.file.commit()
            part.quarantine = self.path.name
        part.quarantined, part.reasons, part.examples = dict(self.counts), dict(self.reasons), self.examples
