#!/bin/sh
# Brings the Chromium that the pages are tested in, where that can be done without asking; the tests skip without one.
set -eu
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
