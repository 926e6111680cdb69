#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The suites that need RDMA verbs, in the soft-RoCE machine (rxe-vm): see suites.sh for the list.
# Ends with "N passed, N failed[, N skipped]"; the exit status is 0 only if nothing failed.
#
# usage: tests/rdma/run.sh [--full] [SUITE...]     BUILD_DIR (default: build) holds the build
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root" || exit 1

tier=quick suites=()
for argument; do
  case $argument in
    --full) tier=full ;;
    --help) sed -n '4,7s/^# \{0,1\}//p' "$0" && exit 0 ;;
    -*) echo "tests/rdma/run.sh: unknown option $argument" >&2 && exit 2 ;;
    *) suites+=("$argument") ;;
  esac
done
build=${BUILD_DIR:-build}
limit=1200
[ $tier = quick ] || limit=7200

fail() {
  echo "tests/rdma/run.sh: $*" >&2
  echo "0 passed, 1 failed"
  exit 1
}

[ -e "$build/build.ninja" ] || meson setup "$build" >/dev/null || fail "meson setup failed"
ninja -C "$build" >/dev/null || fail "the build failed"

results=$(mktemp)
trap 'rm -f "$results"' EXIT
tests/rdma/rxe-vm -n 8 -m 3072 -t "$limit" -e "BUILD_DIR=$build" -e "TESTS_TIER=$tier" -- \
  tests/rdma/suites.sh "${suites[@]}" 2>&1 | tee "$results"
status=${PIPESTATUS[0]}
# The suites' own last line is the result, unless the machine ended before it.
tail -n 1 "$results" | grep -qE '^[0-9]+ passed, [0-9]+ failed' || fail "no result (exit $status)"
exit "$status"
