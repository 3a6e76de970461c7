#!/usr/bin/env bash
# Run targets of the Makefile with every other Python from 3.11 on that this machine has (on the PATH, or pyenv's), each in a copy
# of the checkout and an environment of its own under out/pythons:
#   scripts/pythons.sh demo quick
# "Other" means: than the one that the environment in .venv was made with. Prints how each ended, and pytest's last line.
set -uo pipefail
cd "$(dirname "$0")/.."
unset MAKEFLAGS MAKELEVEL MFLAGS VENV PYTHON EXTRAS

version_of() { "$1" -c 'import platform, sys; sys.version_info >= (3, 11) and print(platform.python_version())' 2>/dev/null; }

others() { # each as "version path", one path for a version
  local own candidate version
  own=$([ -x .venv/bin/python ] && version_of .venv/bin/python)
  { compgen -c python3. | sort -u | xargs -r -I NAME which -a NAME
    compgen -G "$HOME/.pyenv/versions/*/bin/python3.*"; } | grep -E '/python3\.[0-9]+$' | while read -r candidate; do
    version=$(version_of "$candidate")
    [ -z "$version" ] || [ "$version" = "$own" ] || echo "$version $candidate"
  done | sort -V -u -k 1,1
}

copy_to() { # the checkout as it stands, without what the Makefile made
  mkdir -p "$1"
  find "$1" -mindepth 1 -maxdepth 1 ! -name .venv -exec rm -rf {} +
  tar -c --exclude=./.git --exclude=./.venv --exclude=./.java --exclude=./out --exclude=./build --exclude=./dist \
    --exclude=__pycache__ --exclude='./.*_cache' --exclude=./.hypothesis . | tar -x -C "$1"
}

try_with() { # version, interpreter: a line that says how it ended, and the end of its log if it failed
  local version=$1 python=$2 folder=out/pythons/$1 begun=$SECONDS ended=passed
  copy_to "$folder"
  make -C "$folder" PYTHON="$python" EXTRAS="${WITH:-test}" WORKERS=1 $TARGETS </dev/null >"$folder.log" 2>&1 || ended=FAILED
  echo "Python $version ($python): make $TARGETS: $ended in $((SECONDS - begun)) s; $(grep -E '^([0-9]+ (passed|failed)|FAILED|ERROR)' "$folder.log" | tail -1)"
  [ $ended = passed ] || { tail -40 "$folder.log"; return 1; }
}

# three at a time, each with one worker: some compute while others install, or wait for a process
export -f try_with copy_to
export TARGETS="$*"
others | xargs -r -P 3 -L 1 bash -uo pipefail -c 'try_with "$@"' _
