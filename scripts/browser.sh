#!/bin/sh
# Brings what the pages are tested in and by, where that can be had without asking: Chromium, and axe-core, which judges
# contrast and the like. The tests skip what they lack.
set -eu
axe=${VENV:-.venv}/axe
if [ ! -f "$axe/package/axe.min.js" ]; then
  mkdir -p "$axe"
  if command -v npm >/dev/null && (cd "$axe" && timeout 60 npm pack --silent axe-core@4.14.0 >/dev/null 2>&1 && tar xzf axe-core-*.tgz package/axe.min.js); then
    rm -f "$axe"/axe-core-*.tgz
  else
    echo "setup: no axe-core here, so the tests of the pages' contrast are skipped (npm pack axe-core brings it)" >&2
  fi
fi
for name in chromium chromium-browser google-chrome google-chrome-stable; do
  command -v "$name" >/dev/null && exit 0
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "setup: installing Chromium for the tests of the pages" >&2
  if apt-get update -q >/dev/null 2>&1 && apt-get install -q -y --no-install-recommends chromium >/dev/null 2>&1; then
    exit 0
  fi
fi
echo "setup: no Chromium here, so the tests of the pages are skipped (Debian: apt install chromium)" >&2
