#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The verbs transport against perftest, in one boot of the soft-RoCE machine: bandwidth for messages
# of 1 MiB over ib_write_bw's, latency of 8 bytes over ib_write_lat's. Medians of ROUNDS (3) runs
# in turn. Of interest is the ratio; the figures themselves are those of an emulated machine.
#
# usage: perf/verbs_perf.sh          BUILD_DIR (default: build) holds the build; RXE_SERIES (6.1)
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
build=${BUILD_DIR:-build}
program=$build/perf/verbs_perf

if [ "${1-}" != inside ]; then
  ninja -C "$build" perf/verbs_perf >/dev/null
  exec tests/rdma/rxe-vm -n 2 -k "${RXE_SERIES:-6.1}" -t 600 -e "BUILD_DIR=$build" \
    -e "ROUNDS=${ROUNDS:-3}" -- perf/verbs_perf.sh inside
fi

# The figure of a perftest program: perftest COLUMN PROGRAM OPTIONS...
perftest() {
  local column=$1
  shift
  "$@" -d rxe1 -x 1 -F >/dev/null 2>&1 &
  local server=$! line=
  for _ in {1..50}; do # until the server listens
    line=$("$@" -d rxe2 -x 1 -F 127.0.0.1 2>/dev/null | awk '/^ *[0-9]+ +[0-9]+ / { print }') && break
    sleep 0.1
  done
  wait $server || true
  [ -n "$line" ] || { echo "verbs_perf: $1 gave no figure" >&2 && exit 1; }
  awk -v column="$column" '{ print $column }' <<<"$line"
}
median() { sort -g | awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }'; }

figures=$(mktemp -d)
for ((round = 0; round < ROUNDS; ++round)); do
  perftest 4 ib_write_bw -s 1048576 -n 200 >>"$figures/their-bandwidth"
  perftest 5 ib_write_lat -s 8 -n 5000 >>"$figures/their-latency"
  "$program" rxe1 rxe2 >"$figures/ours"
  awk '$1 == "bandwidth_mib_s" { print $2 }' "$figures/ours" >>"$figures/our-bandwidth"
  awk '$1 == "latency_us" { print $2 }' "$figures/ours" >>"$figures/our-latency"
done
report() { # NAME UNIT OURS THEIRS COMPARISON GOAL
  local ours theirs
  ours=$(median <"$figures/$3")
  theirs=$(median <"$figures/$4")
  awk -v name="$1" -v unit="$2" -v ours="$ours" -v theirs="$theirs" -v goal="$5 $6" 'BEGIN {
    printf "%s: railyard %.2f %s, perftest %.2f %s, ratio %.2f (wanted: %s)\n",
      name, ours, unit, theirs, unit, ours / theirs, goal }'
}
report "bandwidth, 1 MiB messages" MiB/s our-bandwidth their-bandwidth "at least" 0.85
report "latency, 8 bytes" us our-latency their-latency "at most" 2.5
