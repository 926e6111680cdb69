// SPDX-License-Identifier: Apache-2.0
//
// Exported functions: stream memory operations. Whoever writes the word a stream waits for may be
// any thread of any process, so nobody can wake the stream: it looks, at growing intervals.
#include <atomic>
#include <chrono>
#include <thread>

#include "capture.h"
#include "context.h"
#include "exports.h"
#include "memory.h"
#include "process.h"

using namespace railyard::emulator;  // NOLINT: a file of exports only

namespace {

template <typename T>
bool reached(T value, T wanted, unsigned condition) {
  switch (condition) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return static_cast<std::make_signed_t<T>>(value - wanted) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return value == wanted;
    case CU_STREAM_WAIT_VALUE_AND:
      return (value & wanted) != 0;
    default:
      return static_cast<T>(~(value | wanted)) != 0;
  }
}

template <typename T>
T* word_at(CUdeviceptr address) {
  if (address % sizeof(T) != 0 || !memory().covers(address, sizeof(T))) return nullptr;
  return reinterpret_cast<T*>(address);  // NOLINT: emulated address
}

template <typename T>
CUresult wait_value(CUstream handle, CUdeviceptr address, T wanted, unsigned flags) {
  return with_stream(handle, [&](StreamObject& stream) -> CUresult {
    unsigned condition = flags & ~unsigned{CU_STREAM_WAIT_VALUE_FLUSH};
    T* word = word_at<T>(address);
    if (word == nullptr || condition > CU_STREAM_WAIT_VALUE_NOR) return CUDA_ERROR_INVALID_VALUE;
    return add_work(stream, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, [word, wanted, condition] {
      constexpr std::chrono::microseconds kLongest{500};
      std::chrono::microseconds pause{20};
      std::atomic_ref<T> value(*word);
      while (!reached<T>(value.load(), wanted, condition) && !exiting()) {
        std::this_thread::sleep_for(pause);
        pause = std::min(2 * pause, kLongest);
      }
    });
  });
}

template <typename T>
CUresult write_value(CUstream handle, CUdeviceptr address, T value, unsigned flags) {
  return with_stream(handle, [&](StreamObject& stream) -> CUresult {
    T* word = word_at<T>(address);
    if (word == nullptr || flags > CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    return add_work(stream, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
                    [word, value] { std::atomic_ref<T>(*word).store(value); });
  });
}

}  // namespace

extern "C" {

CUresult cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                             unsigned flags) {
  return wait_value<uint32_t>(stream, address, value, flags);
}

CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                             unsigned flags) {
  return wait_value<uint64_t>(stream, address, value, flags);
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                              unsigned flags) {
  return write_value<uint32_t>(stream, address, value, flags);
}

CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                              unsigned flags) {
  return write_value<uint64_t>(stream, address, value, flags);
}

CUresult cuStreamBatchMemOp(CUstream stream, unsigned count, CUstreamBatchMemOpParams* operations,
                            unsigned flags) {
  if (flags != 0 || (count > 0 && operations == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  for (unsigned i = 0; i < count && result == CUDA_SUCCESS; ++i) {
    const CUstreamBatchMemOpParams& op = operations[i];
    switch (static_cast<int>(op.operation)) {
      case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        result = cuStreamWaitValue32(stream, op.waitValue.address, op.waitValue.value,
                                     op.waitValue.flags);
        break;
      case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        result = cuStreamWaitValue64(stream, op.waitValue.address, op.waitValue.value64,
                                     op.waitValue.flags);
        break;
      case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        result = cuStreamWriteValue32(stream, op.writeValue.address, op.writeValue.value,
                                      op.writeValue.flags);
        break;
      case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        result = cuStreamWriteValue64(stream, op.writeValue.address, op.writeValue.value64,
                                      op.writeValue.flags);
        break;
      case CU_STREAM_MEM_OP_BARRIER:
        break;
      default:
        result = CUDA_ERROR_NOT_SUPPORTED;
    }
  }
  return result;
}

}  // extern "C"
