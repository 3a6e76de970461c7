"""`antiphon rescue`: make a new view from what is left, when those who decide are gone for good."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from antiphon.errors import UsageError

if TYPE_CHECKING:
    from antiphon.live.rescue import Kept

_EXAMPLES = """examples:
  antiphon rescue /var/lib/orders                                  shows whose state is there
  antiphon rescue /var/lib/orders --group orders --member orders-2 --yes

Only if so many members of the newest view are gone for good that no majority of it can ever come back: if one of them
does come back, or goes on out of reach, there are two groups that both acknowledge. Choose the member that knows the
newest view, stop it, run this on its state folder, start it again. It goes on alone, and all others that are left join
it and take its state. Lost is what only the others had: messages that this member had not delivered, and whatever was
agreed in views that it does not know of.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = _EXAMPLES
    parser.add_argument("state", type=Path, help="the state folder of a member that is left, and stopped")
    parser.add_argument("--group", help="the group, if the folder has several")
    parser.add_argument("--member", metavar="NAME", help="the member that goes on alone")
    parser.add_argument("--yes", action="store_true", help="do it; else what would be done is only shown")


def run(args: argparse.Namespace) -> int:
    """Show whose state a folder has, or give one member a view of its own."""
    import msgspec

    from antiphon.live.rescue import is_running, kept_in, rescued
    from antiphon.live.slots import overwrite

    if not args.state.is_dir():
        raise UsageError(f"{args.state}: no such folder; name the state folder of a member")
    kept = [one for one in kept_in(args.state) if args.group in (None, one.state.group)]
    if not kept:
        raise UsageError(f"{args.state}: no member's state is there; name its state folder, and the right group")
    if args.member is None:
        if args.yes:
            raise UsageError("--yes: name the --member that goes on alone")
        _show(args, {"kept": [_described(one) for one in kept]}, [_in_words(one) for one in kept])
        return 0
    chosen = [one for one in kept if one.state.member == args.member]
    if len(chosen) != 1:
        wrong = "several groups have one of that name, say which --group" if chosen else "no such member"
        raise UsageError(f"--member {args.member}: {wrong}; there is {'; '.join(map(_in_words, kept))}")
    (one,) = chosen
    state = rescued(one)
    gone = [name for name in one.members if name != one.state.member]
    if not gone:
        words = [f"group {one.state.group}: {one.state.member} is alone in view {one.saved.view.number} and decides"]
        _show(args, {**_described(one), "without": gone, "done": False}, [*words, "nothing was done: start it"])
        return 0
    if args.yes:
        if is_running(one.state):
            raise UsageError(f"--member {one.state.member}: its address is in use; stop the member first")
        try:
            overwrite(one.path, msgspec.msgpack.encode(state))
        except OSError as error:
            raise UsageError(f"{one.path}: {error.strerror}; nothing was done") from None
    words = [
        f"group {one.state.group}: {one.state.member} goes on alone, without {', '.join(gone)} of view "
        f"{one.saved.view.number}; what only they had is lost, and if they still decide, there are two groups",
        "done: start it again; all others that are left join it" if args.yes else "nothing was done: say --yes",
    ]
    _show(args, {**_described(one), "without": gone, "done": args.yes}, words)
    return 0


def _described(one: Kept) -> dict[str, object]:
    return {
        "group": one.state.group,
        "member": one.state.member,
        "view": one.saved.view.number,
        "members": one.members,
    }


def _in_words(one: Kept) -> str:
    return f"group {one.state.group}, member {one.state.member}, view {one.saved.view.number}: {', '.join(one.members)}"


def _show(args: argparse.Namespace, summary: dict[str, object], words: list[str]) -> None:
    print(json.dumps(summary) if args.json else "\n".join(words))
