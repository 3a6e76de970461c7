"""Causal blocks connected with no network: hand-made schedules, and a seeded adversary with an obvious oracle."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from antiphon.protocol.machine import MILLISECOND, Deliver, Drop, Stable, Submit
from antiphon.protocol.ordering.causal_blocks import BlockMessage, CausalBlocks, NullBlock
from antiphon.protocol.parts import Out, PartContext, Received, Step
from antiphon.protocol.wire import Codec, Header, Malformed, Pdu

WAKES_MAX = 100
Message = tuple[int, int]  # sender, seq


class Group:
    """Parts side by side, what they said, and what each of them did; time stands still unless told."""

    def __init__(self, size: int, seed: int = 0, ordering: type[CausalBlocks] = CausalBlocks, **options: Any) -> None:
        made = msgspec.convert({"grace_ns": 0, **options}, ordering.Options)  # what comes late here is lost
        self.parts = [ordering(PartContext(rank, size, random.Random(f"{seed}/{rank}")), made) for rank in range(size)]
        self.codec = Codec(ordering.PDUS)
        self.now = 0
        self.sent = [0] * size
        self.delivered: list[list[Message]] = [[] for _ in range(size)]
        self.discarded: list[list[tuple[int, int, str]]] = [[] for _ in range(size)]
        self.passed: list[list[Message]] = [[] for _ in range(size)]  # delivered or discarded
        self.received: list[list[Message]] = [[] for _ in range(size)]
        self.stable: list[list[Message]] = [[] for _ in range(size)]
        self.flaws: list[str] = []

    def submit(self, rank: int, payload: bytes = b"", **message: Any) -> BlockMessage:
        """Let a member multicast, and give the PDU."""
        self.sent[rank] += 1
        outs = self.carry(rank, self.parts[rank].submit(Submit(payload, **message), self.sent[rank], self.now))
        pdu = outs[0].pdu
        assert isinstance(pdu, BlockMessage)
        return pdu

    def give(self, rank: int, source: int, *pdus: Pdu) -> list[Out]:
        """Let a member receive PDUs from another, each through the codec as a network would carry it."""
        outs: list[Out] = []
        for pdu in pdus:
            outs += self.carry(rank, self.parts[rank].receive(source, self.through_the_wire(pdu), self.now))
        return outs

    def ask(self, rank: int, source: int, question: NullBlock) -> Out:
        """Let a member receive a null that asks, and give its answer, which waits for a random moment."""
        assert question.asking
        assert self.give(rank, source, question) == []
        (answer,) = self._next_wake(rank)
        return answer

    def wake(self, rank: int) -> list[Out]:
        """Wake a member at the present instant."""
        return self.carry(rank, self.parts[rank].wake(self.now))

    def silence(self, rank: int) -> NullBlock:
        """Move on to the instant at which a member breaks its silence, and give the null."""
        for _ in range(WAKES_MAX):
            for out in self._next_wake(rank):
                if isinstance(out.pdu, NullBlock):
                    return out.pdu
        raise AssertionError("no null")

    def repair(self, rank: int) -> BlockMessage:
        """Move on to the instant at which a member sends something again, and give it; its nulls are lost."""
        for _ in range(WAKES_MAX):
            for out in self._next_wake(rank):
                if isinstance(out.pdu, BlockMessage):
                    assert out.repair
                    return out.pdu
        raise AssertionError("nothing is sent again")

    def repairs(self, rank: int, until: int) -> list[tuple[int, BlockMessage]]:
        """Give what a member sends again up to an instant, and when, if it hears nothing."""
        sent = []
        while (deadline := self.parts[rank].deadline) is not None and deadline <= until:
            sent += [(self.now, out.pdu) for out in self._next_wake(rank) if isinstance(out.pdu, BlockMessage)]
        return sent

    def _next_wake(self, rank: int) -> list[Out]:
        deadline = self.parts[rank].deadline
        assert deadline is not None, "this member has nothing to say"
        self.now = max(self.now, deadline)
        return self.wake(rank)

    def through_the_wire(self, pdu: Pdu) -> Pdu:
        """Encode and decode."""
        frame = Codec.frame(Header(0, 0, 0, 0, 0), [self.codec.encode_pdu(pdu)])
        return self.codec.decode(frame)[1][0]

    def carry(self, rank: int, step: Step) -> list[Out]:
        """Note what went up, and give what goes down."""
        for up in step.up:
            match up:
                case Deliver():
                    self.delivered[rank].append((up.sender, up.seq))
                    self.passed[rank].append((up.sender, up.seq))
                case Drop():
                    assert up.sender is not None
                    assert up.seq is not None
                    self.discarded[rank].append((up.sender, up.seq, up.reason))
                    self.passed[rank].append((up.sender, up.seq))
                case Received():
                    self.received[rank].append((up.sender, up.seq))
                case Stable():
                    self.stable[rank].append((up.sender, up.seq))
                    self._check_stable(rank, up)
        outs = [out for out in step.down if isinstance(out, Out)]
        assert len(outs) == len(step.down), "causal blocks ask for no reliable stream"
        return outs

    def _check_stable(self, rank: int, mark: Stable) -> None:
        for member, received in enumerate(self.received):
            for seq in range(1, mark.seq + 1):
                if (mark.sender, seq) not in received:
                    self.flaws.append(f"{rank} calls ({mark.sender}, {seq}) stable, {member} has not received it")


class Adversary(Group):
    """A seeded network that loses, doubles and reorders, and an application that sends when it may."""

    def __init__(
        self,
        size: int,
        seed: int,
        ordering: type[CausalBlocks] = CausalBlocks,
        *,
        messages: int = 6,
        loss: float = 0.2,
        lifetime_ms: int | None = None,
        priorities: int = 1,
        **options: Any,
    ) -> None:
        super().__init__(size, seed, ordering, **options)
        self.random = random.Random(f"{seed}/adversary")
        self.messages, self.loss, self.lifetime_ms, self.priorities = messages, loss, lifetime_ms, priorities
        self.under_way: list[tuple[int, int, Pdu]] = []
        self.past: dict[Message, list[Message]] = {}
        self.refused = 0  # PDUs that no correct member sends

    def run(self, turns: int = 200_000) -> str | None:
        """Play until everything is let go everywhere; say what went wrong, if anything did."""
        for _ in range(turns):
            self._turn()
            if self.flaws:
                return self.flaws[0]
            if all(sent == self.messages for sent in self.sent) and not any(part.held for part in self.parts):
                return self._incomplete()
        return "stuck"

    def quiet(self, turns: int = 20_000) -> bool:
        """Say whether, with no more messages, everyone falls silent."""
        for _ in range(turns):
            if not self.under_way and all(part.deadline is None for part in self.parts):
                return True
            self._turn()
        return False

    def _turn(self) -> None:
        rng, rank = self.random, self.random.randrange(len(self.parts))
        part = self.parts[rank]
        if rng.random() < 0.1 and self.sent[rank] < self.messages and part.may_submit(0):
            life = None if self.lifetime_ms is None else rng.randint(0, self.lifetime_ms) * MILLISECOND
            past = list(self.passed[rank])
            pdu = self.submit(rank, lifetime_ns=life, priority=rng.randrange(self.priorities))
            self.past[rank, self.sent[rank]] = past
            self._spread(rank, [Out(pdu)])
        elif self.under_way and rng.random() < 0.9:
            place = rng.randrange(len(self.under_way))
            source, target, pdu = self.under_way[place]
            if rng.random() >= 0.1:  # else it is doubled: this copy arrives, another one stays under way
                self.under_way[place] = self.under_way[-1]
                self.under_way.pop()
            if rng.random() >= self.loss:
                try:
                    self._spread(target, self.give(target, source, pdu))
                except Malformed:
                    self.refused += 1
        else:
            self._let_time_pass(rank)

    def _let_time_pass(self, rank: int) -> None:
        deadlines = [deadline for part in self.parts if (deadline := part.deadline) is not None]
        self.now += self.random.randint(0, MILLISECOND)
        if deadlines and not self.under_way:
            self.now = max(self.now, min(deadlines))
        deadline = self.parts[rank].deadline
        if (
            deadline is not None and deadline <= self.now
        ) or self.random.random() < 0.05:  # a spurious wake is harmless
            self._spread(rank, self.wake(rank))

    def _spread(self, source: int, outs: list[Out]) -> None:
        for out in outs:
            targets = range(len(self.parts)) if out.to is None else out.to
            self.under_way += [(source, target, out.pdu) for target in targets if target != source]

    def carry(self, rank: int, step: Step) -> list[Out]:
        before = len(self.passed[rank])
        outs = super().carry(rank, step)
        for place in range(before, len(self.passed[rank])):
            message = self.passed[rank][place]
            known = set(self.passed[rank][:place])
            if message in known:
                self.flaws.append(f"{rank} passes {message} twice")
            missing = [cause for cause in self.past.get(message, []) if cause not in known]
            if missing:
                self.flaws.append(f"{rank} passes {message} before {missing[0]}")
        return outs

    def _incomplete(self) -> str | None:
        everything = {(sender, seq) for sender in range(len(self.parts)) for seq in range(1, self.messages + 1)}
        for rank, passed in enumerate(self.passed):
            if missing := everything - set(passed):
                return f"{rank} lacks {sorted(missing)[0]}"
        return None
