"""The pinned versions can be installed with every Python that we support."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("packaging")
ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import check_pins  # noqa: E402


def test_every_installed_pin_admits_every_python_that_we_support() -> None:
    assert check_pins.refusals(check_pins.installed()) == []


def test_most_pins_are_installed_in_their_versions() -> None:
    """So that the test above looks at something; `make pins` looks at the rest."""
    assert len(check_pins.installed()) >= len(check_pins.pins()) // 3


@pytest.mark.parametrize(
    ("wants", "refused"),
    [(">=3.11.5", ["3.11.0", "3.11.2"]), ("<3.13", ["3.13.0"]), (">=3.9,!=3.12.*", ["3.12.0"]), ("", []), (">=3", [])],
)
def test_what_a_package_refuses_is_said_by_name(wants: str, refused: list[str]) -> None:
    lines = check_pins.refusals({"soupsieve": wants})
    assert [line.split()[-1] for line in lines] == refused
    assert all(line.startswith("soupsieve ") for line in lines)


def test_a_pin_that_is_not_a_version_is_not_taken_for_one() -> None:
    assert all(version and version[0].isdigit() and "*" not in version for version in check_pins.pins().values())


def test_the_classifiers_name_what_is_checked() -> None:
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    named = [line.rsplit(" ", 1)[1] for line in classifiers if line.startswith("Programming Language :: Python :: 3.")]
    assert named == sorted({python.rpartition(".")[0] for python in check_pins.PYTHONS})
