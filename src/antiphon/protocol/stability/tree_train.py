"""Tree train (S_Train): a train through the children of each member, from the first to the last and up to their parent.

Each member takes at most two reports and gives one, whatever the degree: less load at a time than S_CoordP, for more
message times a round.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from antiphon.protocol.parts import PartContext
from antiphon.protocol.rules import rule
from antiphon.protocol.stability.collect import CollectPart, Links, RoundAck, RoundAsk, RoundInfo, RoundStart
from antiphon.protocol.stability.trees import TreeOptions, children_of
from antiphon.protocol.wire import Pdu


class TreeTrainStart(RoundStart, tag=76):
    """Let the trains go."""

    kind: ClassVar[str] = "tree-train-start"


class TreeTrainAck(RoundAck, tag=77):
    """What its sender, its elder siblings and all their subtrees hold."""

    kind: ClassVar[str] = "tree-train-ack"


class TreeTrainInfo(RoundInfo, tag=78):
    """What all hold."""

    kind: ClassVar[str] = "tree-train-info"


class TreeTrainAsk(RoundAsk, tag=79):
    """Is there a newer frontier?"""

    kind: ClassVar[str] = "tree-train-ask"


class TreeTrain(CollectPart):
    """S_Train: reports go along the siblings, and the last of them reports to the parent."""

    PDUS: ClassVar[tuple[type[Pdu], ...]] = (TreeTrainStart, TreeTrainAck, TreeTrainInfo, TreeTrainAsk)
    START, ACK, INFO, ASK = TreeTrainStart, TreeTrainAck, TreeTrainInfo, TreeTrainAsk
    Options: ClassVar[type[msgspec.Struct]] = TreeOptions

    def __init__(self, context: PartContext, options: TreeOptions) -> None:
        super().__init__(context, options, options.tree(context.size))

    @staticmethod
    @rule("Section 4.2, S_Train")
    def links_of(parents: tuple[int, ...], rank: int) -> Links:
        """Wait for the last child and the sibling before; report to the sibling after or, if last, to the parent."""
        children = children_of(parents)
        awaits = set(children[rank][-1:])
        parent = parents[rank]
        if parent < 0:
            return Links(frozenset(awaits), None)
        siblings = children[parent]
        at = siblings.index(rank)
        awaits.update(siblings[at - 1 : at] if at else ())
        return Links(frozenset(awaits), siblings[at + 1] if at + 1 < len(siblings) else parent)
