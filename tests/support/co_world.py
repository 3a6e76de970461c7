"""A group of CO entities joined by bags of PDUs, an adversary that empties them, and an obvious oracle beside it.

No simulator and no frames: the adversary decides by a seed what is delivered, lost, doubled or overtaken, and when time
passes. The oracle knows the truth because it sees everything: who had received what when a message was sent.
"""

from __future__ import annotations

import random

from antiphon.protocol.machine import MILLISECOND, Deliver, Stable, Submit
from antiphon.protocol.ordering.co import Co, CoOptions
from antiphon.protocol.parts import Out, PartContext, Received, Step
from antiphon.protocol.wire import Pdu
from antiphon.trace.event import Event

Message = tuple[int, int]  # sender, number


class World:
    """The group, its channels and its history."""

    def __init__(self, size: int, options: CoOptions | None = None, kind: type[Co] = Co, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.parts = [kind(PartContext(rank, size, self.random), options or CoOptions()) for rank in range(size)]
        self.ranks = range(size)
        self.now = 0
        self.channels: dict[tuple[int, int], list[Pdu]] = {(a, b): [] for a in self.ranks for b in self.ranks if a != b}
        self.waiting = [0] * size  # messages that the application still wants to send
        self.sent = [0] * size
        self.sendings: list[Out] = []
        self.received: list[set[Message]] = [set() for _ in self.ranks]
        self.delivered: list[list[Message]] = [[] for _ in self.ranks]
        self.past: dict[Message, set[Message]] = {}  # all that happened before its sending, receipts counted
        self.wrong: list[str] = []
        self.events: list[Event] = []  # the trace, for the checker's opinion

    # What can happen

    def submit(self, rank: int) -> None:
        """Let the application send one more message as soon as the flow condition allows it."""
        self.waiting[rank] += 1
        self._send_waiting(rank)

    def arrive(self, source: int, target: int, *, place: int = 0, keep: bool = False) -> None:
        """Deliver a PDU of a channel; with `keep` it is doubled."""
        channel = self.channels[source, target]
        pdu = channel[place] if keep else channel.pop(place)
        self._carry(target, self.parts[target].receive(source, pdu, self.now))
        self._send_waiting(target)

    def lose(self, source: int, target: int, place: int = 0) -> None:
        """Lose a PDU of a channel."""
        del self.channels[source, target][place]

    def wake(self, rank: int) -> None:
        """Wake an entity whose deadline has passed."""
        deadline = self.parts[rank].deadline
        if deadline is not None and deadline <= self.now:
            self._carry(rank, self.parts[rank].wake(self.now))
            self._send_waiting(rank)

    # The adversary

    def torture(self, steps: int, loss: float, duplicate: float, reorder: float) -> None:
        """Do so many random things."""
        for _ in range(steps):
            self.now += self.random.randrange(MILLISECOND)
            busy = [link for link, channel in self.channels.items() if channel]
            if busy and self.random.random() < 0.8:
                link = self.random.choice(busy)
                count = len(self.channels[link])
                place = self.random.randrange(count) if self.random.random() < reorder else 0
                if self.random.random() < loss:
                    self.lose(*link, place)
                else:
                    self.arrive(*link, place=place, keep=self.random.random() < duplicate)
            else:
                self.wake(self.random.choice(self.ranks))

    def settle(self, wakes_max: int = 20_000) -> bool:
        """Be kind: deliver everything and wake whoever asks, until all is silent; give up after so many wakes."""
        for _ in range(wakes_max):
            while busy := [link for link, channel in self.channels.items() if channel]:
                self.now += MILLISECOND
                for link in busy:
                    self.arrive(*link)
            deadlines = [part.deadline for part in self.parts if part.deadline is not None]
            if not deadlines:
                return True
            self.now = max(self.now, min(deadlines))
            for rank in self.ranks:
                self.wake(rank)
        return False

    # The oracle

    def complete(self) -> bool:
        """Whether everything was sent, delivered everywhere, and let go."""
        everything = {(rank, seq) for rank in self.ranks for seq in range(1, self.sent[rank] + 1)}
        return not any(self.waiting) and all(
            sorted(delivered) == sorted(everything) and part.held == 0
            for delivered, part in zip(self.delivered, self.parts, strict=True)
        )

    def _send_waiting(self, rank: int) -> None:
        part = self.parts[rank]
        while self.waiting[rank] and part.may_submit(0):
            self.waiting[rank] -= 1
            self.sent[rank] += 1
            message = (rank, self.sent[rank])
            self.past[message] = set().union(*(self.past[m] | {m} for m in self.received[rank]))
            self._trace(rank, "send", *message)
            self._carry(rank, part.submit(Submit(b"%d:%d" % message), message[1], self.now))

    def _carry(self, rank: int, step: Step) -> None:
        for out in step.down:
            assert isinstance(out, Out)
            self.sendings.append(out)
            for target in self.ranks if out.to is None else out.to:
                if target != rank:
                    self.channels[rank, target].append(out.pdu)
        for up in step.up:
            match up:
                case Received():
                    self._trace(rank, "receive", up.sender, up.seq)
                    self.received[rank].add((up.sender, up.seq))
                case Stable():
                    self._trace(rank, "stable", up.sender, up.seq)
                    if any((up.sender, up.seq) not in received for received in self.received):
                        self.wrong.append(f"{rank} marks {up.sender}:{up.seq} too early")
                case Deliver():
                    self._trace(rank, "deliver", up.sender, up.seq)
                    self._check_delivery(rank, (up.sender, up.seq), up.payload)
        part = self.parts[rank]
        assert part.held <= part.acceptance.places, "the buffer is bounded"

    def _trace(self, rank: int, event: str, sender: int, seq: int) -> None:
        step = len(self.events)
        self.events.append(Event("world", rank, step, event, sender, seq, time_ns=step))

    def _check_delivery(self, rank: int, message: Message, payload: bytes) -> None:
        if payload != b"%d:%d" % message:
            self.wrong.append(f"{rank} delivers {payload!r} as {message}")
        if message in self.delivered[rank]:
            self.wrong.append(f"{rank} delivers {message} twice")
        if not self.past[message] <= set(self.delivered[rank]):
            self.wrong.append(f"{rank} delivers {message} before {self.past[message] - set(self.delivered[rank])}")
        if any(part.levels()[message[0]].pre_acknowledged < message[1] for part in self.parts):
            self.wrong.append(f"{rank} delivers {message}, which someone has not pre-acknowledged")
        self.delivered[rank].append(message)
