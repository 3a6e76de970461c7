"""The errors that a user of Antiphon can cause, each one a sentence that names the culprit and the remedy."""

from __future__ import annotations


class AntiphonError(Exception):
    """Base of every error that Antiphon raises on purpose."""


class UsageError(AntiphonError):
    """A wrong flag, scenario or input; the command line prints it as one line and exits with 2."""


class LocalProtocolError(AntiphonError):
    """The local caller asked a machine for something that its state does not allow; nothing was changed."""
