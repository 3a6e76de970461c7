#!/bin/sh
# Builds the wheel and runs it in a virtual environment of its own, away from the checkout.
set -eu
cd "$(dirname "$0")/.."
python=$(cd "${VENV:-.venv}/bin" && pwd)/python
rm -rf build/wheel
"$python" -m build --quiet --no-isolation --wheel --outdir build/wheel .
away=$(mktemp -d)
trap 'rm -rf "$away"' EXIT
"$python" -m venv "$away/venv"
"$away/venv/bin/pip" install --quiet --disable-pip-version-check -c constraints.txt build/wheel/antiphon-*.whl
cd "$away"
venv/bin/antiphon simulate --members 3 --messages 20 --loss 0.1 --seed 1 --out trace --json >/dev/null
test -s trace/events.parquet
venv/bin/python -c 'import sys, antiphon; assert "pyspark" not in sys.modules'
echo "the wheel works outside the checkout"
