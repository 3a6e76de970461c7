"""Promises of time: what happens within so many seconds on a machine that has time for it.

Tests of such promises run one at a time. One that is missed may be the machine's doing, so the Makefile tries such a
test again, twice at most; nothing else that a test finds is tried again.
"""

from __future__ import annotations


class TooLate(AssertionError):
    """Something happened, but later than promised."""


def keep(promised_s: float, took_s: float, what: str) -> None:
    """Fail if something took longer than promised."""
    if took_s > promised_s:
        raise TooLate(f"{what}: {took_s:.2f} s, more than {promised_s:.2f} s")
