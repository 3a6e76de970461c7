"""The options that every command on Spark takes, and the session that they ask for."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from antiphon.progress import Progress

if TYPE_CHECKING:
    from antiphon.pipeline.session import Session


def add_spark_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--master", metavar="URL", help="Spark master (default: local[*], or what spark-submit or SPARK_REMOTE says)"
    )
    parser.add_argument(
        "--conf", metavar="KEY=VALUE", action="append", default=[], help="a Spark setting; may be repeated"
    )


@contextmanager
def spark_session(args: argparse.Namespace, name: str) -> Iterator[Session]:
    """Open the session that a command's arguments ask for; stopped at the end if it was started here."""
    from antiphon.pipeline.session import running_session

    with ExitStack() as stack:
        with Progress("starting Spark"):
            opened = stack.enter_context(running_session(args.master, args.conf, name=name, quiet=not args.debug))
        yield opened
