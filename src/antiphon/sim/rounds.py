"""One round of each stability protocol of the hierarchical paper, reduced to who sends what to whom when.

These hosts carry no sequence numbers: they are the reference for counts, queues and round-trip times on the LAN model.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from antiphon.sim.lan import HEADER_BYTES, LanMessage, LanSend, message_bytes
from antiphon.sim.trees import Tree


class RoundHost:
    """A member on its node; the root notes when the round begins and ends for it, all that a round-trip time needs."""

    def __init__(self, tree: Tree, node: int) -> None:
        self.tree = tree
        self.node = node
        self.is_root = node == tree.root
        self.begun_ns: int | None = None
        self.ended_ns: int | None = None

    def on_start(self, now: int) -> Sequence[LanSend]:
        """The root multicasts START, a bare header."""
        return [LanSend(None, HEADER_BYTES, "START")] if self.is_root else []

    def on_receive(self, message: LanMessage, now: int) -> Sequence[LanSend]:
        """Note START and INFO, and let the protocol answer."""
        if message.body == "START":
            self.begun_ns = now
        elif message.body == "INFO":
            self.ended_ns = now
        return self.answer(message)

    def answer(self, message: LanMessage) -> Sequence[LanSend]:
        """What the protocol sends on this message."""
        raise NotImplementedError

    def numbers_to(self, to: int | None, kind: str) -> list[LanSend]:
        """A message with one sequence number a member."""
        return [LanSend(to, message_bytes(len(self.tree)), kind)]


class CoordinatorHost(RoundHost):
    """CoordP: on START everyone sends its array to the root, which multicasts the minimum once it has all."""

    def __init__(self, tree: Tree, node: int) -> None:
        super().__init__(tree, node)
        self._awaited = len(tree) - 1

    def answer(self, message: LanMessage) -> Sequence[LanSend]:
        """ACK to the root on START; at the root, INFO on the last ACK."""
        if message.body == "START" and not self.is_root:
            return self.numbers_to(self.tree.root, "ACK")
        if message.body == "ACK":
            self._awaited -= 1
            if self._awaited == 0:
                return self.numbers_to(None, "INFO")
        return []


class FullDistributionHost(RoundHost):
    """FullDist: the root multicasts its row; whoever has received that multicasts its own."""

    def __init__(self, tree: Tree, node: int) -> None:
        super().__init__(tree, node)
        self._awaited = len(tree)

    def on_start(self, now: int) -> Sequence[LanSend]:
        """The root's INFO is what starts the others."""
        return self.numbers_to(None, "INFO") if self.is_root else []

    def on_receive(self, message: LanMessage, now: int) -> Sequence[LanSend]:
        """The round is over when all n INFOs are in."""
        from_root = message.sender == self.tree.root
        if from_root:
            self.begun_ns = now
        self._awaited -= 1
        if self._awaited == 0:
            self.ended_ns = now
        return self.numbers_to(None, "INFO") if from_root and not self.is_root else []


class TrainHost(RoundHost):
    """Train: the array goes around the circle twice, first to be lowered, then to be read."""

    def __init__(self, tree: Tree, node: int) -> None:
        super().__init__(tree, node)
        self._next = tree.circle_next[node]

    def on_start(self, now: int) -> Sequence[LanSend]:
        """The root sets the train going; there is no START."""
        if not self.is_root:
            return []
        self.begun_ns = now
        return self.numbers_to(self._next, "ACK")

    def on_receive(self, message: LanMessage, now: int) -> Sequence[LanSend]:
        """Pass the train on; at the root the first circle is the round trip, and the second one ends there."""
        if not self.is_root:
            return self.numbers_to(self._next, message.body)
        if message.body == "INFO":
            return []
        self.ended_ns = now
        return self.numbers_to(self._next, "INFO")


class _GatheringHost(RoundHost):
    """Speaks once, when all that it awaits is in: to the next on the way to the root or, as the root, to all."""

    def __init__(self, tree: Tree, node: int, awaited: int, following: int) -> None:
        super().__init__(tree, node)
        self._awaited, self._next = awaited, following

    def answer(self, message: LanMessage) -> Sequence[LanSend]:
        """ACK to the next, or INFO to all from the root, on the last of what is awaited."""
        if message.body == "INFO":
            return []
        self._awaited -= 1
        if self._awaited:
            return []
        return self.numbers_to(None, "INFO") if self.is_root else self.numbers_to(self._next, "ACK")


class TreeCoordinatorHost(_GatheringHost):
    """S_CoordP: a member reports to its parent once START and the reports of all its children are in."""

    def __init__(self, tree: Tree, node: int) -> None:
        super().__init__(tree, node, 1 + len(tree.children[node]), tree.parents[node])


class TreeTrainHost(_GatheringHost):
    """S_Train: a train through the children of each node, from the first to the last and then up to their parent."""

    def __init__(self, tree: Tree, node: int) -> None:
        is_root = node == tree.root
        siblings = [] if is_root else tree.children[tree.parents[node]]
        is_first = is_root or siblings[0] == node
        is_last = is_root or siblings[-1] == node
        # START, the train of the children (ACK2 from the last of them), the train of the siblings (ACK1 from the left).
        awaited = 1 + bool(tree.children[node]) + (not is_first)
        super().__init__(tree, node, awaited, tree.parents[node] if is_last else siblings[bisect_right(siblings, node)])


ROUND_HOSTS: dict[str, type[RoundHost]] = {
    "coordinator": CoordinatorHost,
    "full-distribution": FullDistributionHost,
    "train": TrainHost,
    "tree-coordinator": TreeCoordinatorHost,
    "tree-train": TreeTrainHost,
}
