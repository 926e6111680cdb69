// SPDX-License-Identifier: Apache-2.0
//
// What differs between a kernel on a GPU and the same kernel on a CPU: who am I, the barrier of a
// block, memory shared by a block, loads and stores with a scope, waiting, waking, copying.
//
// "System" scope means: seen by other GPUs, NICs and CPUs. Payload is read with plain loads after
// an acquire; it never goes through the non-coherent cache.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/layout.h"

#if defined(__CUDACC__)
#define RY_DEVICE __device__ __forceinline__
#else
#include <atomic>
#include <barrier>
#include <cstring>

#include "kernels/doorbell.h"
#define RY_DEVICE inline
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif
#endif

namespace railyard::port {

#if defined(__CUDACC__)

RY_DEVICE uint32_t block() { return blockIdx.x; }
RY_DEVICE uint32_t blocks() { return gridDim.x; }
RY_DEVICE uint32_t thread() { return threadIdx.x; }
RY_DEVICE uint32_t threads() { return blockDim.x; }
RY_DEVICE void barrier() { __syncthreads(); }

/// One T per block, uninitialised.
template <typename T>
RY_DEVICE T& block_storage() {
  __shared__ T storage;
  return storage;
}

RY_DEVICE uint64_t load_acquire(const uint64_t* word) {
  uint64_t value;
  asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}
RY_DEVICE uint32_t load_acquire(const uint32_t* word) {
  uint32_t value;
  asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}
RY_DEVICE void store_release(uint64_t* word, uint64_t value) {
  asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
RY_DEVICE void store_release(uint32_t* word, uint32_t value) {
  asm volatile("st.release.sys.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

/// Counters shared by the blocks of one GPU; ordered like an acquire and a release.
RY_DEVICE uint64_t fetch_add(uint64_t* counter, uint64_t amount) {
  __threadfence();
  const auto before = atomicAdd(reinterpret_cast<unsigned long long*>(counter),
                                static_cast<unsigned long long>(amount));
  __threadfence();
  return before;
}
RY_DEVICE uint32_t fetch_add(uint32_t* counter, uint32_t amount) {
  __threadfence();
  const uint32_t before = atomicAdd(counter, amount);
  __threadfence();
  return before;
}
RY_DEVICE uint32_t exchange(uint32_t* word, uint32_t value) { return atomicExch(word, value); }

/// Counters in block_storage().
RY_DEVICE uint32_t fetch_add_in_block(uint32_t* counter, uint32_t amount) {
  return atomicAdd(counter, amount);
}

RY_DEVICE uint32_t publications(kernels::Doorbell*) { return 0; }
RY_DEVICE void wait(kernels::Doorbell*, uint32_t) { __nanosleep(100); }
RY_DEVICE void notify(kernels::Doorbell*) {}
RY_DEVICE void ring(const kernels::Bell&) {}
RY_DEVICE void hand_over(const uint64_t*) {}
RY_DEVICE void take_back(const uint64_t*) {}

/// By all threads of a block together; the ranges do not overlap.
template <typename Word>
RY_DEVICE uint64_t copy_words(std::byte* to, const std::byte* from, uint64_t bytes) {
  const uint64_t words = bytes / sizeof(Word);
  auto* target = reinterpret_cast<Word*>(to);
  const auto* source = reinterpret_cast<const Word*>(from);
#pragma unroll 4
  for (uint64_t i = thread(); i < words; i += threads()) target[i] = source[i];
  return words * sizeof(Word);
}
RY_DEVICE void copy(std::byte* to, const std::byte* from, uint64_t bytes) {
  const uint64_t misaligned = reinterpret_cast<uint64_t>(to) | reinterpret_cast<uint64_t>(from);
  uint64_t done = 0;
  if ((misaligned & 15) == 0) {
    done = copy_words<uint4>(to, from, bytes);
  } else if ((misaligned & 3) == 0) {
    done = copy_words<uint32_t>(to, from, bytes);
  }
  copy_words<unsigned char>(to + done, from + done, bytes - done);
}

#else

/// Set by run_on_host() for every thread of a grid.
struct BlockContext {
  explicit BlockContext(uint32_t threads) : barrier(threads) {}
  std::barrier<> barrier;
  alignas(64) std::byte storage[4096];
};
struct ThreadContext {
  uint32_t block = 0, blocks = 1, thread = 0, threads = 1;
  BlockContext* shared = nullptr;
};
inline thread_local ThreadContext context;

inline uint32_t block() { return context.block; }
inline uint32_t blocks() { return context.blocks; }
inline uint32_t thread() { return context.thread; }
inline uint32_t threads() { return context.threads; }
inline void barrier() {
  if (context.threads > 1) context.shared->barrier.arrive_and_wait();
}

template <typename T>
T& block_storage() {
  static_assert(sizeof(T) <= sizeof(BlockContext::storage));
  return *reinterpret_cast<T*>(context.shared->storage);
}

template <typename Word>
Word load_acquire(const Word* word) {
  return std::atomic_ref(*const_cast<Word*>(word)).load(std::memory_order_acquire);
}
template <typename Word>
void store_release(Word* word, Word value) {
  std::atomic_ref(*word).store(value, std::memory_order_release);
}
template <typename Word>
Word fetch_add(Word* counter, Word amount) {
  return std::atomic_ref(*counter).fetch_add(amount, std::memory_order_acq_rel);
}
inline uint32_t exchange(uint32_t* word, uint32_t value) {
  return std::atomic_ref(*word).exchange(value, std::memory_order_acq_rel);
}
inline uint32_t fetch_add_in_block(uint32_t* counter, uint32_t amount) {
  return std::atomic_ref(*counter).fetch_add(amount, std::memory_order_relaxed);
}

inline uint32_t publications(kernels::Doorbell* doorbell) {
  return kernels::publications(doorbell);
}
inline void wait(kernels::Doorbell* doorbell, uint32_t seen) { kernels::sleep(doorbell, seen); }
inline void notify(kernels::Doorbell* doorbell) { kernels::notify(doorbell); }
inline void ring(const kernels::Bell& bell) { kernels::ring(bell); }

/// A slot that one block fills, a rank in another process empties and the next block fills again:
/// the thread sanitizer does not see the other process, so it is told of the round trip.
inline void hand_over([[maybe_unused]] const uint64_t* credit) {
#if defined(__SANITIZE_THREAD__)
  __tsan_release(const_cast<uint64_t*>(credit));
#endif
}
inline void take_back([[maybe_unused]] const uint64_t* credit) {
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(const_cast<uint64_t*>(credit));
#endif
}

inline void copy(std::byte* to, const std::byte* from, uint64_t bytes) {
  const uint64_t begin = bytes * thread() / threads();
  const uint64_t end = bytes * (thread() + 1) / threads();
  if (end > begin) std::memcpy(to + begin, from + begin, end - begin);
}

#endif

}  // namespace railyard::port
