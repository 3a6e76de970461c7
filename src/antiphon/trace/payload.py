"""What a message says, as the text that a trace keeps of it: short, printable, bytes that are no text as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

TEXT_MAX: Final = 200  # characters of a message that are kept
_BYTES_MAX: Final = 16  # of a message that is no text
_MESSAGES_MAX: Final = 5  # of those that were sent together


def payload_text(payload: bytes) -> str:
    """Return the beginning of a payload: as text if it is one, else its first bytes and how many there are."""
    head = payload[: 4 * TEXT_MAX + 4]  # a character takes four bytes at most
    try:
        text = head.decode() if len(head) == len(payload) else head.decode(errors="ignore")
    except UnicodeDecodeError:
        text = None
    if text is None or not _is_readable(text):
        shown = payload[:_BYTES_MAX].hex(" ")
        return f"{len(payload):,} bytes: {shown}{' …' if len(payload) > _BYTES_MAX else ''}"
    return text if len(text) <= TEXT_MAX and len(head) == len(payload) else f"{text[: TEXT_MAX - 1]}…"


def payload_texts(payloads: Sequence[bytes]) -> str:
    """Return what several messages that were sent together say."""
    told = " | ".join(map(payload_text, payloads[:_MESSAGES_MAX]))
    more = len(payloads) - _MESSAGES_MAX
    return told if more <= 0 else f"{told} | and {more:,} more"


def printable(text: str) -> str:
    """Return a text on one line, with a sign in the place of each character that cannot be shown."""
    return "".join(sign if sign.isprintable() else "�" for sign in " ".join(text.split()))


def _is_readable(text: str) -> bool:
    return all(sign.isprintable() or sign.isspace() for sign in text)
