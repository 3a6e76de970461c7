"""Orderings: one protocol a file, one visible table."""

from __future__ import annotations

from antiphon.protocol.ordering.abcast import Abcast
from antiphon.protocol.ordering.causal_blocks import CausalBlocks
from antiphon.protocol.ordering.co import Co
from antiphon.protocol.ordering.fifo import Fifo
from antiphon.protocol.ordering.sequencer import Sequencer
from antiphon.protocol.ordering.tomp import Tomp
from antiphon.protocol.parts import Ordering

ORDERINGS: dict[str, type[Ordering]] = {
    "fifo": Fifo,
    "causal-blocks": CausalBlocks,
    "co": Co,
    "abcast": Abcast,
    "tomp": Tomp,
    "sequencer": Sequencer,
}
# What `causal` and `total` mean: the recommended one of each kind.
ALIASES: dict[str, str] = {"causal": "causal-blocks", "total": "abcast"}
