#!/bin/sh
# Follows the way of a newcomer, and times it: the wheel with everything in a new environment, then chapters 1 to 6 as they are written.
# Arguments are the numbers of the chapters to play; all of them without any.
set -eu
cd "$(dirname "$0")/.."
root=$(pwd)
python=$(cd "${VENV:-.venv}/bin" && pwd)/python
rm -rf build/wheel
"$python" -m build --quiet --no-isolation --wheel --outdir build/wheel .
away=$(mktemp -d)
trap 'rm -rf "$away"' EXIT
began=$(date +%s)
"$python" -m venv "$away/venv"
# pytest is for the player of the chapters alone
"$away/venv/bin/pip" install --quiet --disable-pip-version-check -c constraints.txt "$(echo build/wheel/antiphon-*.whl)[all]" pytest
echo "pip install 'antiphon[all]': $(($(date +%s) - began)) s"
cd "$away"
PATH=$away/venv/bin:$PATH  # as in an activated environment: Spark's workers are the python3 of the path
export PATH
PYTHONPATH=$root/tests:$root venv/bin/python "$root/scripts/newcomer.py" "$@"
