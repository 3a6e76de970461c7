"""The guarantees and their verdicts as a page says them."""

from __future__ import annotations

from typing import Final, NamedTuple

from markupsafe import Markup

from antiphon.trace.verdict import VerdictName
from antiphon.web.elements import SIGNS


class GuaranteeWords(NamedTuple):
    """A guarantee as one would say it: its name, and what it means to have it."""

    name: str
    meaning: str


GUARANTEES: Final[dict[str, GuaranteeWords]] = {
    "integrity": GuaranteeWords("Integrity", "nothing is delivered twice, or out of nowhere"),
    "validity": GuaranteeWords("Validity", "whoever sends a message delivers it too"),
    "agreement": GuaranteeWords("Agreement", "what one member delivers, all who go on with it deliver"),
    "fifo": GuaranteeWords("Sender order", "each sender's messages are delivered in the order it sent them"),
    "causal": GuaranteeWords("Causal order", "no answer is delivered before what it answers"),
    "total": GuaranteeWords("Total order", "all members deliver in one and the same order"),
    "stability": GuaranteeWords("Stability", "what is called stable is really held by every member"),
    "view-synchrony": GuaranteeWords(
        "View synchrony", "members that move on together have delivered the same messages"
    ),
}

KINDS: Final[dict[str, str]] = {"holds": "good", "violated": "bad", "unknown": "warn"}  # verdict -> colour


def verdict(word: VerdictName, *, decides: bool = True, where: str = "") -> Markup:
    """Return a verdict as sign and word; that of a guarantee nobody asked for is held back in colour."""
    kind = KINDS[word]
    return Markup('<span class="verdict {}"><span aria-hidden="true">{}</span> {}{}</span>').format(
        kind if decides else "muted", SIGNS[kind], word, where
    )
