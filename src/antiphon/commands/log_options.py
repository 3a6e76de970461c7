"""The options that say how another system's log is to be read."""

from __future__ import annotations

import argparse
from collections.abc import Mapping as Names
from pathlib import Path
from typing import TYPE_CHECKING

import antiphon
from antiphon.commands.choices import one_of

if TYPE_CHECKING:
    from antiphon.pipeline.reading.mapping import Mapping
    from antiphon.pipeline.reading.time_units import TimeReading

PRESETS = tuple(
    sorted(file.stem for file in Path(antiphon.__file__).parent.glob("pipeline/ingesting/foreign/presets/*.toml"))
)


def add_trace_argument(parser: argparse.ArgumentParser) -> None:
    """Declare what a command works on."""
    parser.add_argument(
        "trace",
        metavar="TRACE",
        help="a Parquet, CSV or JSON lines file, or a directory of them; a path or a URI (s3://...)",
    )


def add_log_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--from",
        dest="preset",
        type=one_of(PRESETS),
        metavar="NAME",
        help=f"TRACE is a log of another system's clients: {', '.join(PRESETS)}",
    )
    parser.add_argument(
        "--mapping", metavar="FILE", help="TOML file that maps a foreign log to the trace's columns and events"
    )
    parser.add_argument(
        "--sends",
        choices=("recorded", "unrecorded"),
        help="unrecorded: nobody logged what was sent, so the log itself (a topic or partition) is the sender",
    )


def mapping_of(args: argparse.Namespace) -> Mapping | None:
    """Return the mapping that a command's arguments ask for."""
    import msgspec

    from antiphon.pipeline.reading.mapping import Mapping, load_mapping

    if not (args.mapping or args.preset or args.sends):
        return None
    mapping = load_mapping(args.mapping) if args.mapping else Mapping()
    return msgspec.structs.replace(mapping, preset=args.preset or mapping.preset, sends=args.sends or mapping.sends)


def show_reading(names: Names[int, str], times: TimeReading) -> None:
    """Print how a foreign log was read: which member has which number, and what was guessed of its times."""
    if words := times.words():
        print(words)
    if names:
        print("members: " + ", ".join(f"{number} = {name}" for number, name in sorted(names.items())))
