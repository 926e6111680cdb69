// SPDX-License-Identifier: Apache-2.0
//
// Railyard's part of ncclCommFinalize and ncclCommDestroy: a rank takes its leave of the others on
// its node, which takes until they do the same. On a non-blocking communicator that happens in the
// background, since its callers must not wait; ncclCommGetAsyncError tells of it.
#pragma once

#include <memory>

#include <nccl.h>

#include "comm/manager.h"

namespace railyard::intercept {

struct Runtime;

struct Farewell {
  ncclComm_t handle = nullptr;
  std::shared_ptr<comm::Communicator> communicator;
  bool destroy = false;
};

/// Says it, and forgets the handle if that ends with it. Returns at once for non-blocking
/// communicators.
ncclResult_t say(Runtime& runtime, const Farewell& farewell);

}  // namespace railyard::intercept
