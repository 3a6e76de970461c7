"""`python -m antiphon` is the command `antiphon`; so is this file, given to spark-submit."""

from __future__ import annotations

import os
import sys

# Run as a file, Python puts its folder first, where our modules would be taken for others of the same name.
_here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != _here]

from antiphon.cli import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
