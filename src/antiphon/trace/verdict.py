"""What a check says: a verdict on each guarantee, and a witness with one sentence for each violation.

Only the form of it: how a verdict is reached and how a witness is worded, each checker decides for itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

import msgspec

VerdictName = Literal["holds", "violated", "unknown"]
HOLDS, VIOLATED, INCONCLUSIVE = 0, 1, 3  # exit codes
Message = tuple[int, int]  # (sender, that sender's number for it)


class WitnessEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event of a witness; `member` is there only where it is not the member of the witness."""

    step: int
    event: str
    sender: int | None
    seq: int | None
    member: int | None = None


class Witness(msgspec.Struct, frozen=True):
    """The few events that show one violation."""

    run: str
    member: int
    events: list[WitnessEvent]
    why: str


class Verdict(msgspec.Struct, frozen=True):
    """What is known of one guarantee."""

    verdict: VerdictName
    examined: int
    violations: int
    witnesses: list[Witness]


def deciding(
    verdicts: Mapping[str, VerdictName], promised: Collection[str] | None, *, named: bool = False
) -> list[str]:
    """Name the guarantees that decide: those asked for, else those promised, else all of which something is known."""
    if named:
        return list(verdicts)
    if promised:
        return [name for name in verdicts if name in promised]
    return [name for name, verdict in verdicts.items() if verdict != "unknown"]


def exit_code(words: Collection[VerdictName]) -> int:
    """Give a command's exit code by the verdicts that decide."""
    if "violated" in words:
        return VIOLATED
    return INCONCLUSIVE if "unknown" in words or not words else HOLDS
