// SPDX-License-Identifier: Apache-2.0
//
// What the driver keeps per thread. Freed when a thread ends, but not when the process exits: exit
// handlers of others may still call the driver then.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <cuda.h>

namespace railyard::emulator {

class Context;
struct StreamObject;

struct Thread {
  std::vector<std::shared_ptr<Context>> contexts;  ///< stack, the current one last
  std::vector<std::shared_ptr<StreamObject>> default_streams;
  CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

  Thread() = default;
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;
  ~Thread();
};

Thread& this_thread();

}  // namespace railyard::emulator
