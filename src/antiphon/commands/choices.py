"""Words of which an option takes one."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection

from antiphon.errors import did_you_mean


def one_of(names: Collection[str]) -> Callable[[str], str]:
    """Return a type for argparse that takes one of some names, and asks about one that is near."""

    def choice(word: str) -> str:
        if word not in names:
            raise argparse.ArgumentTypeError(
                f"unknown {word!r}{did_you_mean(word, names)}; choose from {', '.join(names)}"
            )
        return word

    return choice
