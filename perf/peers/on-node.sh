#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# What ssh is to mpirun on a real cluster: runs a command on a node of the launcher's network.
#
#   on-node.sh [OPTIONS OF SSH…] ADDRESS COMMAND…
set -euo pipefail
while [[ ${1-} == -* ]]; do
  case $1 in -l | -p | -o | -i) shift ;; esac
  shift
done
address=$1
shift
IFS=, read -ra addresses <<<"$EMULATOR_NODES"
IFS=, read -ra spaces <<<"$EMULATOR_NAMESPACES"
node=0
until [ "${addresses[$node]-}" = "$address" ]; do
  if [ $((++node)) -ge ${#addresses[@]} ]; then
    echo "on-node.sh: no node has the address $address" >&2
    exit 1
  fi
done
export TMPDIR=${TMPDIR:-/tmp}/node$node
mkdir -p "$TMPDIR"
# A name of its own, so that ranks of other nodes are not taken for neighbours, and a /sys that shows the
# node's interfaces.
exec nsenter --net="${spaces[$node]}" unshare --uts --mount \
  bash -c "hostname node$node; mount -t sysfs sysfs /sys; $*"
