"""The options that every command on Spark takes, and the session that they ask for."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from antiphon.commands.log_options import mapping_of
from antiphon.progress import Progress

if TYPE_CHECKING:
    from antiphon.pipeline.reading.mapping import Mapping
    from antiphon.pipeline.session import Session
    from antiphon.pipeline.store.location import Location


def add_spark_options(parser: argparse.ArgumentParser, *, scratch: bool = False) -> None:
    """Declare the options; `scratch` is for commands whose tasks leave files for each other."""
    parser.add_argument(
        "--master", metavar="URL", help="Spark master (default: local[*], or what spark-submit or SPARK_REMOTE says)"
    )
    parser.add_argument(
        "--conf", metavar="KEY=VALUE", action="append", default=[], help="a Spark setting; may be repeated"
    )
    if scratch:
        parser.add_argument(
            "--scratch",
            metavar="DIR",
            help="a folder or URI that all workers see (default: next to --out or to the trace on a cluster)",
        )


class ScratchOptions(TypedDict):
    """Where the tasks of a command may leave files for each other."""

    shared: bool
    scratch: str | None


def scratch_of(args: argparse.Namespace) -> ScratchOptions:
    """Return where the tasks of a command may leave files for each other."""
    from antiphon.pipeline.session import on_cluster

    return {"shared": on_cluster(args.master), "scratch": args.scratch}


def _look_ahead(args: argparse.Namespace, marker: str, mapping: Mapping | None) -> None:
    """Say what is wrong with a command's trace and --out before Spark starts; let --conf say how to reach stores."""
    from antiphon.pipeline.ingesting.keep import look_at_trace
    from antiphon.pipeline.session import storage_settings
    from antiphon.pipeline.store.location import is_uri, use_settings
    from antiphon.pipeline.store.output import refuse_to_overwrite

    use_settings(storage_settings(args.conf))
    if not is_uri(args.trace):  # a store may be reached only as Spark says
        look_at_trace(args.trace, mapping)
    if args.out is not None and not is_uri(args.out):
        refuse_to_overwrite(args.out, marker)


def say_stale(stale: str) -> None:
    """Say on stderr how a kept table's source has changed since, if it has."""
    if stale:
        print(f"antiphon: stale: {stale}", file=sys.stderr)


@contextmanager
def spark_session(args: argparse.Namespace, name: str) -> Iterator[Session]:
    """Open the session that a command's arguments ask for; stopped at the end if it was started here."""
    from antiphon.pipeline.session import running_session

    with ExitStack() as stack:
        with Progress("starting Spark"):
            opened = stack.enter_context(running_session(args.master, args.conf, name=name, quiet=not args.debug))
        yield opened


class TraceWork(NamedTuple):
    """What a command that works on a trace has to work with."""

    session: Session
    mapping: Mapping | None  # of a foreign log
    scratch: Location  # a folder that goes with the command
    out: Location


@contextmanager
def trace_work(args: argparse.Namespace, command: str, marker: str) -> Iterator[TraceWork]:
    """Make ready what a command needs that reads TRACE and leaves a file of the name `marker` in --out."""
    from antiphon.pipeline.store.output import output_folder

    mapping = mapping_of(args)
    _look_ahead(args, marker, mapping)
    with (
        spark_session(args, f"antiphon {command} {args.trace}") as session,
        output_folder(args.out, marker, args.trace, **scratch_of(args)) as (scratch, out),
    ):
        yield TraceWork(session, mapping, scratch, out)
