// SPDX-License-Identifier: Apache-2.0
//
// A set of messages on one channel that progress independently: what the kernel of the real NCCL
// does for a group, on the thread that calls run().
//
// Messages of one peer and direction go in the order in which they were added. With a reduction,
// what is received is first the peers' shares of it; receives begin once it is complete, and sends
// may follow its progress.
//
// Thread-bound. Memory named in it must stay until run() returns.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "fabric.h"

namespace railyard::emulator {

/// A block of memory that is reduced here from the shares of all ranks.
struct Reduction {
  const void* own;
  void* target;
  uint64_t bytes;
  ncclDataType_t type;
  ncclRedOp_t op;
};

class Exchange {
 public:
  /// run() gives up once `aborted`, after a ring of the fabric's bell.
  Exchange(Fabric& fabric, Channel channel, const std::atomic<bool>& aborted)
      : fabric_(fabric), channel_(channel), aborted_(aborted) {}

  void send(int peer, const void* data, uint64_t bytes) {
    add(&sends_, peer, {data, bytes, false});
  }
  /// `data` is the target of the reduction, to be sent as it grows.
  void send_reduced(int peer, const void* data, uint64_t bytes) {
    add(&sends_, peer, {data, bytes, true});
  }
  void receive(int peer, void* data, uint64_t bytes) {
    add(&receives_, peer, {data, bytes, false});
  }
  /// At most one in an exchange. Every other rank sends its share with send().
  void reduce(const Reduction& reduction) { reduction_ = reduction; }

  /// Does it all. ncclRemoteError when a peer that is needed is gone, ncclInvalidUsage when a
  /// message has not the size that the other side gave it, ncclInternalError when aborted.
  ncclResult_t run();

 private:
  struct Message {
    const void* data;
    uint64_t bytes;
    bool reduced;
  };
  /// The messages of one peer in one direction.
  struct Lane {
    int peer;
    std::vector<Message> messages;
    size_t next = 0;    ///< first message that is not complete
    uint64_t done = 0;  ///< bytes of it
    bool finished() const { return next == messages.size(); }
  };

  static void add(std::vector<Lane>* lanes, int peer, const Message& message);
  void begin();
  bool finished() const;
  ncclResult_t step(bool* moved);
  ncclResult_t step_send(Lane* lane, bool* moved);
  ncclResult_t step_receive(Lane* lane, bool* moved);
  ncclResult_t step_reduction(bool* moved);
  ncclResult_t lost(int peer) const;
  ncclResult_t mismatch(int peer, uint64_t sent, uint64_t expected) const;
  bool reduced() const { return !reduction_ || reduced_bytes_ == reduction_->bytes; }

  Fabric& fabric_;
  const Channel channel_;
  const std::atomic<bool>& aborted_;
  std::vector<Lane> sends_;
  std::vector<Lane> receives_;
  std::optional<Reduction> reduction_;
  uint64_t reduced_bytes_ = 0;
};

}  // namespace railyard::emulator
