"""What the tasks of ingesting share: what each reads, and what it says of its rows."""

from __future__ import annotations

import msgspec

from antiphon.pipeline.reading.mapping import Mapping
from antiphon.pipeline.reading.text import TextSpan
from antiphon.trace.run_file import RunFile


class FilePart(msgspec.Struct, frozen=True):
    """What one task reads: a file, some of a Parquet file's row groups, or a span of a text."""

    file: str
    row_groups: list[int] | None = None
    span: TextSpan | None = None


class IngestJob(msgspec.Struct, frozen=True):
    """A trace to be ingested, and where to."""

    root: str  # the folder above which no run.json is looked for
    mapping: Mapping
    folder: str
    splits: list[list[FilePart]] = []  # by task


class SpillFile(msgspec.Struct, frozen=True):
    """A file of rows parted by (run, member): which buckets it has, in order, and how many rows of each."""

    name: str
    buckets: list[int]
    rows: list[int]


class IngestPart(msgspec.Struct):
    """What one task says of its rows."""

    events: int = 0
    in_order: bool = True
    quarantined: dict[str, int] = msgspec.field(default_factory=dict)  # by event
    reasons: dict[str, int] = msgspec.field(default_factory=dict)  # why rows were put aside
    examples: dict[str, str] = msgspec.field(default_factory=dict)  # by reason, one row
    quarantine: str = ""  # the file that they went to, if any were
    promises: list[str] | None = None
    ends: bool | None = None  # what its run.json files say, if there are any
    spilled: list[SpillFile] = msgspec.field(default_factory=list)

    def note(self, found: RunFile | None) -> bool:
        """Note what the run.json of a file promises; return whether its runs have one global clock."""
        said = found is not None and found.ends
        self.ends = said if self.ends is None else self.ends and said
        if found is None:
            return False
        self.promises = sorted({*(self.promises or ()), *found.promises})
        return found.global_clock
