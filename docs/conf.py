"""The documentation site; `make docs` builds it from the whole checkout, so that every link leads somewhere.

Nothing is loaded from elsewhere when it is read, and nothing is fetched when it is built.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_site"))

from antiphon import __version__

project = "Antiphon"
author = "The Antiphon authors"
copyright = "The Antiphon authors"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "reference"]
root_doc = "docs/index"
include_patterns = [
    "docs/*.md",
    "docs/protocols/*.md",
    "bench/*/README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
]
exclude_patterns = [".*", "out", "build", "src", "tests", "examples", "scripts", "dist"]

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
# TOML with comments after inline tables, and console sessions, are shown as they are if the lexer stumbles.
suppress_warnings = ["misc.highlighting_failure"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
default_role = "code"  # docstrings are written with single backticks
python_maximum_signature_line_length = 88

html_theme = "furo"
html_title = f"Antiphon {__version__}"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_static_path: list[str] = []
html_use_index = True
