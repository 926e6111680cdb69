// SPDX-License-Identifier: Apache-2.0
//
// One rank's run of one case. Everything a program can see of NCCL goes into its log: what every
// call returned and which asynchronous errors stood after it, what streams said, and what arrived.
// The log of a run with a preloaded library must be that of a run without, line by line.
//
// What cannot be alike by nature stays out of the log, here and nowhere else:
//  - the text of ncclGetLastError (whether there is one is logged), addresses, and times;
//  - the last 64 bytes of unique ids;
//  - whether a call on a non-blocking communicator has already done its work when it returns, and
//    how often one must ask before it has: accept() logs ncclSuccess and ncclInProgress alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "newer_nccl.h"
#include "world.h"

namespace conformance {

class Trial {
 public:
  Trial(World& world, std::FILE* log);
  /// Ends what the case has left: communicators, then streams.
  ~Trial();
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  World& world;
  const int rank, ranks, device;

  [[gnu::format(printf, 2, 3)]] void note(const char* format, ...);
  /// Logs the call with its result and the asynchronous errors of watched communicators.
  ncclResult_t nccl(const char* call, ncclResult_t result);
  cudaError_t cuda(const char* call, cudaError_t result);
  /// Logs a fact that must hold. The case fails if it does not, even where both runs agree.
  void check(bool holds, const char* what);
  /// For a call on a non-blocking communicator, which may or may not be done when it returns.
  ncclResult_t accept(const char* call, ncclResult_t result);
  /// Asks the communicator until it is not in progress; logs how it ended.
  ncclResult_t settle(ncclComm_t comm);
  /// Asks until the communicator reports an error; logs which.
  ncclResult_t await_error(ncclComm_t comm);

  /// Whether the loaded NCCL lacks a function; says so in the log.
  bool lacks(const void* function, const char* name);

  /// Communicators whose asynchronous errors are logged after each call, and which are destroyed at
  /// the end. In their order of creation.
  void watch(ncclComm_t comm);
  void forget(ncclComm_t comm);

  /// A new communicator of all ranks.
  ncclComm_t comm();
  ncclComm_t split(ncclComm_t parent, int color, int key, ncclConfig_t* config = nullptr);
  /// Ends a communicator at once and no longer watches it.
  ncclResult_t destroy(ncclComm_t comm);
  ncclResult_t abort(ncclComm_t comm);

  /// A new stream that does not wait for the default stream.
  cudaStream_t stream();
  /// Synchronises and logs the result.
  void sync(cudaStream_t stream);

  int next(int steps = 1) const { return (rank + steps) % ranks; }
  int previous(int steps = 1) const { return (rank + ranks - steps % ranks) % ranks; }

 private:
  std::FILE* const log_;
  std::vector<ncclComm_t> comms_;
  std::vector<cudaStream_t> streams_;
};

#define NCCL(...) t.nccl(#__VA_ARGS__, (__VA_ARGS__))
#define CUDA(...) t.cuda(#__VA_ARGS__, (__VA_ARGS__))
#define ACCEPT(...) t.accept(#__VA_ARGS__, (__VA_ARGS__))
#define CHECK(...) t.check((__VA_ARGS__), #__VA_ARGS__)
#define LACKS(function) t.lacks(reinterpret_cast<const void*>(&function), #function)

/// Names the contents of a block: who sends it to whom, and which of several it is.
struct Content {
  int src = 0, dst = 0, number = 0;
};

/// Device memory of equal blocks with guard bytes at both ends; at first all of it is guard bytes.
class Buffer {
 public:
  Buffer(Trial& trial, size_t blocks, size_t block_bytes);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* at(size_t block) const;
  std::byte* at(int block) const { return at(static_cast<size_t>(block)); }
  void fill(size_t block, Content content) const;
  /// Blocks peer by peer: what this rank sends to each.
  void fill_for_all(int number) const;
  /// Blocks peer by peer: what each has sent to this rank.
  void expect_from_all(int number) const;
  /// The block holds this; logged, and the case fails if it does not.
  void expect(size_t block, Content content) const;
  void expect_untouched(size_t block) const;
  /// Logs a hash of everything, guards too.
  void show(const char* name) const;

 private:
  std::vector<std::byte> copy(const std::byte* from, size_t bytes) const;

  Trial& trial_;
  const size_t blocks_, block_bytes_;
  std::byte* memory_ = nullptr;
};

/// Everybody sends a block to everybody, in one group of sends and receives, and checks it.
void exchange_all(Trial& t, ncclComm_t comm, cudaStream_t stream, size_t bytes, int number);
/// Everybody sends a block to its neighbour.
void exchange_ring(Trial& t, ncclComm_t comm, cudaStream_t stream, size_t bytes, int number);

/// Holds up a stream until it is opened.
class Gate {
 public:
  Gate(Trial& t, cudaStream_t stream);
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void open();

 private:
  struct State;
  State* state_;
};

}  // namespace conformance
