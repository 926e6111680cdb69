// SPDX-License-Identifier: Apache-2.0
#include "copy.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "capture.h"
#include "memory.h"
#include "process.h"

namespace railyard::emulator {
namespace {

enum class Place { kDevice, kPinned, kPageable };

/// Bytes from the first of the first row to the last of the last, 0 on overflow.
size_t extent(size_t width, size_t rows, size_t pitch) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(rows - 1, pitch, &bytes)) return 0;
  if (__builtin_add_overflow(bytes, width, &bytes)) return 0;
  return bytes;
}

/// Where [address, address + bytes) lies; false if it cannot be what the caller claims.
bool locate(const void* address, size_t bytes, Side side, Place* place) {
  if (address == nullptr || bytes == 0) return false;
  AllocationPtr range = memory().find(address_of(address));
  if (!range) {
    *place = Place::kPageable;
    return side != Side::kDevice;
  }
  *place = range->on_device() ? Place::kDevice : Place::kPinned;
  if (memory().covers(address_of(address), bytes)) return true;
  // Host memory may be registered in part only.
  *place = Place::kPageable;
  return !range->on_device() && side != Side::kDevice;
}

void move_rows(const CopyShape& shape) {
  for (size_t row = 0; row < shape.rows; ++row) {
    std::memmove(static_cast<char*>(shape.to) + row * shape.to_pitch,
                 static_cast<const char*>(shape.from) + row * shape.from_pitch, shape.width);
  }
}

/// Makes the rows of a copy independent of its source.
std::shared_ptr<std::vector<char>> snapshot(CopyShape* shape) {
  auto bytes = std::make_shared<std::vector<char>>(shape->width * shape->rows);
  CopyShape gather = *shape;
  gather.to = bytes->data();
  gather.to_pitch = shape->width;
  move_rows(gather);
  shape->from = bytes->data();
  shape->from_pitch = shape->width;
  return bytes;
}

template <typename T>
void fill_rows(const FillShape& shape) {
  for (size_t row = 0; row < shape.rows; ++row) {
    auto* to = reinterpret_cast<T*>(shape.to + row * shape.pitch);  // NOLINT: emulated address
    std::fill_n(to, shape.count, static_cast<T>(shape.value));
  }
}

}  // namespace

CUresult copy(StreamObject& stream, const CopyShape& shape, Side to, Side from, Mode mode) {
  if (shape.width == 0 || shape.rows == 0) return CUDA_SUCCESS;
  if (shape.rows > 1 && (shape.to_pitch < shape.width || shape.from_pitch < shape.width)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Place target;
  Place source;
  if (!locate(shape.to, extent(shape.width, shape.rows, shape.to_pitch), to, &target) ||
      !locate(shape.from, extent(shape.width, shape.rows, shape.from_pitch), from, &source)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  bool device_only = target == Place::kDevice && source == Place::kDevice;
  bool wait = target == Place::kPageable || (mode == Mode::kSynchronous && !device_only);
  // A graph would read or write pageable memory at times of its own.
  if (wait || source == Place::kPageable) {
    if (CUresult result = refuse_capture(stream); result != CUDA_SUCCESS) return result;
  }
  if (mode == Mode::kSynchronous) {
    if (CUresult result = refuse_unsafe(); result != CUDA_SUCCESS) return result;
  }
  CopyShape work = shape;
  std::shared_ptr<std::vector<char>> kept;
  if (source == Place::kPageable && !wait) kept = snapshot(&work);
  const auto move = [work, kept] { unless_exiting([&] { move_rows(work); }); };
  if (!wait) return add_work(stream, CU_GRAPH_NODE_TYPE_MEMCPY, move);
  stream.submit(move).wait();
  return CUDA_SUCCESS;
}

CUresult fill(StreamObject& stream, const FillShape& shape) {
  if (shape.count == 0 || shape.rows == 0) return CUDA_SUCCESS;
  size_t width = 0;
  if (__builtin_mul_overflow(shape.count, shape.size, &width) || shape.to % shape.size != 0 ||
      (shape.rows > 1 && (shape.pitch < width || shape.pitch % shape.size != 0))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  size_t bytes = extent(width, shape.rows, shape.pitch);
  if (bytes == 0 || !memory().covers(shape.to, bytes)) return CUDA_ERROR_INVALID_VALUE;
  return add_work(stream, CU_GRAPH_NODE_TYPE_MEMSET, [shape] {
    unless_exiting([&] {
      if (shape.size == 1) fill_rows<uint8_t>(shape);
      if (shape.size == 2) fill_rows<uint16_t>(shape);
      if (shape.size == 4) fill_rows<uint32_t>(shape);
    });
  });
}

}  // namespace railyard::emulator
