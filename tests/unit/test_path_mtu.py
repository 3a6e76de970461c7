"""What a path carries is found out, kept, and noticed when it changes: the state machine, on paths made of numbers."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest

from antiphon.live.path_mtu import (
    CONFIRM_NS,
    LOOK_AGAIN_NS,
    MTU_BASE,
    PACKET_BYTES_MIN,
    UDP_BYTES_MAX,
    PathMtu,
    headers_of,
)
from antiphon.protocol.machine import MILLISECOND, SECOND

TRIP_NS = MILLISECOND


class World:
    """A path that carries packets of up to so many bytes, and loses some; time goes from question to question."""

    def __init__(self, carries: int, *, loss: float = 0.0, headers: int = 28, seed: int = 1) -> None:
        self.carries, self.loss, self.now, self.sent = carries, loss, SECOND, 0
        self.vanished: list[int] = []
        self._chance = random.Random(seed)
        self._numbers = itertools.count()
        self.path = PathMtu(headers, lambda: next(self._numbers), self.vanished.append)

    def arrives(self, size: int) -> bool:
        return size <= self.carries and self._chance.random() >= self.loss and self._chance.random() >= self.loss

    def settle(self, limit_s: float = 60) -> None:
        until = self.now + round(limit_s * SECOND)
        while self.path.deadline is not None and self.now < until:
            self.now = max(self.now, self.path.deadline)
            questions = self.path.probes(self.now)
            self.sent += len(questions)
            for number, size in questions:
                if self.arrives(size):
                    self.path.acknowledged(number, self.now + TRIP_NS)
        assert self.path.deadline is None

    def look(self, limit: int = UDP_BYTES_MAX) -> None:
        assert self.path.may_look(self.now)
        self.path.look(limit, self.now)
        self.settle()

    def send_large(self) -> bool:
        """Send a packet of the size that is thought to fit; say whether it asked to be acknowledged."""
        size = self.path.size
        if not self.path.must_confirm(size, self.now):
            return False
        number = next(self._numbers)
        self.path.confirm(number, size, self.now)
        if self.arrives(size):
            self.path.acknowledged(number, self.now + TRIP_NS)
        return True


@pytest.mark.parametrize("headers", [28, 48])
@pytest.mark.parametrize("mtu", [1_280, 1_333, 1_420, 1_492, 1_500, 2_000, 9_000, 30_000, 65_536])
@pytest.mark.parametrize("told", [True, False], ids=["the way out knows", "routers are silent"])
def test_it_finds_what_the_path_carries(mtu: int, headers: int, told: bool) -> None:
    carries = min(mtu - headers, UDP_BYTES_MAX)
    world = World(carries, headers=headers)
    assert world.path.size == MTU_BASE - headers
    world.look(carries if told else UDP_BYTES_MAX)
    assert carries - max(32, carries // 32) <= world.path.size <= carries
    assert world.sent <= (2 if told else 120)
    assert not world.vanished


def test_usual_paths_are_used_to_the_last_byte() -> None:
    for mtu in (1_280, 1_420, 1_500, 9_000):
        world = World(mtu - 28)
        world.look()
        assert world.path.size == mtu - 28


def test_who_has_nothing_large_to_say_asks_nothing() -> None:
    world = World(9_000)
    assert world.path.deadline is None
    assert not world.path.must_confirm(world.path.size, world.now)


def test_a_settled_path_looks_for_more_only_after_a_while() -> None:
    world = World(1_472)
    world.look()
    assert not world.path.may_look(world.now + LOOK_AGAIN_NS - SECOND)
    world.carries, world.now = 8_972, world.now + LOOK_AGAIN_NS
    world.look()
    assert world.path.size == 8_972


@pytest.mark.parametrize("now_carries", [1_252, 1_392, 5_000])
def test_a_black_hole_is_noticed_while_large_packets_go_out(now_carries: int) -> None:
    world = World(8_972)
    world.look()
    world.carries = now_carries
    world.now += CONFIRM_NS
    began = world.now
    assert world.send_large()
    while world.path.size > now_carries:
        assert world.path.deadline is not None
        world.now = world.path.deadline
        for number, size in world.path.probes(world.now):
            if world.arrives(size):
                world.path.acknowledged(number, world.now + TRIP_NS)
    assert world.now - began < 1.5 * SECOND
    assert world.vanished == [8_972]
    world.settle()
    assert now_carries - max(32, now_carries // 32) <= world.path.size <= now_carries


def test_a_size_is_confirmed_now_and_then_not_always() -> None:
    world = World(8_972)
    world.look()
    asked = 0
    for _ in range(1_000):
        world.now += 10 * MILLISECOND
        asked += world.send_large()
    assert 10 <= asked <= 20, "ten seconds of traffic"
    assert not world.path.must_confirm(PACKET_BYTES_MIN, world.now + SECOND), "small ones need no proof"


def test_a_path_that_is_cut_says_nothing_about_sizes() -> None:
    world = World(8_972)
    world.look()
    world.carries = 0
    for _ in range(5):
        world.now += 2 * SECOND
        assert world.send_large()
        world.settle()
    assert world.path.size == 8_972
    assert not world.vanished
    world.carries, world.now = 8_972, world.now + 2 * SECOND
    assert world.send_large()
    assert world.path.deadline is None


def test_a_path_that_is_cut_from_the_start_is_asked_again_once_it_may_be_back() -> None:
    world = World(0)
    world.look()
    assert world.sent <= 10
    world.carries, world.now = 8_972, world.now + 2 * SECOND
    world.look()
    assert world.path.size == 8_972


def test_the_way_out_has_the_last_word() -> None:
    world = World(UDP_BYTES_MAX)
    world.look()
    world.path.refused(UDP_BYTES_MAX, 1_392, world.now)
    assert world.path.size == 1_392
    world.path.refused(1_392, 0, world.now)
    assert world.path.size == 1_392 * 7 // 8, "it did not say what fits"
    for _ in range(20):
        world.path.refused(world.path.size, 0, world.now)
    assert world.path.size == PACKET_BYTES_MIN


def test_a_question_that_the_way_out_refuses_gives_way_to_one_that_it_takes() -> None:
    world = World(1_392)
    world.path.look(UDP_BYTES_MAX, world.now)
    world.path.probes(world.now)
    world.path.refused(UDP_BYTES_MAX, 1_392, world.now)
    world.settle()
    assert world.path.size == 1_392
    assert world.sent == 2


def test_a_way_out_that_is_narrower_than_the_base() -> None:
    world = World(548)
    world.look(548)
    assert world.path.size == 548


@pytest.mark.parametrize("loss", [0.05, 0.2])
def test_loss_is_no_black_hole(loss: float) -> None:
    false, probes = 0, 0
    for seed in range(40):
        world = World(8_972, loss=loss, seed=seed)
        world.look(8_972)
        for _ in range(120):
            world.now += CONFIRM_NS
            world.send_large()
            world.settle()
        false, probes = false + len(world.vanished), probes + world.sent
    assert false <= 40 * 120 * (0.001 if loss < 0.1 else 0.02), f"{false} times in {40 * 120} questions"


def test_what_is_acknowledged_twice_late_or_never_asked_changes_nothing() -> None:
    world = World(1_472)
    world.look()
    for number in range(-3, 300):
        world.path.acknowledged(number, world.now)
    assert world.path.size == 1_472


@pytest.mark.parametrize("seed", range(30))
def test_random_paths_that_change_end_at_what_they_carry(seed: int) -> None:
    chance = random.Random(seed)
    world = World(chance.randint(1_252, UDP_BYTES_MAX), loss=chance.choice((0.0, 0.0, 0.1)), seed=seed)
    for _ in range(10):
        world.carries = chance.randint(1_252, UDP_BYTES_MAX)
        world.now += chance.randint(1, 120) * SECOND
        if chance.random() < 0.2:
            world.path.refused(world.path.size, chance.randint(0, UDP_BYTES_MAX), world.now)
        world.send_large()
        world.settle()
    world.loss = 0
    for _ in range(3):
        world.now += LOOK_AGAIN_NS
        world.send_large()
        world.settle()
        if world.path.may_look(world.now):
            world.look()
    assert world.carries - max(32, world.carries // 32) <= world.path.size <= world.carries


def test_headers_count() -> None:
    headers: Callable[[str], int] = headers_of
    assert (headers("127.0.0.1"), headers("::1")) == (28, 48)
