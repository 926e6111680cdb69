// SPDX-License-Identifier: Apache-2.0
//
// Runs one rank's part of a program and checks every byte that it receives.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "graph.h"
#include "program.h"
#include "random.h"

namespace programs {

struct Place {
  int rank = 0, ranks = 0;
  std::vector<int> node_of;  ///< by world rank
};

class Interpreter {
 public:
  /// Writes a line into `report` for each thing received, and one on what was sent.
  Interpreter(uint64_t seed, Place place, std::FILE* report);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  const Program& program() const { return program_; }
  /// Ends the process, having said what and where, if anything is not as it should be. `spoil`
  /// changes a byte that was received, which must be found.
  void run(const std::vector<ncclUniqueId>& ids, bool spoil);

 private:
  /// An operation of this rank that may not be finished.
  struct Pending {
    Operation operation;
    void* send = nullptr;
    void* receive = nullptr;
    size_t receive_bytes = 0;
  };
  struct Member {
    ncclComm_t handle = nullptr;
    int rank = 0;
  };

  void make(const Step& step, const std::vector<ncclUniqueId>& ids);
  void split(const Step& step);
  void shrink(const Step& step);
  void end(const Step& step);
  void group(const Step& step);
  void born(const std::vector<Birth>& births, ncclComm_t handle);
  std::vector<const Pending*> own_order(const Step& step, size_t first);
  Pending prepare(const Operation& operation, int rank);
  void post(const std::vector<const Pending*>& operations);
  void call(const Pending& pending, cudaStream_t stream);
  void count_traffic(const Operation& operation, int rank, int times);
  void synchronize();
  void check(const Pending& pending);

  const uint64_t seed_;
  const Place place_;
  const Program program_;
  property::Random random_;
  std::FILE* const report_;
  bool spoil_ = false;
  std::vector<cudaStream_t> streams_;
  std::map<int, Member> communicators_;  ///< those this rank is in, by number
  std::vector<std::unique_ptr<Pending>> pending_;
  std::vector<std::unique_ptr<property::Graph>> graphs_;
  uint64_t launches_ = 0;
  /// Bytes of messages between nodes, on communicators of several nodes with several ranks on one,
  /// and on others.
  uint64_t taken_over_ = 0, left_ = 0;
};

}  // namespace programs
