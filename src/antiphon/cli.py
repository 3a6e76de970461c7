"""The command line: a table of commands, each imported only when it is asked for."""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import os
import re
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from antiphon import __version__
from antiphon.errors import AntiphonError, did_you_mean, missing_extra

# name -> what it does in one line; `antiphon.commands.<name>` has configure(parser) and run(args).
COMMANDS: dict[str, str] = {
    "simulate": "run a group on a simulated network and write its trace",
    "ingest": "lay a trace out once, as a table that check, measure, report, explore and diagram reuse",
    "check": "check a trace against the eight guarantees, with a witness for each violation",
    "measure": "measure a trace: latency, buffers, traffic, repairs, and who held stability back",
    "sweep": "simulate, check and measure a grid of scenarios, one Spark task a cell",
    "report": "turn a checked and measured trace, or a sweep, into one HTML file that opens anywhere",
    "watch": "give rolling verdicts on a directory into which members are still writing",
    "explore": "serve a local page on which a trace of any size is looked at, window by window",
    "diagram": "draw what happened around a message: members as lines, messages as arrows",
    "reproduce": "reproduce a paper's tables and figures, ours beside the published ones",
    "advise": "find the protocol and parameters for a group, by simulating the candidates",
    "dashboard": "serve a live page of a running group: members, views, lags, buffers, rates, alarms",
    "join": "take part in a live group: lines in, ordered lines out",
    "rescue": "make a new view from what is left of a group, when those who decide are gone for good",
}

_COMPLETION = "--print-completion"
_OF_EVERY_COMMAND = ("--json", "--debug")
_BEFORE_COMMAND = ("-h", "--help", "-V", "--version", _COMPLETION, *_OF_EVERY_COMMAND)

DONE, VIOLATED, UNUSABLE, INCONCLUSIVE, OUR_FAULT, INTERRUPTED = 0, 1, 2, 3, 70, 130

_EXIT_CODES = (
    "exit codes: 0 done and all requested guarantees hold, 1 a guarantee is violated, 2 bad usage, a missing extra or "
    "unusable input, 3 inconclusive, 70 a fault of antiphon's own, 130 interrupted"
)


class _BadUsage(Exception):
    """The words on the command line are no command."""


class _Parser(argparse.ArgumentParser):
    """argparse that takes options by their whole names only, and says what is wrong in one line."""

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings, allow_abbrev=False)  # type: ignore[arg-type]

    def error(self, message: str) -> NoReturn:
        raise _BadUsage(f"{self.prog}: {message} (see {self.prog} --help)")

    def options(self) -> list[str]:
        """Return the names of all options."""
        return re.findall(r"(?<![\w-])--?[a-z][\w-]*", self.format_help())


class _PrintCompletion(argparse.Action):
    """Print what makes a shell complete commands and options; `shtab` reads it off the parsers of all commands."""

    def __call__(self, parser: object, args: object, shell: object, option: str | None = None) -> NoReturn:
        import shtab

        print(shtab.complete(_parser(None, all_commands=True)[0], shell=str(shell)))
        sys.exit(DONE)


def _parser(chosen: str | None, *, all_commands: bool = False) -> tuple[_Parser, _Parser]:
    """Return the parser of everything, and that of the chosen command (of everything, if none is chosen)."""
    parser = _Parser(
        prog="antiphon",
        description="Group communication: take part live, simulate it, check traces, see what happened.",
        epilog="example: antiphon simulate --members 5 --ordering causal --loss 0.1 --seed 7 --out out/run\n"
        + _EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-V", "--version", action="version", version=f"antiphon {__version__}")
    parser.add_argument(
        _COMPLETION,
        action=_PrintCompletion,
        choices=("bash", "zsh", "tcsh"),
        help="print what makes a shell complete commands and options",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=_Parser, required=True)
    of_chosen = parser
    for name, summary in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if all_commands or name == chosen:  # only the chosen command's module is imported
            importlib.import_module(f"antiphon.commands.{name}").configure(command)
            command.add_argument(
                "--json", action="store_true", help="one JSON object on stdout; logs and progress on stderr"
            )
            command.add_argument("--debug", action="store_true", help="show tracebacks")
            command.epilog = (command.epilog or "") + "\n" + _EXIT_CODES
            of_chosen = command
    return parser, of_chosen


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line; what is not known is answered with what is near it."""
    words = [word for word in arguments if not word.startswith("-")]
    chosen = words[0] if words and arguments[0] != _COMPLETION else None  # what follows _COMPLETION is a shell
    if chosen is not None and chosen not in COMMANDS:
        raise _BadUsage(f"antiphon: no command {chosen!r}{did_you_mean(chosen, COMMANDS)} (see antiphon --help)")
    parser, command = _parser(chosen)
    options = [word.partition("=")[0] for word in arguments if word.startswith("-")]
    if chosen is None and (strange := [word for word in options if word not in _BEFORE_COMMAND]):
        parser.error(f"no option {strange[0]} without a command{did_you_mean(strange[0], _BEFORE_COMMAND)}")
    if not arguments:
        raise _BadUsage(f"antiphon: name a command: {', '.join(COMMANDS)} (see antiphon --help)")
    early = list(itertools.takewhile(_OF_EVERY_COMMAND.__contains__, arguments))  # said before the command
    args, unknown = parser.parse_known_args([*arguments[len(early) :], *early])
    if unknown:
        near = did_you_mean(unknown[0].partition("=")[0], command.options())
        command.error(f"unrecognized arguments: {' '.join(unknown)}{near}")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = "antiphon"
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # closed by whoever started us: nobody listens
            setattr(sys, stream, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    try:
        args = _parsed(arguments)
        name = f"antiphon {args.command}"
        code: int = importlib.import_module(f"antiphon.commands.{args.command}").run(args)
        sys.stdout.flush()
        return code
    except _BadUsage as error:
        return _failed(arguments, str(error), UNUSABLE)
    except AntiphonError as error:
        return _failed(arguments, f"{name}: {error}", UNUSABLE)
    except KeyboardInterrupt:
        return _failed(arguments, f"{name}: interrupted", INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except OSError as error:
        said = " ".join(str(error.strerror or error).split())
        return _failed(arguments, f"{name}: {error.filename or 'input/output'}: {said}", UNUSABLE)
    except Exception as error:
        missing = missing_extra(error) if isinstance(error, ModuleNotFoundError) else None
        if missing is not None:
            return _failed(arguments, f"{name}: {missing}", UNUSABLE)
        said = " ".join(str(error).split())
        words = f"a fault of antiphon's own ({type(error).__name__}: {said}); --debug shows where"
        return _failed(arguments, f"{name}: {words}", OUR_FAULT)


def _failed(arguments: Sequence[str], message: str, code: int) -> int:
    if "--debug" in arguments:
        traceback.print_exc()
    print(message, file=sys.stderr)
    if "--json" in arguments:
        print(json.dumps({"error": message.partition(": ")[2]}))
    return code


if __name__ == "__main__":
    sys.exit(main())
