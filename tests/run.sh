#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs what is missing, builds, and runs the tests. The last line is "N passed, N failed"
# (", N skipped" if so); the exit status is 0 only if nothing failed.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1

usage() {
  cat <<'TEXT'
usage: tests/run.sh [options]
  --full              many more random exchanges (about half an hour on two cores)
  --sanitize LIST     sanitizer builds to test: address, thread, both (default) or none
  --only-sanitizers   leave the plain build and the soft-RoCE machine out
  --no-rdma           leave the soft-RoCE machine out; counted as skipped
  --no-packages       leave building and installing packages out; counted as skipped
  --help
BUILD_DIR (default: build) holds the plain build; the sanitizers' are BUILD_DIR-asan and -tsan.
TEXT
}

tier=quick sanitizers="address thread" plain=yes rdma=yes packages=yes
while [ $# -gt 0 ]; do
  case $1 in
    --full) tier=full ;;
    --no-rdma) rdma=no ;;
    --no-packages) packages=no ;;
    --only-sanitizers) plain=no rdma=leave packages=leave ;;
    --sanitize)
      shift
      case ${1-} in
        address | thread) sanitizers=$1 ;;
        both) sanitizers="address thread" ;;
        none) sanitizers= ;;
        *) usage >&2 && exit 2 ;;
      esac
      ;;
    --help) usage && exit 0 ;;
    *) echo "tests/run.sh: unknown option $1" >&2 && usage >&2 && exit 2 ;;
  esac
  shift
done

build_dir=${BUILD_DIR:-build}
export TESTS_TIER=$tier
jobs=$(nproc)
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
began=$SECONDS

# Runs "$@", shows its output only if it fails.
quietly() {
  "$@" >"$results/log" 2>&1 && return
  tail -n 60 "$results/log"
  return 1
}

# A line of the tally for something that is not a Meson test: count NAME PASSED FAILED SKIPPED
count() { printf '%s\t%s\t%s\t%s\n' "$@" >>"$results/counts"; }

# Builds in DIR with the given Meson options what the tests need that ARGS choose, and runs them:
# meson_tests NAME DIR OPTIONS -- ARGS
meson_tests() {
  local name=$1 dir=$2 options=()
  shift 2
  while [ "$1" != -- ]; do
    options+=("$1")
    shift
  done
  shift
  echo "== $name: in $dir, $((SECONDS - began)) s after the start"
  if [ ! -e "$dir/build.ninja" ]; then
    rm -rf "$dir"
    quietly meson setup "$dir" "${options[@]}" || { count "$name: configure" 0 1 0 && return; }
  fi
  rm -f "$dir"/meson-logs/testlog*.json
  meson test -C "$dir" --num-processes "$jobs" "$@" >"$results/log" 2>&1
  local status=$?
  if ! compgen -G "$dir/meson-logs/testlog*.json" >/dev/null; then
    grep -E -A 20 'FAILED|ERROR' "$results/log" || tail -n 60 "$results/log"
    count "$name: build" 0 1 0
    return
  fi
  grep -E '^ *[0-9]+/[0-9]+ railyard:' "$results/log"
  tests/tally.py --name "$name" --status $status "$dir"/meson-logs/testlog*.json \
    >>"$results/counts"
}

quietly packaging/build-deps.sh || { echo "0 passed, 1 failed" && exit 1; }

if [ $plain = yes ]; then
  meson_tests plain "$build_dir" -- --no-suite rdma
  quietly ninja -C "$build_dir" || count "plain: what no test needs" 0 1 0
fi
# Where the system places libraries at random, some now and then lie in the thread sanitizer's way
# and it gives up ("failed to allocate").
fixed_places=()
setarch -R true 2>/dev/null && fixed_places=(--wrapper "setarch -R")
for sanitizer in $sanitizers; do
  case $sanitizer in
    address) dir=$build_dir-asan options=("-Db_sanitize=address,undefined") ;;
    thread) dir=$build_dir-tsan options=(-Db_sanitize=thread) ;;
  esac
  meson_tests "$sanitizer sanitizer" "$dir" "${options[@]}" -Db_lundef=false -Doptimization=1 -- \
    --suite unit --suite property "${fixed_places[@]}"
done

# part NAME SWITCH COMMAND…: a part with a script of its own; SWITCH is yes, no or leave.
part() {
  local name=$1 switch=$2
  shift 2
  case $switch in
    leave) ;;
    no)
      echo "== $name: skipped, as asked"
      count "$name" 0 0 1
      ;;
    yes)
      echo "== $name ($((SECONDS - began)) s after the start)"
      "$@" 2>&1 | tee "$results/part"
      tests/tally.py --name "$name" --status "${PIPESTATUS[0]}" --lines "$results/part" \
        >>"$results/counts"
      ;;
  esac
}

full=()
[ $tier = full ] && full=(--full)
part packages $packages tests/packages/run.sh
part "soft-RoCE machine" $rdma tests/rdma/run.sh "${full[@]}"

echo "== results after $((SECONDS - began)) s"
tests/tally.py --sum "$results/counts"
