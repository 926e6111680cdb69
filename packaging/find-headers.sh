#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Prints the folders that hold the CUDA and NCCL headers, one a line: those of the folder given as
# $1 if not empty, else of the first place that has them.
here=$(cd "$(dirname "$0")/.." && pwd)
nvcc=$(command -v nvcc) && toolkit=$(dirname "$(dirname "$(readlink -f "$nvcc")")")/include
has() { [ -n "$1" ] && [ -e "$1/cuda.h" ] && [ -e "$1/cuda_runtime_api.h" ]; }
for cuda in "$1" "$toolkit" /usr/local/cuda/include "$here/.deps/include"; do
  has "$cuda" || continue
  for nccl in "$cuda" "$here/.deps/include" /usr/include /usr/local/include; do
    [ -e "$nccl/nccl.h" ] || continue
    echo "$cuda"
    [ "$nccl" = "$cuda" ] || [ "$nccl" = /usr/include ] || echo "$nccl"
    exit 0
  done
done
echo "CUDA or NCCL headers not found: run packaging/build-deps.sh, or pass -Dheaders=DIR" >&2
exit 1
