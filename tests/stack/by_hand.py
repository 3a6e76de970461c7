"""Logs of applications that nobody ran: a judge sees nothing else, so that each of its rules can be asked by itself."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from antiphon.testing.torture.judge import judge
from antiphon.testing.torture.log import (
    ApplicationStart,
    MessageName,
    Noticed,
    Restored,
    Sample,
    SeenMessage,
    SentMessage,
    Told,
    Viewed,
)
from antiphon.testing.torture.run import Outcome
from antiphon.testing.torture.schedule import Net, PlannedFault, Schedule, Setup, Work

STEP_S: Final = 0.01  # from one entry of a log to the next


class Logs:
    """What the applications of a run wrote down, entry by entry; their addresses are a, b, c and so on."""

    def __init__(
        self,
        members: int = 3,
        *,
        faults: Iterable[PlannedFault] = (),
        work: dict[int, Work] | None = None,
        net: Net | None = None,
        odd: Setup | None = None,
        starts: Iterable[int] | None = None,
        **setup: Any,
    ) -> None:
        """Give logs of members that have all been started, or of some of them."""
        works = tuple((work or {}).get(member, Work()) for member in range(members))
        self.schedule = Schedule(
            seed=0, setup=Setup(**setup), odd=odd, net=net or Net(), work=works, faults=tuple(faults)
        )
        self.addresses = list("abcdefg"[:members])
        self.starts: list[ApplicationStart] = []
        self.error: BaseException | None = None
        self.now = 0.0
        self.counts: Counter[str] = Counter()
        for member in range(members) if starts is None else starts:
            self.start(member)

    def __getitem__(self, member: int) -> ApplicationStart:
        """The latest start of a member."""
        return next(start for start in reversed(self.starts) if start.member == member)

    def start(self, member: int) -> ApplicationStart:
        """Start an application, or start it again."""
        number = 1 + sum(start.member == member for start in self.starts)
        at = self._tick()
        start = ApplicationStart(member, self.addresses[member], number, at, joined_at=at)
        self.starts.append(start)
        return start

    def view(self, number: int, members: str = "abc", elders: str = "", by: Iterable[int] | None = None) -> None:
        """Show a view to those who are in it, or to some."""
        seen_by = [self.addresses.index(address) for address in members] if by is None else by
        at = self._tick()
        for member in seen_by:
            self[member].stream.append(Viewed(at, number, tuple(members), (), (), tuple(elders)))

    def tell(self, member: int, what: str) -> None:
        """Give an application a notice."""
        self[member].stream.append(Noticed(self._tick(), what))

    def give(self, member: int, history: Iterable[MessageName]) -> None:
        """Give an application a state."""
        self[member].stream.append(Restored(self._tick(), tuple(history)))

    def send(
        self, member: int, /, to: Iterable[int] | None = None, *, stable: bool = True, **about: Any
    ) -> MessageName:
        """Send a message, which all of the sender's view deliver, or these; its receipt says what became of it."""
        start = self[member]
        to = self._mates(member) if to is None else list(to)
        identity = MessageName(member, start.number, 1 + len(start.sent))
        sent = SentMessage(
            identity, self._tick(), about.pop("size", 40), accepted=True, probe=about.pop("probe", False)
        )
        start.sent[identity] = sent
        for other in to:
            self.deliver(other, identity, **about)
        if member in to:
            sent.delivered_at = self.now
            sent.told.append(Told("delivered", came=True, outcome="delivered"))
            sent.ended_as = "delivered"
            if stable:
                sent.stable_at = self.now
                sent.told.append(Told("stable", came=True, outcome="stable"))
                sent.ended_as = "stable"
        return identity

    def deliver(self, member: int, identity: MessageName, **about: Any) -> None:
        """Let an application deliver a message, in the view that it is in."""
        entry = SeenMessage(
            **{
                "at": self._tick(),
                "identity": identity,
                "sender": self.addresses[identity.member],
                "view": self._number(member),
                **about,
            }
        )
        self[member].stream.append(entry)

    def sample(self, member: int, standing: str = "active", at: float | None = None, **about: Any) -> None:
        """Ask for an application's status."""
        shown = {"slowest": None, "held": 0, "inbox_bytes": 0, "waiting_bytes": 0, "counts": {}, **about}
        at = self._tick() if at is None else at
        self[member].samples.append(Sample(at, standing, self._number(member), (), **shown))

    def crash(self, member: int) -> None:
        """Let an application stop dead."""
        self[member].crashed_at = self._tick()

    def leave(self, member: int) -> None:
        """Let an application leave."""
        self[member].leaving_at = self._tick()
        self[member].left_at = self._tick()

    def probe(self, *members: int) -> None:
        """Let members, or all that run, send what shows who goes on, and say how they stand."""
        for start in [self[member] for member in members] if members else self._running():
            self.send(start.member, [one for one in self._mates(start.member) if self._runs(one)], probe=True)
            self.sample(start.member)

    def flaws(self) -> dict[str, list[str]]:
        """Return what the judge finds, by rule; it is given a copy, since it names members and adds views."""
        starts = copy.deepcopy(self.starts)
        found, self.counts = judge(Outcome(self.schedule, self.addresses, starts, self.error))
        rules: dict[str, list[str]] = {}
        for flaw in found:
            rules.setdefault(flaw.rule, []).append(flaw.text)
        return rules

    def _mates(self, member: int) -> list[int]:
        """Return who is in a member's last view; without views, everyone."""
        views = [entry for entry in self[member].stream if isinstance(entry, Viewed)]
        return [self.addresses.index(one) for one in (views[-1].members if views else self.addresses)]

    def _number(self, member: int) -> int:
        views = [entry.view for entry in self[member].stream if isinstance(entry, Viewed)]
        return views[-1] if views else 0

    def _runs(self, member: int) -> bool:
        return not self[member].ended

    def _running(self) -> list[ApplicationStart]:
        return [start for start in self.starts if start is self[start.member] and not start.ended]

    def _tick(self) -> float:
        self.now = round(self.now + STEP_S, 6)
        return self.now
