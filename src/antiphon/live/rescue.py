"""The way out when those who decide are gone for good: one member's state becomes a view of that member alone.

A group goes on only with a quorum of its newest view. If too many of that are gone and will never come back, an
operator can choose one member that is left. Its state file is given a view that it alone decides for, far above any
that the others know, so that whoever else is left gives its own view up and joins.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from antiphon.errors import UsageError
from antiphon.live.addresses import parse
from antiphon.live.slots import content_of
from antiphon.live.storage import KeptState, read_kept, saved_in
from antiphon.protocol.membership.process import Saved
from antiphon.protocol.membership.views import NO_BALLOT, GroupView, name_of, process

BEYOND: Final = 1_000  # room for views that the others may have had and this member does not know of


class Kept(msgspec.Struct, frozen=True):
    """One member's file in a state folder."""

    path: Path
    state: KeptState
    saved: Saved

    @property
    def members(self) -> list[str]:
        """The members of the newest view that it knows, by name."""
        names = self.state.names
        return [names.get(name_of(member), f"member {name_of(member)}") for member in self.saved.view.members]


def kept_in(folder: Path) -> Iterator[Kept]:
    """Give the members' files of a state folder; 0.1.0's do not say whose they are, and are refused."""
    for path in sorted(folder.glob("*.state")):
        try:
            state = read_kept(path, content_of(path.read_bytes()))
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from None
        saved = saved_in(path, state)
        if not isinstance(state, KeptState):
            raise UsageError(
                f"{path} was written by Antiphon 0.1.0 and does not say whose it is: "
                f"start its member once with this release (it need not find the others), stop it, and rescue it then"
            )
        yield Kept(path, state, saved)


def is_running(state: KeptState) -> bool:
    """Say whether a member holds its address; nothing is known if its file does not say where that is."""
    try:
        host, port = parse(state.bind or state.member, "member")
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as one:
            one.bind(address)
    except UsageError:
        return False
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return False


def rescued(kept: Kept) -> KeptState:
    """Return what the chosen member is to know: a view of itself alone, beyond any other."""
    view, saved = kept.saved.view, kept.saved
    number = next((number for number, name in kept.state.names.items() if name == kept.state.member), None)
    if number is None or view.number == 0:
        raise UsageError(f"rescue: {kept.state.member} has never been in a view; choose one that has")
    own = process(number, saved.incarnation)
    sent = dict(zip(view.members, view.sent_before, strict=True)).get(own, 0)
    departed = view.departed_before((own,))
    alone = GroupView(view.number + BEYOND, (1, own), (own,), (sent,), 1, departed=departed)
    made = Saved(saved.incarnation, alone, NO_BALLOT, None, None, remembers=True)
    return msgspec.structs.replace(kept.state, saved=msgspec.msgpack.encode(made))
