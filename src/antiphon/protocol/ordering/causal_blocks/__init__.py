"""Causal order with symmetric recovery at delivery time: the causal blocks protocol of BCG.

`messages` is what members say and `matrix` what a member keeps. The rules: `knowledge` is what stamps tell, `delivery`
when a message is delivered, `buffer` where it waits, `repair` who sends it again, `silence` the null messages,
`lifetimes` what becomes of the expired; `protocol` puts them together, and ends a view.
"""

from __future__ import annotations

from antiphon.protocol.ordering.causal_blocks.messages import BlockMessage, CausalBlocksOptions, NullBlock
from antiphon.protocol.ordering.causal_blocks.protocol import CausalBlocks

__all__ = ["BlockMessage", "CausalBlocks", "CausalBlocksOptions", "NullBlock"]
