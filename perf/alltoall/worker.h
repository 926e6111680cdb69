// SPDX-License-Identifier: Apache-2.0
//
// The GPUs of one thread: their communicators, buffers and parts of the exchanges.
//
// Thread-bound: made and used by one thread, since NCCL's groups are. All functions are collective:
// every worker of the job calls them in the same order. Errors are moe::Error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "options.h"
#include "pattern.h"

namespace alltoall {

/// Which ranks a worker is: `count` from `first` on, on the devices from `device` on.
struct Share {
  int first, count, ranks, device;
};

class Worker {
 public:
  Worker(const Options& options, const Share& share, const ncclUniqueId& id);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// What every rank gives, by rank; all give equally many. `own` is by GPU.
  std::vector<std::vector<uint64_t>> gather(const std::vector<std::vector<uint64_t>>& own);

  /// Makes buffers for exchanges of these sizes.
  void prepare(const Matrix& bytes);
  /// One exchange, begun together with the others. Returns its nanoseconds here.
  uint64_t exchange();
  /// One more, with every byte compared. Returns wrong elements, and guard bytes, by GPU.
  std::vector<uint64_t> exchange_checked(uint64_t number);

  /// Ends the communicators; then statistics are complete.
  void close();

 private:
  struct Gpu {
    int device = 0, rank = 0;
    cudaStream_t stream = nullptr;
    ncclComm_t comm = nullptr;
    char* send = nullptr;
    char* receive = nullptr;
    char* control = nullptr;  ///< scratch of gather()
    size_t control_bytes = 0;
    std::vector<uint64_t> send_at, receive_at;  ///< offsets of the blocks by rank, and the end
  };

  void use(const Gpu& gpu) const;
  void post(const Gpu& gpu) const;
  void synchronize() const;
  void release(Gpu* gpu) const;
  void fill(const Gpu& gpu, uint64_t number) const;
  uint64_t count_wrong(const Gpu& gpu, uint64_t number) const;

  const Options& options_;
  const int ranks_;
  const bool one_call_;  ///< ncclAlltoAll instead of messages
  std::vector<Gpu> gpus_;
  Matrix bytes_;
};

}  // namespace alltoall
