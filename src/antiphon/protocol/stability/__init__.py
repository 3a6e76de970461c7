"""Stability: who holds what. One protocol a file, one visible table."""

from __future__ import annotations

from antiphon.protocol.parts import Stability
from antiphon.protocol.stability.coordinator import Coordinator
from antiphon.protocol.stability.full_distribution import FullDistribution
from antiphon.protocol.stability.timestamp_ack import TimestampAck
from antiphon.protocol.stability.train import Train
from antiphon.protocol.stability.tree_coordinator import TreeCoordinator
from antiphon.protocol.stability.tree_train import TreeTrain
from antiphon.protocol.stability.vector_ack import VectorAck

STABILITIES: dict[str, type[Stability]] = {
    "vector-ack": VectorAck,
    "timestamp-ack": TimestampAck,
    "coordinator": Coordinator,
    "full-distribution": FullDistribution,
    "train": Train,
    "tree-coordinator": TreeCoordinator,
    "tree-train": TreeTrain,
}
