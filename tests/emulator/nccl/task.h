// SPDX-License-Identifier: Apache-2.0
//
// One operation on a communicator, as its caller asked for it.
#pragma once

#include <array>
#include <cstdint>

#include <nccl.h>

namespace railyard::emulator {

/// A reduction that ncclRedOp_t names.
struct Operation {
  ncclRedOp_t base = ncclSum;
  bool scaled = false;           ///< every rank multiplies its own input first
  const void* scalar = nullptr;  ///< in device memory, read when the operation runs; null: `value`
  std::array<char, 8> value = {};
};

struct Task {
  enum class Kind { kSend, kReceive, kBroadcast, kReduce, kAllGather, kReduceScatter, kAllReduce };

  Kind kind;
  const void* send = nullptr;
  void* receive = nullptr;
  uint64_t count = 0;  ///< elements, of one block where there are several
  ncclDataType_t type = ncclInt8;
  int peer = 0;  ///< or root
  Operation op = {};
};

}  // namespace railyard::emulator
