#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs a program of MPI over a network of the launcher, which starts this once:
#
#   emulate --nodes N --gpus G --fabric F --once -- mpi.sh openmpi|mpich G PROGRAM ARGUMENTS…
#
# Between nodes only TCP over the rails is allowed, since all nodes are one machine. Open MPI spreads each
# message over all NICs of a node, as is its default; a rank of MPICH gets the NIC of its GPU.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
kind=$1 gpus=$2
shift 2
if [ "${ON_NODE-}" = "" ]; then
  ON_NODE=yes exec "$here/on-node.sh" "${EMULATOR_NODES%%,*}" "$0" "$kind" "$gpus" "$@"
fi
hosts=${EMULATOR_NODES//,/:$gpus,}:$gpus
ranks=$(($(tr -cd , <<<"$EMULATOR_NODES" | wc -c) * gpus + gpus))
case $kind in
openmpi)
  rails=$(seq -s , -f 'rail%g' 0 $((gpus - 1)))
  exec mpirun.openmpi --allow-run-as-root --host "$hosts" -np $ranks --bind-to none \
    --mca plm_rsh_agent "$here/on-node.sh" --mca oob_tcp_if_include mgmt \
    --mca btl tcp,self,vader --mca btl_tcp_if_include "$rails" \
    --mca mpi_yield_when_idle 1 "$@"
  ;;
mpich)
  # shellcheck disable=SC2016  # each rank's own shell is to see the variable
  exec mpiexec.hydra -launcher ssh -launcher-exec "$here/on-node.sh" -hosts "$hosts" -n $ranks \
    -iface mgmt -bind-to none -genv UCX_TLS tcp,self \
    sh -c 'UCX_NET_DEVICES=rail$MPI_LOCALRANKID exec "$@"' sh "$@"
  ;;
*)
  echo "mpi.sh: openmpi or mpich, not $kind" >&2
  exit 2
  ;;
esac
