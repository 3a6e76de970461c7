"""The guarantees and their verdicts as a page says them."""

from __future__ import annotations

from typing import Final, NamedTuple

from markupsafe import Markup

from antiphon.trace.verdict import VerdictName
from antiphon.web.elements import SIGNS


class GuaranteeWords(NamedTuple):
    """A guarantee in words: its name, what it means, and what is counted."""

    name: str
    meaning: str
    examined: tuple[str, str]  # one and many of what is examined
    broken: tuple[str, str]  # and of what a violation is


GUARANTEES: Final[dict[str, GuaranteeWords]] = {
    "integrity": GuaranteeWords(
        "Integrity",
        "nothing is delivered twice, or out of nowhere",
        ("delivery", "deliveries"),
        ("false or repeated delivery", "false or repeated deliveries"),
    ),
    "validity": GuaranteeWords(
        "Validity",
        "whoever sends a message delivers it too",
        ("own message of a member", "own messages of members"),
        ("own message not delivered", "own messages not delivered"),
    ),
    "agreement": GuaranteeWords(
        "Agreement",
        "what one member delivers, all who go on with it deliver",
        ("delivery that obliges others", "deliveries that oblige others"),
        ("delivery is missing", "deliveries are missing"),
    ),
    "fifo": GuaranteeWords(
        "Sender order",
        "each sender's messages are delivered in the order it sent them",
        ("delivery", "deliveries"),
        ("delivery too late", "deliveries too late"),
    ),
    "causal": GuaranteeWords(
        "Causal order",
        "no answer is delivered before what it answers",
        ("delivery with a cause", "deliveries with a cause"),
        ("delivery before its cause", "deliveries before their cause"),
    ),
    "total": GuaranteeWords(
        "Total order",
        "all members deliver in one and the same order",
        ("pair of members", "pairs of members"),
        ("pair that disagrees", "pairs that disagree"),
    ),
    "stability": GuaranteeWords(
        "Stability",
        "what is called stable is really held by every member",
        ("mark of stability", "marks of stability"),
        ("wrong mark", "wrong marks"),
    ),
    "view-synchrony": GuaranteeWords(
        "View synchrony",
        "members that move on together have delivered the same messages",
        ("pair of members in a view", "pairs of members in a view"),
        ("pair that differs", "pairs that differ"),
    ),
    "at-least-once": GuaranteeWords(
        "At least once",
        "what the broker took, every consumer that is owed it is given",
        ("message owed to a consumer", "messages owed to consumers"),
        ("message lost to a consumer", "messages lost to consumers"),
    ),
    "at-most-once": GuaranteeWords(
        "At most once",
        "no consumer is given a message twice",
        ("delivery", "deliveries"),
        ("repeated delivery", "repeated deliveries"),
    ),
    "partition-order": GuaranteeWords(
        "Partition order",
        "each partition is read in its own order",
        ("first delivery", "first deliveries"),
        ("delivery too late", "deliveries too late"),
    ),
    "redelivery": GuaranteeWords(
        "Marked redelivery",
        "who is given a message again is told so",
        ("delivery", "deliveries"),
        ("repeated delivery without a mark", "repeated deliveries without a mark"),
    ),
}

KINDS: Final[dict[str, str]] = {"holds": "good", "violated": "bad", "unknown": "warn"}  # verdict -> colour


def verdict(word: VerdictName, *, decides: bool = True, where: str = "") -> Markup:
    """Return a verdict as sign and word; in a muted colour if the guarantee was neither promised nor asked for."""
    kind = KINDS[word]
    return Markup('<span class="verdict {}"><span aria-hidden="true">{}</span> {}{}</span>').format(
        kind if decides else "muted", SIGNS[kind], word, where
    )
