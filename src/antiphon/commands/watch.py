"""`antiphon watch`: rolling verdicts on a directory into which members are still writing their traces."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from antiphon.commands.log_options import add_log_options, mapping_of, show_reading
from antiphon.commands.quarantine import show_reasons
from antiphon.commands.spark_options import add_spark_options, spark_session
from antiphon.console import show_table
from antiphon.errors import UsageError
from antiphon.wording import count, duration

if TYPE_CHECKING:
    from antiphon.pipeline.results import WatchAlarm, WatchCommit, WatchResult
    from antiphon.pipeline.store.location import Location


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "directory",
        metavar="DIR",
        help="directory or URI where Parquet files of events appear, whole, or logs of lines grow",
    )
    parser.add_argument(
        "--checkpoint",
        metavar="DIR",
        help="state and alarms, kept over restarts (default: DIR/_watch)",
    )
    parser.add_argument(
        "--once",
        "--available-now",
        dest="once",
        action="store_true",
        help="read what is there, conclude as if nothing more comes, and stop",
    )
    parser.add_argument(
        "--files", type=int, default=512, metavar="N", help="read at most N files in one batch (default: 512)"
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=30.0,
        metavar="S",
        help="seconds of the trace's time that a delivery waits for its send to be logged (default: 30)",
    )
    add_log_options(parser)
    add_spark_options(parser)
    parser.epilog = "example: antiphon watch out/live --checkpoint out/watch"


def run(args: argparse.Namespace) -> int:
    """Watch until it is interrupted, or all is read; the exit code is that of the verdicts."""
    from antiphon.pipeline.results import as_json
    from antiphon.pipeline.store.location import location
    from antiphon.pipeline.watch import DirectoryWatch
    from antiphon.pipeline.watch.directory_watch import require_directory
    from antiphon.trace.verdict import deciding, exit_code

    directory = location(args.directory)
    require_directory(str(directory))
    checkpoint = str(location(args.checkpoint) if args.checkpoint else directory / "_watch")
    with _alone(location(checkpoint)), spark_session(args, f"antiphon watch {args.directory}") as spark:
        watcher = DirectoryWatch(
            spark,
            str(directory),
            checkpoint,
            _BatchReporter(args),
            files_max=max(1, args.files),
            patience_s=args.patience,
            mapping=mapping_of(args),
        )

        def go_on() -> bool:
            spark.interrupts.check()
            return True

        try:
            watcher.run(once=args.once, go_on=go_on)
        except KeyboardInterrupt:  # a batch under way is cut off; the next start does it again
            if args.once:
                raise  # not all that is there was read: nothing to conclude from
            spark.interrupts.answer()
        final = watcher.conclude() if args.once else watcher.sum
    if args.once and final.missing and not final.runs:
        path, why = next(iter(final.missing.items()))
        raise UsageError(f"{path}: {why}")
    result = _result(args.directory, checkpoint, final)
    if args.json:
        print(as_json(result))
    else:
        _show(result)
    verdicts = final.verdicts()
    return exit_code([verdicts[name] for name in deciding(verdicts, final.promises)])


@contextlib.contextmanager
def _alone(checkpoint: Location) -> Iterator[None]:
    """Keep others from a checkpoint on this machine's disks; in a store it shows when the second commits a batch."""
    from antiphon.pipeline.watch.directory_watch import IN_USE

    if not isinstance(checkpoint, Path):
        yield
        return
    checkpoint.mkdir(parents=True, exist_ok=True)
    with (checkpoint / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"{checkpoint}: {IN_USE}") from None
        yield


