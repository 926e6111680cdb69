#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Trains the same model twice on an emulated cluster, on plain NCCL and through railyard, and
# compares the two runs. Installs and builds what is missing first.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=${BUILD_DIR:-$root/build}

usage() {
  cat <<TEXT
usage: examples/moe/run.sh [options]
  --nodes N     nodes of the emulated cluster (2)
  --gpus G      GPUs of each (4)
  --steps S     steps of training (30)
  --data FILE   text to learn from, may be given again; .gz is unpacked
                (default: manuals of the Debian package perl-doc)
  --json FILE   write all figures there too
  --help        this text
The build folder is $build; BUILD_DIR names another.
TEXT
}

fail() {
  echo "run.sh: $1" >&2
  exit "${2:-1}"
}

nodes=2 gpus=4 steps=30 json='' data=()
while [ $# -gt 0 ]; do
  case $1 in
    --help | -h) usage; exit 0 ;;
    --nodes | --gpus | --steps | --data | --json)
      [ $# -ge 2 ] || fail "$1 needs a value; --help lists the options" 2
      case $1 in
        --data) data+=("$2") ;;
        --json) json=$2 ;;
        *)
          [[ $2 =~ ^[1-9][0-9]{0,8}$ ]] || fail "$1 $2 is not a number from 1 on" 2
          printf -v "${1#--}" '%s' "$2"
          ;;
      esac
      shift 2
      ;;
    *) fail "unknown option $1; --help lists the options" 2 ;;
  esac
done
for file in "${data[@]}"; do
  [[ -f $file && -r $file ]] || fail "cannot read $file; give text files with --data" 2
done
[ -z "$json" ] || [ -d "$(dirname "$json")" ] || fail "--json $json: there is no such folder" 2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The trainer takes plain files only, so all text goes into one.
gather_text() {
  local packages=()
  [ ${#data[@]} -gt 0 ] || packages=(perl-doc)
  "$root/packaging/build-deps.sh" "${packages[@]}"
  if [ ${#data[@]} -eq 0 ]; then
    local name
    for name in data dsc faq1 faq2 faq3 faq4 faq5 faq6 faq7 faq8 faq9 func glossary guts intro ipc \
      lol mod obj op ootut port re ref reftut retut run sec style sub syn unicode uniintro var; do
      data+=(/usr/share/perl/5.*.*/pod/perl"$name".pod)
    done
  fi
  local file
  for file in "${data[@]}"; do
    case $file in
      *.gz) zcat "$file" || fail "cannot unpack $file" 2 ;;
      *) cat "$file" || fail "cannot read $file" 2 ;;
    esac
  done >"$work/text"
}

build_all() {
  [ -f "$build/build.ninja" ] || meson setup "$build" "$root" >"$work/log" 2>&1 ||
    { tail -n 30 "$work/log" >&2; fail "meson setup failed; above are its last lines"; }
  echo "building in $build"
  ninja -C "$build" examples/moe/moe_train tests/emulator/launch/emulate \
    plugin/librailyard.so >"$work/log" 2>&1 ||
    { tail -n 60 "$work/log" >&2; fail "the build failed; above are its last lines"; }
}

# run NAME [options of the launcher]
run() {
  local name=$1
  shift
  "$build/tests/emulator/launch/emulate" --nodes "$nodes" --gpus "$gpus" --timeout 3600 \
    --env EMULATOR_NCCL_STATS="$work/$name.nccl" "$@" -- \
    "$build/examples/moe/moe_train" --data "$work/text" --steps "$steps" \
    --json "$work/$name.json" || fail "the $name run failed with status $?"
}

gather_text
build_all
echo "== plain NCCL, $nodes nodes of $gpus GPUs"
run plain
echo "== through railyard"
run railyard --preload "$build/plugin/librailyard.so" --env RAILYARD_TRANSPORT=tcp \
  --env RAILYARD_STATS="$work/railyard.stats"
python3 "$here/compare.py" "$work" ${json:+--json "$json"}
