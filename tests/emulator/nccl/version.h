// SPDX-License-Identifier: Apache-2.0
//
// The version of NCCL that this library stands for. One set of objects serves several libraries,
// which differ in this and in the names that they export.
#pragma once

namespace railyard::emulator {

/// As ncclGetVersion tells it: 22809 is 2.28.9.
int nccl_version();

}  // namespace railyard::emulator
