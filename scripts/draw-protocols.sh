#!/usr/bin/env bash
# Draw docs/pictures/PROTOCOL.svg from a small seeded run of each protocol, or of those that are named:
#   scripts/draw-protocols.sh [PROTOCOL ...]
set -euo pipefail -f
cd "$(dirname "$0")/.."
antiphon=${ANTIPHON:-.venv/bin/antiphon}

# protocol | the run | the message to follow: one that is lost on its way to somebody, and repaired
runs='
fifo              | --members 3 --messages 1 --seed 103 | 2:1
causal-blocks     | --members 3 --messages 2 --seed 109 | 2:1
co                | --members 3 --messages 2 --seed 134 | 0:1
abcast            | --members 3 --messages 2 --seed 71 | 0:1
tomp              | --members 3 --messages 2 --seed 71 | 0:1
sequencer         | --members 3 --messages 2 --seed 132 | 1:1
vector-ack        | --members 4 --messages 1 --seed 5 | 1:1
timestamp-ack     | --members 4 --messages 1 --seed 74 | 2:1
coordinator       | --members 4 --messages 1 --seed 143 | 2:1
full-distribution | --members 4 --messages 1 --seed 104 | 0:1
train             | --members 4 --messages 1 --seed 132 | 1:1
tree-coordinator  | --members 5 --messages 1 --seed 132 --set stability.degree=2 --set workload.senders=[0,3] | 3:1
tree-train        | --members 5 --messages 1 --seed 265 --set stability.degree=2 --set workload.senders=[0,3] | 0:1
'

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p docs/pictures
while IFS='|' read -r name run message; do
  name=$(echo $name) message=$(echo $message)
  [[ -z $name || ($# -gt 0 && " $* " != *" $name "*) ]] && continue
  case $name in
    fifo | causal-blocks | co | abcast | tomp | sequencer) protocol=(--ordering "$name") ;;
    *) protocol=(--ordering fifo --stability "$name") ;;
  esac
  "$antiphon" simulate "${protocol[@]}" $run --loss 0.1 --interval "exponential 4ms" --out "$work/$name" >"$work/log"
  "$antiphon" diagram "$work/$name" --around "$message" --out "docs/pictures/$name.svg" >"$work/log"
  echo "docs/pictures/$name.svg"
done <<<"$runs"
