"""What a test did to its processes, kept for reports in the words of a scenario's faults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from antiphon.protocol.machine import Instant


class DoneFault(msgspec.Struct, eq=False):
    """What was done to processes (by their names), links, clocks or the network; `until_ns` None: to the end."""

    kind: str
    at_ns: Instant
    sides: tuple[tuple[str, ...], ...]  # whom it concerns; of a cut: from whom to whom
    by: str | None = None  # how far a clock was set; what links have
    until_ns: Instant | None = None

    def told(self, numbers: Mapping[str, int]) -> dict[str, Any]:
        """Give it as run.json tells it, with members by number; a process that never was a member is left out."""
        sides = [[numbers[name] for name in side if name in numbers] for side in self.sides]
        until = None if self.until_ns is None else f"{self.until_ns}ns"
        said: dict[str, Any] = {"kind": self.kind, "at": f"{self.at_ns}ns", "until": until, "by": self.by}
        match self.kind:
            case "partition":
                said["groups"] = sides
            case "cut" | "link":
                said["from"], said["to"] = sides
            case "network":
                pass
            case _:
                said["member"] = next((member for side in sides for member in side), None)
        return {key: value for key, value in said.items() if value is not None}