class _BatchReporter:
    """Says after each batch what was found, and when reading falls behind."""

    BATCHES = 3  # that the files waiting must grow in a row

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.waiting: list[int] = []
        self.named: set[str] = set()  # of what could not be read

    def __call__(self, now: WatchCommit, alarms: list[WatchAlarm], seconds: float, waiting: int) -> None:
        if not self.args.json:
            for alarm in alarms:
                where = f", step {alarm.step}" if alarm.step else ""
                print(f"ALARM {alarm.guarantee}, run {alarm.run}{where}: {alarm.why}", flush=True)
        verdicts = ", ".join(f"{name} {verdict}" for name, verdict in now.verdicts().items())
        lag = ""
        if now.lag is not None and now.lag.unstable:
            age = "" if now.lag.oldest_ns is None else f", the oldest for {duration(now.lag.oldest_ns)}"
            lag = f"; {now.lag.unstable:,} not yet stable{age} (member {now.lag.behind} has marked least)"
        rows = f"; {now.waiting:,} rows wait for a send of {now.waits_for}" if now.waiting else ""
        if now.quiet is not None:
            rows += f"; nothing from member {now.quiet.member} for {duration(now.quiet.silent_ns)}"
        print(
            f"batch {now.batch}: {now.events:,} events, {now.events_per_s:,.0f}/s; {verdicts}{lag}{rows}",
            file=sys.stderr,
            flush=True,
        )
        for path in sorted(now.missing.keys() - self.named):
            self.named.add(path)
            print(
                f"not read: {path}: {now.missing[path]}; no guarantee can be said to hold without it", file=sys.stderr
            )
        if now.behind is not None and not self.args.once:
            print(
                f"behind: {now.behind.files:,} files with about {now.behind.events:,} events wait, the first for "
                f"{duration(int(now.behind.seconds * 1e9))}",
                file=sys.stderr,
                flush=True,
            )
        self.waiting = [*self.waiting, waiting][-self.BATCHES - 1 :]
        growing = len(self.waiting) > self.BATCHES and all(
            later > earlier for earlier, later in zip(self.waiting, self.waiting[1:], strict=False)
        )
        if growing and not self.args.once:
            print(
                f"falling behind: {waiting:,} files wait, more after each of the last {self.BATCHES} batches; "
                f"reading {now.events_per_s:,.0f} events/s",
                file=sys.stderr,
                flush=True,
            )


def _result(directory: str, checkpoint: str, final: WatchCommit) -> WatchResult:
    from antiphon.pipeline.results import NOT_WATCHED, WatchGuarantee, WatchResult

    verdicts, promises = final.verdicts(), final.promises or ()
    return WatchResult(
        directory=directory,
        checkpoint=checkpoint,
        batches=final.batch + 1,
        files=final.files,
        runs=final.runs,
        events=final.events,
        waiting=final.waiting,
        live=final.live,
        quarantined=sum(final.quarantined.values()),
        quarantine_reasons=final.quarantine_reasons,
        quarantine_examples=final.quarantine_examples,
        missing=final.missing,
        alarms=final.alarms,
        lag=final.lag,
        quiet=final.quiet,
        behind=final.behind,
        names=final.names,
        times=final.times,
        events_per_s=round(final.events_per_s),
        guarantees={
            name: WatchGuarantee(
                verdicts[name], name in promises, found.examined, found.violations, bool(found.inexact)
            )
            for name, found in final.findings.items()
        },
        not_judged=NOT_WATCHED,
    )


def _show(result: WatchResult) -> None:
    aside = f"; {count(result.quarantined, 'row')} quarantined" if result.quarantined else ""
    print(
        f"{result.directory}: {count(result.events, 'event')} of {count(result.runs, 'run')} in "
        f"{count(result.files, 'file')}, {count(result.batches, 'batch', 'batches')}; "
        f"{count(result.live, 'message')} kept, {count(result.waiting, 'row')} waiting{aside}"
    )
    show_table(
        ("guarantee", "verdict", "promised", "examined", "violations", ""),
        [
            (
                name,
                found.verdict,
                "yes" if found.promised else "-",
                f"{found.examined:,}",
                f"{found.violations:,}",
                "(something came too late to be judged: antiphon check decides)" if found.inexact else "",
            )
            for name, found in result.guarantees.items()
        ],
        numbers=(3, 4),
    )
    for name, why in result.not_judged.items():
        print(f"{name} is not judged: {why.replace('DIR', result.directory)}")
    show_reading(result.names, result.times)
    show_reasons(result.quarantine_reasons, result.quarantine_examples)
    for path, why in result.missing.items():
        print(f"not read: {path}: {why}")
    print(f"{count(result.alarms, 'alarm')}; state and alarms are in {result.checkpoint}")
