"""Stability: who holds what. One protocol a file, one visible table."""

from __future__ import annotations

from antiphon.protocol.parts import Stability
from antiphon.protocol.stability.timestamp_ack import TimestampAck
from antiphon.protocol.stability.vector_ack import VectorAck

STABILITIES: dict[str, type[Stability]] = {
    "vector-ack": VectorAck,
    "timestamp-ack": TimestampAck,
}
