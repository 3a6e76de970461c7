"""Members that share a machine and have more to do than it can: they say less and go on, views and all."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from antiphon.protocol.machine import MILLISECOND, SECOND, Deliver, Drop, Effect, Instant, Receive, Send, Submit, Wake
from antiphon.protocol.options import GroupOptions
from antiphon.protocol.view.member import Member, View
from antiphon.sim.cluster import simulate
from antiphon.sim.network import LinkRule, NetworkOptions
from antiphon.sim.scenario import Fault, Scenario, Workload
from antiphon.sim.shared_machine import MachineOptions, SharedMachineCluster

MEMBERS, DEAD = 24, 3
SENDING_S, KILLED_S, BACK_S, END_S = 1, 5, 8, 11


class Crowd(SharedMachineCluster):
    """Members of which some die and come back, while all want to send five messages a second."""

    def __init__(self, ordering: str, slowness: int) -> None:
        self.delivered: Counter[int] = Counter()  # by the second
        self.out_of_order: list[bytes] = []
        self._last: dict[tuple[int, int], int] = {}  # by receiver and sender: the number of its last message
        self.in_one_view: dict[int, float] = {}  # by the number of a view: when all that ran were in it
        usual = MachineOptions()
        machine = MachineOptions(
            turn_ns=slowness * usual.turn_ns,
            receive_ns=slowness * usual.receive_ns,
            send_ns=slowness * usual.send_ns,
            datagram_ns=slowness * usual.datagram_ns,
            deliver_ns=slowness * usual.deliver_ns,
        )
        scenario = Scenario(
            name="crowd",
            members=MEMBERS,
            ordering=ordering,
            views=True,
            messages=5 * END_S,
            network=NetworkOptions(latency="uniform 50us 200us"),
            workload=Workload(interval="uniform 100ms 300ms", payload=64),
            faults=[
                Fault(kind="crash", at=f"{KILLED_S}s", until=f"{BACK_S}s", member=member)
                for member in range(MEMBERS - DEAD, MEMBERS)
            ],
            limit=f"{END_S}s",
        )
        super().__init__(scenario, 1, machine)
        self.kernel.at(0, self._look)

    def _see_whether_one_group_is_left(self, _: None) -> None:
        """Go on until the limit."""

    def _carry_out(self, me: int, effect: Effect) -> None:
        if isinstance(effect, Deliver):
            self.delivered[self.kernel.now // SECOND] += 1
            sender, number = map(int, effect.payload.split(b" ")[0].split(b":"))
            if number <= self._last.get((me, sender), 0):
                self.out_of_order.append(effect.payload)
            self._last[me, sender] = number
        super()._carry_out(me, effect)

    def _look(self, _: None = None) -> None:
        running = self.running()
        views = {(one.view.number, len(one.view.members)) for one in running.values() if one.active}
        if len(views) == 1 and all(one.active for one in running.values()):
            [(number, size)] = views
            if size == len(running):
                self.in_one_view.setdefault(number, self.kernel.now / SECOND)
        self.kernel.after(20 * MILLISECOND, self._look)


@pytest.fixture(scope="module")
def crowd() -> Crowd:
    crowd = Crowd("total", slowness=12)
    crowd.run()
    return crowd


@pytest.mark.slow
def test_a_group_with_too_much_to_do_delivers_what_its_machine_can(crowd: Crowd) -> None:
    wanted = 5 * MEMBERS * MEMBERS
    delivered = [crowd.delivered[second] for second in range(SENDING_S + 1, KILLED_S)]
    assert sum(delivered) > len(delivered) * wanted / 2


def test_a_group_with_too_much_to_do_goes_on_without_the_dead_and_takes_them_back(crowd: Crowd) -> None:
    _, without, back = sorted(crowd.in_one_view.values())
    assert KILLED_S < without < KILLED_S + 3
    assert BACK_S < back < BACK_S + 3


def test_what_waits_to_be_sent_keeps_its_order_when_a_view_ends_or_is_not_confirmed(crowd: Crowd) -> None:
    assert crowd.out_of_order == []


def member(rank: int = 0, size: int = 33, ordering: str = "fifo") -> Member:
    return Member(rank, View(1, tuple(range(size))), GroupOptions(ordering=ordering), random.Random(rank))


def late(one: Member, ms: int = 100) -> Instant:
    """Wake a member late, until what it says gathers."""
    one.handle(Submit(b"first"), 0)
    now: Instant = 0
    for _ in range(20):
        deadline = one.deadline
        assert deadline is not None
        now = deadline + ms * MILLISECOND
        one.handle(Wake(), now)
    return now


def sent(effects: list[Effect]) -> list[bytes]:
    return [effect.datagram for effect in effects if isinstance(effect, Send)]


def test_a_member_that_is_behind_lets_its_words_gather() -> None:
    one = member()
    now = late(one)
    assert one.submissions.pace.next_at is not None
    assert not sent(one.handle(Submit(b"second"), now + 1))
    assert one.room == 0, "live, more of them grow into one burst meanwhile"
    assert one.deadline is not None
    assert one.deadline <= one.submissions.pace.next_at
    over = one.submissions.pace.next_at
    assert b"second" in b"".join(sent(one.handle(Wake(), over)))


def test_a_refused_datagram_does_not_change_when_a_member_with_nothing_to_say_may_speak() -> None:
    one = member()
    late(one)
    pace = one.submissions.pace
    assert pace.next_at is not None
    assert sent(one.handle(Wake(), pace.next_at)), "all that had gathered is said"
    over = pace.next_at
    assert [type(effect) for effect in one.handle(Receive(b"no datagram"), over + 1)] == [Drop]
    assert pace.next_at == over
    assert b"second" in b"".join(sent(one.handle(Submit(b"second"), over + 2))), "nothing has to gather any longer"


def test_what_gathers_when_a_view_ends_is_not_sent_any_more() -> None:
    one = member(ordering="total")
    now = late(one)
    other = member(1, ordering="total")
    (datagram,) = sent(other.handle(Submit(b"asks for a proposal"), now))
    assert not sent(one.handle(Receive(datagram), now + 1))
    one.block()
    over = one.submissions.pace.next_at
    assert over is not None
    assert not sent(one.handle(Wake(), over))


def test_a_full_packet_does_not_wait() -> None:
    one = member()
    now = late(one)
    assert one.submissions.pace.next_at is not None
    assert sent(one.handle(Submit(bytes(40_000)), now + 1))


def test_data_that_comes_before_its_view_has_begun_is_kept() -> None:
    """One member hears of each view later than the others: what they send in it meanwhile is not sent again."""
    slow = LinkRule([0], [4], latency="fixed 30ms")
    scenario = Scenario(
        name="apart",
        members=6,
        ordering="fifo",
        views=True,
        messages=100,
        network=NetworkOptions(latency="fixed 2ms", links=[slow]),
        workload=Workload(interval="fixed 10ms", payload=64),
        faults=[Fault(kind="crash", at="400ms", member=5)],
    )
    run = simulate(scenario, 1)
    assert run.finished
    assert run.stats["members"]["retransmissions"] < 30, "of the slow link alone; with what came early it was 39"
