#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Fills folder $1 with links to the emulated libraries, which are built beside it.
mkdir -p "$1" && cd "$1" || exit 1
ln -sf ../cuda/libcuda.so.1 libcuda.so.1
ln -sf ../cuda/runtime/v12/libcudart.so.12 libcudart.so.12
ln -sf ../cuda/runtime/v13/libcudart.so.13 libcudart.so.13
ln -sf ../nccl/libnccl.so.2 libnccl.so.2
