#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs inside the soft-RoCE machine: the suites below, or those named. Ends with "N passed, N failed
# [, N skipped]".
set -uo pipefail
build=${BUILD_DIR:-build}
here=$(dirname "$0")
passed=0 failed=0 skipped=0
chosen=" $* "
log=$(mktemp)

# suite NAME COMMAND...: one suite, counted as its tests if it prints gtest's or our own summary,
# else as one test. Exit status 77 of the command is a skip.
suite() {
  local name=$1 status good=0 bad=0 left=0
  shift
  case $chosen in "  " | *" $name "*) ;; *) return ;; esac
  echo "== $name ($SECONDS s)"
  "$@" 2>&1 | tee "$log"
  status=${PIPESTATUS[0]}
  if grep -q '^\[==========\]' "$log"; then
    good=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$log" | tail -n 1)
    bad=$(sed -n 's/^\[  FAILED  \] \([0-9]*\) test.*/\1/p' "$log" | tail -n 1)
    left=$(sed -n 's/^\[  SKIPPED \] \([0-9]*\) test.*/\1/p' "$log" | tail -n 1)
  elif tail -n 1 "$log" | grep -qE '^[0-9]+ passed, [0-9]+ failed'; then
    read -r good _ bad _ left _ <<<"$(tail -n 1 "$log")"
  elif [ "$status" = 77 ]; then
    left=1
  elif [ "$status" = 0 ]; then
    good=1
  fi
  passed=$((passed + ${good:-0})) failed=$((failed + ${bad:-0})) skipped=$((skipped + ${left:-0}))
  # Whatever was counted, a bad exit status is a failure.
  if [ "$status" != 0 ] && [ "$status" != 77 ] && [ "${bad:-0}" = 0 ]; then
    echo "$name: exit status $status"
    failed=$((failed + 1))
  fi
}

# with_netem DISTURBANCE COMMAND...: all soft-RoCE links disturbed meanwhile.
with_netem() {
  local disturbance=$1 device status
  shift
  for device in $RXE_DEVICES; do
    # shellcheck disable=SC2086
    tc qdisc replace dev "v${device#rxe}" root netem $disturbance || return 1
  done
  "$@"
  status=$?
  for device in $RXE_DEVICES; do
    tc -s qdisc show dev "v${device#rxe}" root | tr -s ' \n' ' ' && echo # what it did
    tc qdisc del dev "v${device#rxe}" root
  done
  return $status
}

# The programs go to memory: without debugging information, and not read through the host each time
# that a rank starts. The launcher looks for the emulated libraries beside its own folder.
stage_programs() {
  export PROGRAMS=/run/programs
  mkdir -p $PROGRAMS/launch $PROGRAMS/lib
  local file
  for file in tests/emulator/launch/emulate tests/property/exchange_fuzz examples/moe/moe_train \
    tests/integration/interception plugin/librailyard.so; do
    strip --strip-unneeded -o "$PROGRAMS/launch/${file##*/}" "$build/$file" || return 1
  done
  for file in "$build"/tests/emulator/lib/*; do
    strip --strip-unneeded -o "$PROGRAMS/lib/${file##*/}" "$file" || return 1
  done
}

# exchanges QUICK FULL LARGEST: that many random exchanges over verbs, messages of at most LARGEST
# bytes, devices shared out among the nodes
exchanges() {
  "$here/../property/run_exchanges.py" --program "$PROGRAMS/launch/exchange_fuzz" \
    --launcher "$PROGRAMS/launch/emulate" --libraries "$PROGRAMS/lib" \
    --preload "$PROGRAMS/launch/librailyard.so" --transport verbs --nics "${RXE_DEVICES// /,}" \
    --quick "$1" --full "$2" --message-bytes "$3" --exchange-bytes $((4 * $3)) --max-ranks 6 \
    --timeout 600
}

contract=$build/tests/rdma/verbs_contract_test
traffic=(--gtest_filter='*RandomTrafficAmongThreads/plain:*BothBeginAtTheSameTime/plain')
disturbances=("loss 1%" "delay 2ms 1ms" "duplicate 5%" "reorder 98% 25% delay 1ms")

suite refusals timeout 120 "$build/tests/rdma/verbs_refusal_test"
suite transport timeout 300 "$build/tests/rdma/verbs_transport_test"
suite contract timeout 600 "$contract"
stage_programs || exit 1
suite exchanges exchanges 100 500 1048576
suite moe "$here/moe.sh" 2 2 3
suite queue_pairs "$here/jobs.py" queue_pairs
# Soft-RoCE sends all again from the packet that came out of order, and often only when its timer has
# run out, by default 4 s: hence small messages and less patience (67 ms).
disturbed_exchanges() { NCCL_IB_TIMEOUT=14 exchanges 20 50 100000; }
for disturbance in "${disturbances[@]}"; do
  suite "${disturbance%% *}" with_netem "$disturbance" timeout 300 "$contract" "${traffic[@]}"
  suite "exchanges_${disturbance%% *}" with_netem "$disturbance" disturbed_exchanges
done
suite outage "$here/jobs.py" outage
suite without_libibverbs "$here/jobs.py" without_libibverbs

if [ $skipped = 0 ]; then
  echo "$passed passed, $failed failed"
else
  echo "$passed passed, $failed failed, $skipped skipped"
fi
[ $failed = 0 ]
