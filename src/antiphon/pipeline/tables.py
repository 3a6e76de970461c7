"""Check and measure a DataFrame or a trace from a program: a typed result and DataFrames come out.

    from antiphon import pipeline

    checked = pipeline.check(spark.table("prod.group_events"), mapping={"columns": {"seq": "message_number"}})
    checked.result.guarantees["causal"].verdict
    checked.witnesses.show()
    pipeline.measure("s3a://logs/monday").tables["latency"].show()

Nothing runs before it is asked for. Spark then computes a DataFrame once, in tasks that part its rows; rows never come
to the driver. `JOBS` says how many Spark jobs there are.
"""

from __future__ import annotations

import atexit
import functools
import os
import tempfile
import uuid
from collections.abc import Collection
from collections.abc import Mapping as Dictionary
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
import pyarrow as pa

from antiphon.errors import UsageError
from antiphon.pipeline.checking import CheckOptions, check_layout
from antiphon.pipeline.ingesting import ingest_frame
from antiphon.pipeline.ingesting.frame import FrameFacts
from antiphon.pipeline.ingesting.keep import LaidOut, TableSource, keep_layout, keep_trace, lay_out_trace
from antiphon.pipeline.ingesting.quarantine import QUARANTINE_SCHEMA
from antiphon.pipeline.measuring import measure_layout
from antiphon.pipeline.measuring.job import TABLES
from antiphon.pipeline.reading.mapping import Mapping, load_mapping, make_mapping
from antiphon.pipeline.results import CheckResult, MeasureResult
from antiphon.pipeline.session import Session, join_session, open_session
from antiphon.pipeline.store.layout import QUARANTINE, Totals
from antiphon.pipeline.store.location import Location, copy_tree, location, remove_tree
from antiphon.pipeline.store.output import output_folder
from antiphon.pipeline.store.table import TABLE_FILE
from antiphon.pipeline.verdicts import HappenedBefore
from antiphon.trace.schema import ALL_GUARANTEES
from antiphon.trace.verdict import Witness, WitnessEvent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Source: TypeAlias = "DataFrame | str | os.PathLike[str] | TraceTable"
MappingLike: TypeAlias = Mapping | str | os.PathLike[str] | Dictionary[str, Any]

JOBS: Final[dict[str, tuple[str, ...]]] = {
    "ingest": ("read", "sort"),  # besides the shuffles that the DataFrame has of its own
    "check": ("encode", "compare"),  # also, where needed: numbers, encode again, witnesses
    "measure": ("measure", "compare", "sum"),
}

_VERDICTS: Final = "guarantee string, verdict string, promised boolean, examined long, violations long"
_WITNESSES: Final = (
    "guarantee string, run string, member int, name string, why string, "
    "events array<struct<member: int, step: long, event: string, sender: int, seq: long>>"
)


