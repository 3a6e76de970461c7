"""The very parts that members are made of, as hosts on the LAN model: one round of a stability protocol.

Every part is told that a message has arrived everywhere, so that the coordinator, the root of the tree, wants a round;
then what the parts send goes over the network. The model's sizes are the paper's and not those of our frames, so
messages are charged by their kind: START is a bare header, everything else a header and one number a member.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgspec

from antiphon.protocol.parts import Frontier, Out, PartContext, Stability, Step
from antiphon.protocol.stability import STABILITIES
from antiphon.protocol.stability.collect import RoundInfo, RoundStart
from antiphon.protocol.stability.full_distribution import FullDistribution
from antiphon.protocol.stability.train import Train
from antiphon.protocol.wire import Data
from antiphon.sim.lan import HEADER_BYTES, LanMessage, LanSend, message_bytes
from antiphon.sim.trees import Tree

_ARRIVED = Data(number=1)


def options_for(tree: Tree, part: type[Stability]) -> msgspec.Struct:
    """Give the options that let a protocol follow the network's tree."""
    known = {"coordinator": tree.root, "parents": list(tree.parents), "ring": tree.circle}
    options: dict[str, Any] = {key: value for key, value in known.items() if key in part.Options.__struct_fields__}
    return part.Options(**options)


def part_hosts(tree: Tree, stability: str) -> list[PartHost]:
    """Give each node of the tree its part."""
    part = STABILITIES[stability]
    options = options_for(tree, part)
    return [
        PartHost(part(PartContext(node, len(tree), random.Random(node)), options), tree, node)
        for node in range(len(tree))
    ]


class PartHost:
    """A stability part on its node; at the root it notes when the round begins and ends."""

    def __init__(self, part: Stability, tree: Tree, node: int) -> None:
        self.part, self.node = part, node
        self.is_root = node == tree.root
        self.begun_ns: int | None = None
        self.ended_ns: int | None = None
        self.frontier: tuple[int, ...] | None = None
        self._size = len(tree)

    def on_start(self, now: int) -> Sequence[LanSend]:
        """Let a message have arrived; at the root, the round that follows from it begins."""
        self._carry(self.part.advanced(0, _ARRIVED, [1], now))
        if not self.is_root:
            return []
        if isinstance(self.part, Train):
            self.begun_ns = now  # there is no START
        deadline = self.part.deadline
        assert deadline is not None, "something is unstable"
        return self._carry(self.part.wake(deadline))

    def on_receive(self, message: LanMessage, now: int) -> Sequence[LanSend]:
        """Hand a message to the part, unless it is the sender's own copy, which only tells the time."""
        if message.sender == self.node:
            if isinstance(message.body, RoundInfo):
                self.ended_ns = now
            else:
                self.begun_ns = now
            return []
        sends = self._carry(self.part.receive(message.sender, message.body, now))
        if isinstance(self.part, FullDistribution | Train) and self.frontier and self.ended_ns is None:
            self.ended_ns = now
        return sends

    def _carry(self, step: Step) -> list[LanSend]:
        sends: list[LanSend] = []
        for out in step.down:
            assert isinstance(out, Out)
            size = HEADER_BYTES if isinstance(out.pdu, RoundStart) else message_bytes(self._size)
            sends += [LanSend(to, size, out.pdu) for to in ((None,) if out.to is None else out.to)]
        for up in step.up:
            assert isinstance(up, Frontier)
            self.frontier = up.numbers
        return sends
