"""Causal order with symmetric recovery at delivery time: the causal blocks protocol of BCG.

`messages` is what members say, `matrix` what a member keeps, `protocol` the rules.
"""

from __future__ import annotations

from antiphon.protocol.ordering.causal_blocks.messages import BlockMessage, CausalBlocksOptions, NullMessage
from antiphon.protocol.ordering.causal_blocks.protocol import CausalBlocks

__all__ = ["BlockMessage", "CausalBlocks", "CausalBlocksOptions", "NullMessage"]
