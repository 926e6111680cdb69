#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# embed-kernel.sh NVCC SOURCE INCLUDE FATBIN DEPFILE CC
# Compiles the kernel for GPUs and writes the C++ file that embeds it. Newer GPUs than those named
# run the PTX; those this nvcc does not know are left out.
set -eu
nvcc=$1 source=$2 include=$3 fatbin=$4 depfile=$5 cc=$6

set -- -gencode arch=compute_80,code=compute_80
known=$("$nvcc" --list-gpu-code)
for gpu in 80 90 100; do
  case "$known" in
    *"sm_$gpu"*) set -- "$@" -gencode "arch=compute_$gpu,code=sm_$gpu" ;;
    *) echo "railyard: this nvcc does not know sm_$gpu, which will run PTX" >&2 ;;
  esac
done
"$nvcc" -fatbin -O3 -std=c++17 "$@" -I "$include" -MD -MF "$depfile" -o "$fatbin" "$source"

path=$(readlink -f "$fatbin")
cat >"$cc" <<EOF
// Embeds the kernel image with checksum $(cksum <"$fatbin").
#include "device/kernel_image.h"
asm(R"(
  .pushsection .rodata
  .balign 16
  .local railyard_kernel_image
  .local railyard_kernel_image_end
railyard_kernel_image:
  .incbin "$path"
railyard_kernel_image_end:
  .byte 0
  .popsection
)");
extern "C" const std::byte railyard_kernel_image[], railyard_kernel_image_end[];
namespace railyard::device {
std::span<const std::byte> kernel_image() {
  return {railyard_kernel_image, railyard_kernel_image_end};
}
}  // namespace railyard::device
EOF
