// SPDX-License-Identifier: Apache-2.0
//
// One rank of the exchange test: makes its communicators, posts its part of every exchange and
// compares what it received with what the seed says.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "buffers.h"
#include "graph.h"
#include "plan.h"

namespace property {

struct Options {
  uint64_t seed = 1;
  int exchanges = 10;
  Limits limits;
  bool spoil = false;  ///< change one received byte, to show that the check sees it
  std::string report;  ///< file that gets what was sent, one line of JSON per communicator
};

/// Makes the ids of rank 0 known to all ranks.
using Share = std::function<void(std::vector<ncclUniqueId>&)>;

class Rank {
 public:
  /// The device must be current in the calling thread, which must be the one that calls run().
  Rank(const Options& options, int rank, int ranks, Share share);
  void run();

 private:
  /// This rank's communicator of a creation; comm is null if it has none.
  struct Member {
    ncclComm_t comm = nullptr;
    int communicator = -1;
    std::vector<cudaStream_t> streams;
    std::vector<uint64_t> sent_bytes, sent_messages;  ///< by rank of the communicator
    uint64_t replays = 0;                             ///< launches of graphs that use it
  };
  enum class Kind : uint8_t { kSend, kRecv, kAllToAll };
  struct Operation {
    Kind kind = Kind::kSend;
    int peer = 0;  ///< rank in the communicator
    int step = 0;
    uint64_t bytes = 0;  ///< per peer
    uint64_t send_offset = 0, recv_offset = 0, total = 0;
    cudaStream_t stream = nullptr;
  };
  /// What this rank does on one communicator in one exchange, in program order.
  struct Post {
    Member* member = nullptr;
    std::vector<Operation> operations;
  };
  using Posts = std::vector<Post>;

  void create_communicators();
  void create_streams(Random& random);
  const std::vector<int>& world_ranks(size_t creation) const;
  int position(const std::vector<int>& members) const;

  Posts prepare(int number, const Exchange& exchange);
  void prepare_messages(Random& random, int number, const Part& part, Post& post);
  void prepare_all_to_all(Random& random, int number, const Part& part, Post& post);
  static void count_sends(const Post& post, int times);
  void post_times(int number, const Exchange& exchange, const Posts& posts);
  void post_exchange(int number, int steps, const Posts& posts);
  void post_group(Random& random, int first_step, int end_step, const Posts& posts);
  void post_operation(Random& random, const Member& member, const Operation& operation);
  void finish(int last_exchange);
  void write_report() const;
  void destroy_communicators();

  const Options& options_;
  int rank_, ranks_;
  Share share_;
  std::vector<Creation> creations_;
  std::vector<Member> members_;  ///< by creation
  Arena send_, recv_;
  std::vector<std::unique_ptr<Graph>> graphs_;  ///< of exchanges under way
};

}  // namespace property
