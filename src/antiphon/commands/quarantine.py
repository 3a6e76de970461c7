"""Say on the console why rows were put aside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from antiphon.wording import count

_SHOWN: Final = 5


def show_reasons(reasons: Mapping[str, int], examples: Mapping[str, str]) -> None:
    """Print the most frequent reasons, each with how many rows it concerns and one of them."""
    for reason, rows in list(reasons.items())[:_SHOWN]:
        print(f"  {count(rows, 'row')}: {reason}")
        if reason in examples:
            print(f"    {examples[reason]}")
    if len(reasons) > _SHOWN:
        print(f"  and {len(reasons) - _SHOWN} other reasons: see the quarantine beside the output")
