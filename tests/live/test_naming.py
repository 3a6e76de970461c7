"""A view is shown once the names of all its members are known, and what is delivered in it after that."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.live import naming
from antiphon.live.anomalies import Anomalies, MemberLogger
from antiphon.live.backlog import Handlers
from antiphon.live.naming import BehindNames, Names
from antiphon.protocol.machine import Capture, Deliver, Effect, Install, StandingChanged
from antiphon.protocol.membership.views import process

SEVEN, EIGHT, NINE = (process(number, 1) for number in (7, 8, 9))
FIRST, SECOND, THIRD = Install(1, (SEVEN,)), Install(2, (SEVEN, EIGHT)), Install(3, (SEVEN, EIGHT, NINE))


class Stream:
    """What the application of member 7 is shown."""

    def __init__(self) -> None:
        self.names = Names({7: "seven"})
        self.shown: list[Effect] = []
        in_stream: Handlers = dict.fromkeys((Deliver, Install, Capture, StandingChanged), self.shown.append)
        self.anomalies = Anomalies(MemberLogger("test", "seven"))
        self.waited: list[Effect] = []
        self.behind = BehindNames(
            in_stream, lambda: self.handlers, self.names, self.anomalies, lambda effect: self.waited.append(effect)
        )
        self.handlers: Handlers = dict(in_stream)

    def take(self, *effects: Effect) -> None:
        for effect in effects:
            self.handlers[type(effect)](effect)

    def learn(self, number: int) -> None:
        self.names[number] = f"number {number}"
        self.behind.learnt()


def deliver(seq: int, size: int = 1) -> Deliver:
    return Deliver(SEVEN, seq, bytes(size))


def test_a_view_waits_for_names_and_all_else_behind_it() -> None:
    async def test() -> None:
        stream = Stream()
        effects = [FIRST, deliver(1), SECOND, deliver(2), THIRD, deliver(3)]
        stream.take(*effects)
        assert stream.shown == effects[:2]
        assert stream.waited == effects[3:], "each is told of at once"
        stream.learn(8)
        assert stream.shown == effects[:4]
        stream.take(deliver(4))
        stream.learn(9)
        stream.take(deliver(5))
        assert stream.shown == [*effects, deliver(4), deliver(5)]
        assert not stream.anomalies.counts

    asyncio.run(test())


@pytest.mark.parametrize("why", ["too long", "too much", "excluded"])
def test_it_does_not_wait_for_ever(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(naming, "WAIT_S", 0.01)
    monkeypatch.setattr(naming, "WAITING_BYTES_MAX", 1_000)

    async def test() -> None:
        stream = Stream()
        effects: list[Effect] = [THIRD, deliver(1)]
        if why != "too long":
            effects.append(StandingChanged("excluded") if why == "excluded" else deliver(2, 1_000))
        stream.take(*effects)
        await asyncio.sleep(0.05 if why == "too long" else 0)
        stream.take(deliver(3))
        assert stream.shown == [*effects, deliver(3)]
        assert stream.anomalies.counts["members-unnamed"] == 1
        assert stream.names[9] == "member 9"

    asyncio.run(test())
