// SPDX-License-Identifier: Apache-2.0
//
// Events: a point of a stream that can be recorded anew, and when it was reached. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>

#include <cuda.h>

#include "context.h"

namespace railyard::emulator {

CUresult create_event(const Context& context, unsigned flags, CUevent* event);
CUresult destroy_event(CUevent event);
CUresult record_event(CUevent event, StreamObject& stream);
/// Work that comes later in `stream` waits for what was last recorded; for nothing if never.
CUresult wait_event(CUevent event, StreamObject& stream);
/// CUDA_SUCCESS or CUDA_ERROR_NOT_READY.
CUresult query_event(CUevent event);
CUresult synchronize_event(CUevent event);
CUresult elapsed_time(CUevent start, CUevent end, float* milliseconds);

}  // namespace railyard::emulator