class TraceTable:
    """A trace, laid out for checks: ingested once, when it is first needed, then checked and measured at will."""

    def __init__(
        self, session: Session, source: DataFrame | str, folder: Location, mapping: Mapping | None, about: FrameFacts
    ):
        self.session, self.folder = session, folder
        self._source, self._mapping, self._about = source, mapping, about

    @functools.cached_property
    def _laid_out(self) -> LaidOut:
        """The rows, laid out; a kept table is used as it lies."""
        folder = self.folder / "layout"
        if isinstance(self._source, str):
            return lay_out_trace(self.session, self._source, folder, self._mapping)
        mapping = self._mapping or Mapping()
        return LaidOut(folder, ingest_frame(self.session, self._source, folder, mapping, self._about), mapping)

    @property
    def totals(self) -> Totals:
        """What there is: runs, members, events, and what was put aside. Asking for it ingests the trace."""
        return self._laid_out.totals

    @property
    def layout(self) -> Location:
        """Where the rows lie, once they have been ingested."""
        return self._laid_out.folder

    @property
    def mapping(self) -> Mapping:
        """How the rows were read."""
        return self._laid_out.mapping

    def keep(self, out: str | os.PathLike[str]) -> str:
        """Keep the laid-out rows as a table at a path or URI, as `antiphon ingest --out` does; return where it is.

        `check`, `measure` and the commands take it instead of the source. One that is there already is replaced.
        """
        where = os.fspath(out)
        with output_folder(where, TABLE_FILE, where, shared=not self.session.is_local) as (_, folder):
            if isinstance(self._source, str):
                keep_trace(self.session, self._source, folder, self._mapping, in_place=False)
            else:
                copy_tree(self.layout, folder)
                keep_layout(self.session, folder, self._laid_out, TableSource(), in_place=False)
        return where

    @property
    def names(self) -> DataFrame:
        """A row for each member, or sender, that has a name: its number in results, and the name."""
        return self.session.spark.createDataFrame(sorted(self.totals.names.items()), "member int, name string")

    def frame(self, folder: Location, schema: pa.Schema) -> DataFrame:
        """Return a table of Parquet files as a DataFrame, also where there is none of them."""
        from pyspark.sql.pandas.types import from_arrow_schema

        spark, kind = self.session.spark, from_arrow_schema(schema)
        files = sorted(str(file) for file in folder.glob("*.parquet"))
        return spark.read.schema(kind).parquet(*files) if files else spark.createDataFrame([], kind)


class TraceCheck:
    """What a check finds; it runs when any of this is first asked for."""

    def __init__(self, table: TraceTable, options: CheckOptions) -> None:
        self.table, self.options = table, options

    @functools.cached_property
    def result(self) -> CheckResult:
        """Verdicts, counts and witnesses, as `antiphon check --json` prints them."""
        scratch = self.table.folder / f"check-{uuid.uuid4().hex[:12]}"
        options = msgspec.structs.replace(
            self.options,
            implied_own_deliveries=self.table.mapping.own_deliveries == "implied",
            unrecorded_sends=self.table.mapping.sends == "unrecorded",
        )
        try:
            return check_layout(self.table.session, self.table.layout, self.table.totals, scratch, options)
        finally:
            remove_tree(scratch)

    @functools.cached_property
    def verdicts(self) -> DataFrame:
        """A row for each guarantee."""
        rows = [
            (name, found.verdict, found.promised, found.examined, found.violations)
            for name, found in self.result.guarantees.items()
        ]
        return self.table.session.spark.createDataFrame(rows, _VERDICTS)

    @functools.cached_property
    def witnesses(self) -> DataFrame:
        """A row for each witness of a violation, with the events that show it; the member's name if it has one."""
        names = self.result.names
        rows = [
            (name, one.run, one.member, names.get(one.member), one.why, [_event(one, event) for event in one.events])
            for name, found in self.result.guarantees.items()
            for one in found.witnesses
        ]
        return self.table.session.spark.createDataFrame(rows, _WITNESSES)

    @functools.cached_property
    def quarantine(self) -> DataFrame:
        """A row for each row that could not be read, and why."""
        return self.table.frame(self.table.layout / QUARANTINE, QUARANTINE_SCHEMA)


def _event(witness: Witness, event: WitnessEvent) -> tuple[int, int, str, int | None, int | None]:
    member = witness.member if event.member is None else event.member
    return member, event.step, event.event, event.sender, event.seq


class TraceMeasure:
    """What measuring finds; it runs when any of this is first asked for."""

    def __init__(self, table: TraceTable) -> None:
        self.table = table
        self._out = table.folder / "tables"

    @functools.cached_property
    def result(self) -> MeasureResult:
        """The summary, as `antiphon measure --json` prints it."""
        scratch = self.table.folder / f"measure-{uuid.uuid4().hex[:12]}"
        try:
            return measure_layout(self.table.session, self.table.layout, self.table.totals, self._out, scratch)
        finally:
            remove_tree(scratch)

    @functools.cached_property
    def tables(self) -> dict[str, DataFrame]:
        """The tables that `antiphon measure --out` writes, by name."""
        assert self.result is not None
        return {name: self.table.frame(self._out / name, schema) for name, schema in TABLES.items()}


