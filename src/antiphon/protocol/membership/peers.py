"""Who is alive, as far as one process can tell: the failure detector."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from antiphon.protocol.machine import Duration, Instant
from antiphon.protocol.membership.messages import Standing
from antiphon.protocol.membership.views import name_of


class Peer(msgspec.Struct):
    """What was heard of a name."""

    heard_at: Instant
    process: int | None = None  # its latest life, if it was ever heard
    view: int = 0  # the newest view that it knows
    standing: Standing = "joiner"


class Peers:
    """Every other name that this process knows of; one that is silent for too long is suspected."""

    def __init__(self, names: Iterable[int], suspect_ns: Duration, now: Instant) -> None:
        self._suspect_ns = suspect_ns
        self.by_name = {name: Peer(now) for name in names}  # not suspected before it had time to speak

    def meet(self, names: Iterable[int], now: Instant) -> None:
        """Get to know names; new ones have time to speak."""
        for name in names:
            self.by_name.setdefault(name, Peer(now))

    def heard(self, process: int, now: Instant) -> bool:
        """Note a sign of life; say whether it comes from its name's latest life and not from an earlier one."""
        peer = self.by_name.setdefault(name_of(process), Peer(now))
        if peer.process is None or process > peer.process:
            peer.process, peer.view, peer.standing = process, 0, "joiner"
        if process == peer.process:
            peer.heard_at = max(peer.heard_at, now)
        return process == peer.process

    def refresh(self, now: Instant) -> None:
        """Give everyone time: this process itself was away."""
        for peer in self.by_name.values():
            peer.heard_at = now

    def suspected(self, name: int, now: Instant) -> bool:
        """Say whether a name has been silent for too long."""
        return now - self.by_name[name].heard_at > self._suspect_ns

    def lives(self, process: int, now: Instant) -> bool:
        """Say whether a process may be alive: its name is not silent and has had no later life."""
        peer = self.by_name[name_of(process)]
        return peer.process in (None, process) and not self.suspected(name_of(process), now)
