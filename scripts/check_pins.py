"""Check that every version pinned in constraints.txt can be installed with every Python that Antiphon supports.

A pin is judged by its `Requires-Python`, read from the packages that are here. With `--index` pip is asked for
the metadata of all of them, which takes a network and a minute. Exits with 1 if a pin refuses one of the Pythons.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11.0", "3.11.2", "3.12.0", "3.13.0")  # the first of each version that we support, and Debian 12's


def pins() -> dict[str, str]:
    """Return the pinned version of each package."""
    lines = (line.split("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines())
    requirements = [Requirement(line) for line in lines if line]
    return {requirement.name: str(requirement.specifier).removeprefix("==") for requirement in requirements}


def installed() -> dict[str, str]:
    """Return the `Requires-Python` of each pinned package that is installed here in its pinned version."""
    found = {}
    for name, version in pins().items():
        try:
            described = metadata(name)
        except PackageNotFoundError:
            continue
        if described["Version"] == version:
            found[name] = described.get("Requires-Python") or ""
    return found


def on_the_index() -> dict[str, str]:
    """Return the `Requires-Python` of every pinned package, from the metadata that pip finds."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps"]
    pinned = [f"{name}=={version}" for name, version in pins().items()]
    asked = subprocess.run(
        [*pip, "--ignore-requires-python", "--report", "-", *pinned], capture_output=True, text=True, check=True
    )
    described = [package["metadata"] for package in json.loads(asked.stdout)["install"]]
    return {package["name"]: package.get("requires_python", "") for package in described}


def refusals(requires: Mapping[str, str]) -> list[str]:
    """Return a line for each package that refuses a Python that we support."""
    return [
        f"{name} wants Python {wanted}, which refuses {python}"
        for name, wanted in sorted(requires.items())
        for python in PYTHONS
        if python not in SpecifierSet(wanted)
    ]


def main() -> int:
    """Print what is wrong; return 1 if anything is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--index", action="store_true", help="ask pip for the metadata, of packages not installed too")
    known = on_the_index() if parser.parse_args().index else installed()
    wrong = refusals(known)
    print(*wrong, f"{len(known)} of {len(pins())} pins checked, {len(wrong)} refusals", sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