def ingest(
    source: Source,
    *,
    mapping: MappingLike | None = None,
    promises: Collection[str] = (),
    global_clock: bool = False,
    scratch: str | os.PathLike[str] | None = None,
    spark: SparkSession | None = None,
) -> TraceTable:
    """Return a trace as a table that `check` and `measure` share, so that its rows are read and sorted once.

    `source` is a DataFrame or the path of a trace; `mapping` says which columns and events are what: a mapping file, or
    a dictionary with its content. `promises` and `global_clock` say of a DataFrame what a run.json says of a trace.
    `scratch` is a folder or URI that all workers of a cluster see; what is left there goes when the process ends.
    """
    if isinstance(source, TraceTable):
        return source
    about = FrameFacts(promises=_known(promises), global_clock=global_clock)
    if isinstance(source, (str, os.PathLike)):
        session = join_session(spark) if spark is not None else open_session()
        return TraceTable(session, os.fspath(source), _folder(session, scratch), mapping_of(mapping), about)
    session = join_session(source.sparkSession)
    return TraceTable(session, source, _folder(session, scratch), mapping_of(mapping), about)


def check(
    source: Source,
    *,
    guarantees: Collection[str] | None = None,
    uniform: bool = False,
    happened_before: HappenedBefore = "deliver",
    witnesses: int = 10,
    mapping: MappingLike | None = None,
    promises: Collection[str] = (),
    global_clock: bool = False,
    scratch: str | os.PathLike[str] | None = None,
    spark: SparkSession | None = None,
) -> TraceCheck:
    """Check a DataFrame, a trace or an ingested table; what is asked of the result decides what runs.

    The options are those of `antiphon check`; for the others see `ingest`.
    """
    table = ingest(source, mapping=mapping, promises=promises, global_clock=global_clock, scratch=scratch, spark=spark)
    options = CheckOptions(
        guarantees=_known(ALL_GUARANTEES if guarantees is None else guarantees),
        named=guarantees is not None,
        uniform=uniform,
        happened_before=happened_before,
        witnesses=witnesses,
    )
    return TraceCheck(table, options)


def measure(
    source: Source,
    *,
    mapping: MappingLike | None = None,
    global_clock: bool = False,
    scratch: str | os.PathLike[str] | None = None,
    spark: SparkSession | None = None,
) -> TraceMeasure:
    """Measure a DataFrame, a trace or an ingested table; for the options see `ingest`."""
    return TraceMeasure(ingest(source, mapping=mapping, global_clock=global_clock, scratch=scratch, spark=spark))


def mapping_of(given: MappingLike | None) -> Mapping | None:
    """Return a mapping that is given as such, as a file or as a file's content."""
    if given is None or isinstance(given, Mapping):
        return given
    if isinstance(given, (str, os.PathLike)):
        return load_mapping(os.fspath(given))
    return make_mapping(dict(given), "mapping")


def _known(guarantees: Collection[str]) -> tuple[str, ...]:
    for name in guarantees:
        if name not in ALL_GUARANTEES:
            raise UsageError(f"no guarantee is called {name!r}; the guarantees are {', '.join(ALL_GUARANTEES)}")
    return tuple(name for name in ALL_GUARANTEES if name in guarantees)


def _folder(session: Session, scratch: str | os.PathLike[str] | None) -> Location:
    """Return a new folder that workers see; it goes when the process ends."""
    if scratch is None and not session.is_local:
        raise UsageError(
            "the workers of this Spark may not see this machine's temporary folder; "
            "scratch=... names a folder or URI that all of them see"
        )
    folder = location(scratch or tempfile.gettempdir()) / f"antiphon-{uuid.uuid4().hex}"
    atexit.register(remove_tree, folder)
    return folder
