"""Watch a stream that Spark reads (`spark.readStream`): each of its micro-batches is a batch of the watch.

    watched = antiphon.pipeline.watch_stream(spark.readStream.table("events"), "out/watch")
    ...
    print(watched.verdicts())
    watched.stop()

Rows may come in any order within a micro-batch; from one to the next each member's steps go on. Spark keeps in the
checkpoint what it has read of the stream, and the watch with each commit which micro-batch that was: one that Spark
repeats after a crash is not judged again.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from antiphon.errors import UsageError
from antiphon.pipeline.ingesting.frame import fit_frame
from antiphon.pipeline.reading.mapping import Mapping
from antiphon.pipeline.results import WatchAlarm, WatchCommit, read_alarms
from antiphon.pipeline.session import join_session
from antiphon.pipeline.store.location import location, remove_tree, replacement, use_settings
from antiphon.pipeline.tables import MappingLike, mapping_of
from antiphon.pipeline.watch.directory_watch import PATIENCE_S, DirectoryWatch
from antiphon.trace.verdict import VerdictName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


class StreamWatch:
    """A watch of a stream at work: its query, and what it has found so far."""

    def __init__(self, watch: DirectoryWatch, query: StreamingQuery) -> None:
        self._watch, self.query = watch, query

    @property
    def found(self) -> WatchCommit:
        """What was found up to the last micro-batch."""
        return self._watch.sum

    def verdicts(self) -> dict[str, VerdictName]:
        """Return the verdicts so far."""
        return self.found.verdicts()

    def alarms(self) -> list[WatchAlarm]:
        """Return all alarms so far."""
        return read_alarms(location(self._watch.checkpoint))

    def stop(self) -> WatchCommit:
        """Stop the query; returns what the verdicts are if nothing more comes."""
        self.query.stop()
        return self._watch.conclude()


def watch_stream(
    stream: DataFrame,
    checkpoint: str | os.PathLike[str],
    *,
    mapping: MappingLike | None = None,
    patience_s: float = PATIENCE_S,
    tell: Callable[[WatchCommit, list[WatchAlarm]], None] = lambda *_: None,
    trigger: dict[str, Any] | None = None,
) -> StreamWatch:
    """Judge a stream as it comes; state and alarms are kept in `checkpoint`, a directory or URI that all workers see.

    `mapping` is that of `check`; `tell` is called after each micro-batch with what was found so far and some of its
    alarms; `trigger` is what `DataStreamWriter.trigger` takes, for example `{"availableNow": True}`.
    """
    if not stream.isStreaming:
        raise UsageError("watch_stream takes a stream (spark.readStream); antiphon.pipeline.check takes a DataFrame")
    session = join_session(stream.sparkSession)
    rows, fitted = fit_frame(stream, mapping_of(mapping) or Mapping())
    spool = str(location(checkpoint) / "spool")
    location(spool).mkdir(parents=True, exist_ok=True)
    one = DirectoryWatch(
        session,
        spool,
        str(location(checkpoint)),
        lambda now, alarms, *_: tell(now, alarms),
        patience_s=patience_s,
        mapping=fitted,
    )
    storage = session.storage

    def judge(frame: DataFrame, number: int) -> None:
        if number <= one.sum.stream_batch:
            return  # judged before Spark could note it
        folder = f"{spool}/{number:010}"
        spilled = frame.mapInArrow(lambda batches: _spill(batches, folder, storage), "file string").collect()
        one.batch([row.file for row in spilled], stream_batch=number)
        remove_tree(location(folder))

    writer = rows.writeStream.foreachBatch(judge).option("checkpointLocation", str(location(checkpoint) / "stream"))
    return StreamWatch(one, (writer.trigger(**trigger) if trigger else writer).start())


def _spill(batches: Iterable[pa.RecordBatch], folder: str, storage: dict[str, str]) -> Iterator[pa.RecordBatch]:
    """Leave one partition's rows as a file; only files that a task reports count."""
    rows = [batch for batch in batches if batch.num_rows]
    if rows:
        use_settings(storage)
        path = location(folder) / f"{uuid.uuid4().hex}.parquet"
        with replacement(path) as fresh:
            pq.write_table(pa.Table.from_batches(rows), fresh)
        yield pa.RecordBatch.from_pydict({"file": [str(path)]})
