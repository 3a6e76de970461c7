"""`antiphon diagram`: a space-time diagram of what happened around one message."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from antiphon.atomic_write import atomic_write
from antiphon.commands.spark_options import say_stale
from antiphon.errors import UsageError

if TYPE_CHECKING:
    from antiphon.diagram.layout import DiagramLayout
    from antiphon.report.diagram_window import DiagramRequest, DiagramWindow

_EXAMPLES = """examples:
  antiphon diagram out/run --around 2:5 --out 2-5.html            # to explore: zoom, follow a message
  antiphon diagram out/run --around 2:5 --window 20ms --out 2-5.svg   # for a document
  antiphon diagram out/run --around-step 3:17 --window 12 --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = _EXAMPLES
    parser.add_argument("trace", metavar="TRACE", help="a Parquet, CSV or JSON lines file, or a directory of them")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--around", metavar="SENDER:SEQ", help="the message to show")
    where.add_argument("--around-step", metavar="MEMBER:STEP", help="the event to show, with its message if it has one")
    parser.add_argument("--run", help="the run, if several have such a message")
    parser.add_argument(
        "--window",
        metavar="SIZE",
        help="how much before and after: a time such as 20ms, where the members share a clock; "
        "a number of steps of each member; or all",
    )
    parser.add_argument("--members", metavar="LIST", help="only these members, such as 0,3,5-9")
    parser.add_argument("--most", type=int, metavar="N", help="draw at most about N events (default: 500)")
    parser.add_argument("--mapping", metavar="FILE", help="TOML file that maps a foreign log to the trace's columns")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write the diagram: *.svg for a document, *.html to explore"
    )


def run(args: argparse.Namespace) -> int:
    """Find the window, draw it, and tell the message's story."""
    if args.out is not None and args.out.suffix not in (".svg", ".html"):
        raise UsageError(f"--out {args.out}: name it *.svg for a document or *.html to explore")
    request = _request(args)
    from antiphon.diagram.layout import lay_out
    from antiphon.diagram.page import page_of, standalone
    from antiphon.pipeline.reading.mapping import load_mapping
    from antiphon.pipeline.store.table import stale_table
    from antiphon.progress import Progress
    from antiphon.report.diagram_window import read_window
    from antiphon.report.run_settings import count_lives, names_of

    say_stale(stale_table(args.trace))
    with Progress("reading the events around it"):
        window = read_window(args.trace, request, load_mapping(args.mapping) if args.mapping else None)
    layout = lay_out(
        window.events,
        clocks_agree=window.clocks_agree,
        focus=window.focus,
        marked=[request.around_step] if request.around_step is not None else (),
        elsewhere=window.elsewhere,
        context=window.context,
        also_members=window.members,
        names=names_of(args.trace, window.run, window.members, count_lives(window.taking_part)),
    )
    title = _title(window, request)
    if args.out is not None:
        if args.out.suffix == ".svg":
            content = standalone(layout, title)
        else:
            notes = _notes(window, layout)
            content = page_of(layout, title, notes, before=window.before, after=window.after)
        atomic_write(args.out, content)
    if args.json:
        print(json.dumps(_result(args, window, layout)))
    else:
        _tell(args, window, layout)
    return 0


def _request(args: argparse.Namespace) -> DiagramRequest:
    from antiphon.report.diagram_window import EVENTS_MOST, DiagramRequest, parse_members
    from antiphon.sim.distributions import duration

    if args.most is not None and args.most < 1:
        raise UsageError(f"--most {args.most}: draw at least one event")
    margin_ns = margin_steps = None
    if args.window is not None and args.window != "all":
        if args.window.isdecimal():
            margin_steps = int(args.window)
        else:
            margin_ns = duration(args.window, "--window")
    return DiagramRequest(
        around=_pair("--around", args.around, "SENDER:SEQ, such as 2:5"),
        around_step=_pair("--around-step", args.around_step, "MEMBER:STEP, such as 3:17"),
        run=args.run,
        members=None if args.members is None else parse_members(args.members, "--members"),
        margin_ns=margin_ns,
        margin_steps=margin_steps,
        whole=args.window == "all",
        most=EVENTS_MOST if args.most is None else args.most,
    )


def _pair(flag: str, text: str | None, wanted: str) -> tuple[int, int] | None:
    if text is None:
        return None
    found = re.fullmatch(r"(-?\d{1,10}):(-?\d{1,18})", text)
    if found is None:
        raise UsageError(f"{flag} {text}: write {wanted}")
    return int(found[1]), int(found[2])


def _title(window: DiagramWindow, request: DiagramRequest) -> str:
    if request.around_step is not None:
        return f"Run {window.run}, around step {request.around_step[1]} of member {request.around_step[0]}"
    assert window.focus is not None
    return f"Run {window.run}, around message {window.focus[0]}:{window.focus[1]}"


def _notes(window: DiagramWindow, layout: DiagramLayout) -> list[str]:
    """What a reader must know of the picture."""
    notes = []
    if layout.axis == "clock":
        notes.append(
            "Time runs to the right along the members' one clock; crowded moments are stretched, "
            "long silences (//) cut short."
        )
    elif window.clocks_agree:
        notes.append(
            "The times contradict the messages, so the order is that of happened-before; distances mean nothing."
        )
    else:
        notes.append("The members share no clock: the order is that of happened-before, and distances mean nothing.")
    if len(layout.members) < window.members_all:
        notes.append(f"{len(layout.members)} of {window.members_all} members are shown; --members chooses others.")
    if window.shortened:
        notes.append("The window ends before the message is stable everywhere; --most draws more.")
    if window.thinned:
        notes.append(
            "Too much happened to show it all: only what is next to an event of the message; --most draws more."
        )
    if layout.backwards:
        notes.append(f"{len(layout.backwards)} arrows point backwards: the trace has effects before their causes.")
    return notes


def _result(args: argparse.Namespace, window: DiagramWindow, layout: DiagramLayout) -> dict[str, Any]:
    from antiphon.diagram.story import story

    fates = [link.fate for link in layout.links]
    return {
        "trace": args.trace,
        "run": window.run,
        "message": None if window.focus is None else f"{window.focus[0]}:{window.focus[1]}",
        "out": None if args.out is None else str(args.out),
        "axis": layout.axis,
        "members": layout.members,
        "events": len(layout.marks),
        "messages": len({mark.message for mark in layout.marks if mark.kind == "send"}),
        "losses": fates.count("lost"),
        "repairs": sum(mark.kind == "repair" for mark in layout.marks),
        "cut": {
            "before": window.before,
            "after": window.after,
            "shortened": window.shortened,
            "thinned": window.thinned,
        },
        "story": story(layout),
        "notes": _notes(window, layout),
    }


def _tell(args: argparse.Namespace, window: DiagramWindow, layout: DiagramLayout) -> None:
    from antiphon.diagram.story import story

    print(f"run {window.run}: {len(layout.marks)} events at {len(layout.members)} members in the window")
    for line in story(layout):
        print(f"  {line}")
    for note in _notes(window, layout):
        print(note)
    if args.out is None:
        print("--out FILE.svg draws it for a document, --out FILE.html to explore")
    else:
        print(f"drawn in {args.out}")
