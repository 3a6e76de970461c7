"""The command line: a table of commands, each imported only when it is asked for."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Sequence

from antiphon import __version__
from antiphon.errors import AntiphonError

# name -> what it does in one line; `antiphon.commands.<name>` has configure(parser) and run(args).
COMMANDS: dict[str, str] = {
    "simulate": "run a group on a simulated network and write its trace",
    "check": "check a trace against the eight guarantees, with a witness for each violation",
    "measure": "measure a trace: latency, buffers, traffic, repairs, and who held stability back",
    "sweep": "simulate, check and measure a grid of scenarios, one Spark task a cell",
    "report": "turn a checked and measured trace, or a sweep, into one HTML file that opens anywhere",
    "watch": "give rolling verdicts on a directory into which members are still writing",
    "diagram": "draw what happened around a message: members as lines, messages as arrows",
    "reproduce": "reproduce a paper's tables and figures, ours beside the published ones",
    "advise": "find the protocol and parameters for a group, by simulating the candidates",
    "dashboard": "serve a live page of a running group: members, views, lags, buffers, rates, alarms",
    "join": "take part in a live group: lines in, ordered lines out",
}

DONE, VIOLATED, UNUSABLE, INCONCLUSIVE = 0, 1, 2, 3

_EXIT_CODES = (
    "exit codes: 0 done and all requested guarantees hold, 1 a guarantee is violated, "
    "2 bad usage or unusable input, 3 inconclusive"
)


class _Parser(argparse.ArgumentParser):
    """argparse that says what is wrong in one line."""

    def error(self, message: str) -> None:  # type: ignore[override]
        self.exit(UNUSABLE, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _parser(chosen: str | None) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="antiphon",
        description="Group communication: simulate it, check it, reproduce the papers.",
        epilog="example: antiphon simulate --members 5 --ordering causal --loss 0.1 --seed 7 --out out/run\n"
        + _EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"antiphon {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser, required=True)
    for name, summary in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == chosen:  # only the chosen command's module is imported
            importlib.import_module(f"antiphon.commands.{name}").configure(command)
            command.add_argument(
                "--json", action="store_true", help="one JSON object on stdout; logs and progress on stderr"
            )
            command.add_argument("--debug", action="store_true", help="show tracebacks")
            command.epilog = (command.epilog or "") + "\n" + _EXIT_CODES
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    chosen = next((word for word in arguments if not word.startswith("-")), None)
    args = _parser(chosen).parse_args(arguments)
    try:
        code: int = importlib.import_module(f"antiphon.commands.{args.command}").run(args)
        sys.stdout.flush()
        return code
    except AntiphonError as error:
        return _failed(args, str(error), UNUSABLE)
    except KeyboardInterrupt:
        return _failed(args, "interrupted", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except OSError as error:
        return _failed(args, f"{error.filename or 'input/output'}: {error.strerror or error}", UNUSABLE)


def _failed(args: argparse.Namespace, message: str, code: int) -> int:
    if args.debug:
        import traceback

        traceback.print_exc()
    print(f"antiphon {args.command}: {message}", file=sys.stderr)
    if args.json:
        print(json.dumps({"error": message}))
    return code


if __name__ == "__main__":
    sys.exit(main())
