"""The headline of a trace's pages: what happened to the group, if anything did, and then the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from antiphon.pipeline.results import CheckResult
from antiphon.report.facts import Facts
from antiphon.report.guarantee_words import GUARANTEES
from antiphon.report.incidents import headline_of, incidents
from antiphon.trace import schema
from antiphon.wording import count, listed

NAMED_MAX: Final = 4  # guarantees that the headline names; of more it says how many


def headline(facts: Facts) -> str:
    """What happened to the group, if anything did, and then the verdict."""
    return " ".join((*headline_of(incidents(facts)), verdict_sentence(facts)))


def verdict_sentence(facts: Facts) -> str:
    """Which guarantees were kept, in one sentence."""
    if not facts.events:
        return "The trace is empty."
    if facts.checked is None:
        return "Not checked."
    found, names = facts.checked.guarantees, facts.checked.deciding()
    broken = [GUARANTEES[name].name for name in names if found[name].verdict == "violated"]
    open_ = [GUARANTEES[name].name for name in names if found[name].verdict == "unknown"]
    if broken:
        return f"{listed(broken)} {'is' if len(broken) == 1 else 'are'} broken."
    if not names:
        return "Nothing could be examined."
    if open_:
        return f"{_unread(facts)}{_undecided(facts.checked, names)}."
    if len(names) == 1:
        return f"{GUARANTEES[names[0]].name} holds."
    return f"All {len(names)} {kind_of(facts.checked, names)} guarantees hold."


def _unread(facts: Facts) -> str:
    """Say how many rows were put aside, and why if all were for one reason."""
    if not facts.quarantined:
        return ""
    reasons = [reason.partition(" (")[0] for reason in facts.quarantine_reasons]
    why = f" ({reasons[0]})" if len(reasons) == 1 else ""
    return f"{count(facts.quarantined, 'row')} could not be read{why}: "


def _undecided(checked: CheckResult, names: Sequence[str]) -> str:
    """Say which guarantees the trace cannot decide, and which had nothing to examine."""
    found = checked.guarantees
    empty = [name for name in names if found[name].verdict == "unknown" and not found[name].examined]
    open_ = [name for name in names if found[name].verdict == "unknown" and name not in empty]
    kept = len(names) - len(empty) - len(open_)
    said = []
    if len(open_) > NAMED_MAX:
        said.append(f"{len(open_)} of {len(names)} {kind_of(checked, names)} guarantees cannot be decided")
    elif open_:
        said.append(f"{listed([GUARANTEES[name].name for name in open_])} cannot be decided")
    if empty:
        said.append(f"{listed([GUARANTEES[name].name for name in empty])} had nothing to examine")
    if kept:
        which = f"{kind_of(checked, names)} guarantee"
        said.append(f"the other {which} holds" if kept == 1 else f"the other {count(kept, which)} hold")
    return "; ".join(said)


def kind_of(checked: CheckResult, names: Sequence[str]) -> str:
    """Say what the guarantees that decide have in common."""
    if checked.named or len(checked.guarantees) < len(schema.GUARANTEES):
        return "requested"
    return "promised" if any(checked.guarantees[name].promised for name in names) else "examined"
