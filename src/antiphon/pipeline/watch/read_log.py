"""Read one file of a batch: a trace's rows, or those of another system's log; of a log that grows what is new in it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from antiphon.errors import UsageError
from antiphon.pipeline.ingesting.foreign import has_text, sort_out
from antiphon.pipeline.ingesting.foreign.form import LogForm
from antiphon.pipeline.ingesting.foreign.records import read_records
from antiphon.pipeline.reading import read_batches
from antiphon.pipeline.reading.mapping import Mapping
from antiphon.pipeline.reading.rows import UnreadableRow
from antiphon.pipeline.store.files import is_csv
from antiphon.pipeline.store.location import facts_of, is_utf16, location, open_binary
from antiphon.pipeline.watch.seen_files import FileVersion, LogPosition, fingerprint, grows, version_of

PART_BYTES_MAX: Final = 256 << 20  # of a log that one batch reads


class FileRows(msgspec.Struct):
    """What was read of a file."""

    version: FileVersion | None  # None: it was replaced while it was read, and what was read does not count
    traced: list[pa.Table] = []  # rows with the trace's columns
    foreign: list[pa.Table] = []  # rows of another system's log
    bad: list[UnreadableRow] = []


class FileReader(msgspec.Struct, frozen=True):
    """Reads files as a mapping says."""

    mapping: Mapping
    form: LogForm
    to_the_end: bool  # a last line that has no end counts

    def read(self, file: str, number: int, begin: LogPosition) -> FileRows:
        """Read what is new in a file, which is the so manieth of its batch."""
        if not grows(file):
            found = FileRows(version_of(file))
            self._read_rows(file, file, number, found)
            return found if version_of(file) == found.version else FileRows(None)
        text, version = self._new_lines(file, begin)
        found = FileRows(version)
        if not text:
            return found
        with tempfile.TemporaryDirectory() as folder:
            said = [one for one in Path(file).parts[:-1] if "=" in one]  # by folders, as in Hive
            part = Path(folder, *said, f"part{Path(file).suffix}")
            part.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(text)
            try:
                self._read_rows(str(part), file, number, found)
            except UsageError as problem:
                raise UsageError(str(problem).replace(str(part), file)) from None
        found.bad = [
            msgspec.structs.replace(row, file=file, row=None if row.row is None else row.row + begin.rows)
            for row in found.bad
        ]
        return found

    def _new_lines(self, file: str, begin: LogPosition) -> tuple[bytes, FileVersion]:
        """Return the new lines of a log, behind its header if it has one, and how far it has been read now."""
        size, changed = facts_of(location(file))
        has_header = is_csv(file)
        with open_binary(location(file)) as log:
            if is_utf16(log.read(2)):
                raise UsageError(f"{file}: in UTF-16, of which only the whole can be read: antiphon check")
            log.seek(0)
            header = log.readline() if has_header and begin.read else b""
            log.seek(begin.read)
            text = log.read(min(PART_BYTES_MAX, size - begin.read))
            whole = begin.read + len(text) >= size
            if not (whole and self.to_the_end):
                text = text[: text.rfind(b"\n") + 1]
            read = begin.read + len(text)
            position = LogPosition(read, begin.rows + text.count(b"\n") - (has_header and not begin.read))
            version = FileVersion(size if whole else read, changed, fingerprint(log, read), position)
        return header + text if text else b"", version

    def _read_rows(self, file: str, origin: str, number: int, found: FileRows) -> None:
        if self.mapping.is_of_a_log or (grows(file) and has_text([file], self.mapping)):
            self._read_foreign(file, origin, number, found)
            return
        try:
            for batch in read_batches(file, None, self.mapping, whole=True):
                found.traced.append(batch.good)
                found.bad += batch.bad
        except UsageError:
            if grows(file) or not has_text([file], self.mapping):
                raise
            self._read_foreign(file, origin, number, found)
            return
        # to look at a file for names costs more than to read most
        if found.bad and not any(len(rows) for rows in found.traced) and has_text([file], self.mapping):
            found.traced, found.bad = [], []
            self._read_foreign(file, origin, number, found)

    def _read_foreign(self, file: str, origin: str, number: int, found: FileRows) -> None:
        form = self.form.for_file(origin)
        for records in read_records(file, self.mapping.preset, form, whole=True):
            rows, unreadable = sort_out(records, form, file, number)
            found.foreign.append(rows)
            found.bad += unreadable
