"""Tree coordinator (S_CoordP): everyone reports to its parent once its children have; the root tells all the minimum.

No member takes more than degree + 2 messages a round, whatever the size of the group.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from antiphon.protocol.parts import PartContext
from antiphon.protocol.stability.collect import CollectPart, RoundAck, RoundAsk, RoundInfo, RoundStart
from antiphon.protocol.stability.trees import TreeOptions
from antiphon.protocol.wire import Pdu


class TreeStart(RoundStart, tag=72):
    """Report to your parent."""

    kind: ClassVar[str] = "tree-start"


class TreeAck(RoundAck, tag=73):
    """What its sender's subtree holds."""

    kind: ClassVar[str] = "tree-ack"


class TreeInfo(RoundInfo, tag=74):
    """What all hold."""

    kind: ClassVar[str] = "tree-info"


class TreeAsk(RoundAsk, tag=75):
    """Is there a newer frontier?"""

    kind: ClassVar[str] = "tree-ask"


class TreeCoordinator(CollectPart):
    """S_CoordP: reports go up a tree."""

    PDUS: ClassVar[tuple[type[Pdu], ...]] = (TreeStart, TreeAck, TreeInfo, TreeAsk)
    START, ACK, INFO, ASK = TreeStart, TreeAck, TreeInfo, TreeAsk
    Options: ClassVar[type[msgspec.Struct]] = TreeOptions

    def __init__(self, context: PartContext, options: TreeOptions) -> None:
        super().__init__(context, options, options.tree(context.size))
