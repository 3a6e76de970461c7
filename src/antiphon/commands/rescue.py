"""`antiphon rescue`: make a new view from what is left, when those who decide are gone for good."""

from __future__ import annotations

import argparse
from pathlib import Path

from antiphon.errors import UsageError

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

    from antiphon.atomic_write import atomic_write
    from antiphon.live.rescue import kept_in, rescued

    if not args.state.is_dir():
        raise UsageError(f"{args.state}: no such folder; name the state folder of a member")
    kept = [one for one in kept_in(args.state) if args.group in (None, one.state.group)]
    if not kept:
        raise UsageError(f"{args.state}: no member's state is there; name its state folder, and the right group")
    chosen = [one for one in kept if one.state.member == args.member]
    if args.member is None or (args.yes and len(chosen) != 1):
        for one in kept:
            view = f"view {one.saved.view.number}: {', '.join(one.members)}"
            print(f"group {one.state.group}, member {one.state.member}, {view}")
        if args.yes:
            raise UsageError("rescue: name one --member of these (and its --group), which goes on alone")
        return 0
    for one in chosen:
        state = rescued(one)
        gone = [name for name in one.members if name != one.state.member]
        print(
            f"group {one.state.group}: {one.state.member} goes on alone, without {', '.join(gone) or 'others'} of view "
            f"{one.saved.view.number}; what only they had is lost, and if they still decide, there are two groups"
        )
        if args.yes:
            atomic_write(one.path, msgspec.msgpack.encode(state))
            print("done: start it again; all others that are left join it")
        else:
            print("nothing was done: say --yes")
    return 0
