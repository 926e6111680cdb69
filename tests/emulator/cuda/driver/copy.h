// SPDX-License-Identifier: Apache-2.0
//
// Copies and fills in stream order, with CUDA's rules about the host's side of them:
//   - from pageable host memory: the source has been read when the call returns;
//   - to pageable host memory: the copy is done when the call returns;
//   - a synchronous call between device memories, or a fill, does not wait.
#pragma once

#include <cstddef>

#include <cuda.h>

#include "context.h"

namespace railyard::emulator {

/// `rows` rows of `width` bytes.
struct CopyShape {
  void* to;
  const void* from;
  size_t width;
  size_t rows = 1;
  size_t to_pitch = 0;  ///< distance of two rows; unused for one row
  size_t from_pitch = 0;
};

/// What the caller claims to pass. kAny: found out from the address.
enum class Side { kDevice, kHost, kAny };

enum class Mode { kSynchronous, kAsynchronous };

CUresult copy(StreamObject& stream, const CopyShape& shape, Side to, Side from, Mode mode);

/// `rows` rows of `count` elements of `size` (1, 2 or 4) bytes.
struct FillShape {
  CUdeviceptr to;
  unsigned value;
  size_t size;
  size_t count;
  size_t rows = 1;
  size_t pitch = 0;
};

CUresult fill(StreamObject& stream, const FillShape& shape);

}  // namespace railyard::emulator
