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

contract=$build/tests/rdma/verbs_contract_test
traffic=(--gtest_filter='*RandomTrafficAmongThreads/plain:*BothBeginAtTheSameTime/plain')

suite refusals timeout 120 "$build/tests/rdma/verbs_refusal_test"
suite transport timeout 300 "$build/tests/rdma/verbs_transport_test"
suite contract timeout 600 "$contract"
suite loss with_netem "loss 1%" timeout 300 "$contract" "${traffic[@]}"
suite delay with_netem "delay 2ms 1ms" timeout 300 "$contract" "${traffic[@]}"
suite duplicate with_netem "duplicate 5%" timeout 300 "$contract" "${traffic[@]}"
suite reorder with_netem "delay 1ms reorder 98% 25%" timeout 300 "$contract" "${traffic[@]}"
# Suites of whole programs over verbs, each a script that prints our summary line.
for program in "$here"/programs/*; do
  [ -x "$program" ] && suite "$(basename "$program")" "$program"
done

if [ $skipped = 0 ]; then
  echo "$passed passed, $failed failed"
else
  echo "$passed passed, $failed failed, $skipped skipped"
fi
[ $failed = 0 ]
