#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Fills folder $1 with links to the emulated libraries, which are built beside it, and folders
# nccl-VERSION next to it with other versions of NCCL.
mkdir -p "$1" && cd "$1" || exit 1
ln -sf ../cuda/libcuda.so.1 libcuda.so.1
ln -sf ../cuda/runtime/v12/libcudart.so.12 libcudart.so.12
ln -sf ../cuda/runtime/v13/libcudart.so.13 libcudart.so.13
ln -sf ../nccl/libnccl-2.28.so libnccl.so.2
for version in 2.12 2.14 2.18 2.20 2.22 2.27 2.29 2.30; do
  mkdir -p "../nccl-$version"
  ln -sf "../nccl/libnccl-$version.so" "../nccl-$version/libnccl.so.2"
done
