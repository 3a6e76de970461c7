"""CO: causal order by sequence numbers alone, on channels that lose, with atomic receipt in three visible levels."""

from antiphon.protocol.ordering.co.levels import Levels
from antiphon.protocol.ordering.co.pdus import CoOptions
from antiphon.protocol.ordering.co.protocol import Co

__all__ = ["Co", "CoOptions", "Levels"]
