#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Inside the soft-RoCE machine: trains the mixture of experts on plain NCCL and through railyard over
# verbs, every node with soft-RoCE devices of its own. Fails unless all parameters are the same.
#
# usage: moe.sh NODES GPUS STEPS      PROGRAMS: the folder that suites.sh has put the programs into
set -euo pipefail
nodes=$1 gpus=$2 steps=$3
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

devices=()
for ((rank = 0; rank < nodes * gpus; ++rank)); do
  own=
  for ((i = rank / gpus * gpus + 1; i <= (rank / gpus + 1) * gpus; ++i)); do own+=,rxe$i; done
  devices+=(--env-on "$rank:NCCL_IB_HCA==${own#,}")
done

# run NAME [options of the launcher]
run() {
  local name=$1
  shift
  "$PROGRAMS/launch/emulate" --nodes "$nodes" --gpus "$gpus" --timeout 600 \
    --env EMULATOR_NCCL_STATS="$work/$name.nccl" "$@" -- \
    "$PROGRAMS/launch/moe_train" --data "$root/README.md" "$root/plugin/README.md" \
    --steps "$steps" --batch 2 --width 32 --hidden 64 --json "$work/$name.json"
}

run plain
run railyard --preload "$PROGRAMS/launch/librailyard.so" --env RAILYARD_TRANSPORT=verbs \
  --env RAILYARD_STATS="$work/railyard.stats" "${devices[@]}"
grep -v '"transport": "verbs"' "$work/railyard.stats" && echo "moe.sh: not all over verbs" && exit 1
python3 "$root/examples/moe/compare.py" "$work"
