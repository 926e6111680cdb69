// SPDX-License-Identifier: Apache-2.0
//
// All ways from one rank to the others of its communicator. To a rank of the same node chunks go
// through that rank's inbox, in memory both map; to others through rings of this process, its
// proxy, a socket and their proxy. Either way a rank reads only its own inbox.
//
//   open() -> exchange records -> connect() -> all have connected -> seal() -> … -> close()
//
// Of each (peer, channel) at most one thread sends and one receives at a time.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "bootstrap.h"
#include "proxy.h"
#include "ring.h"

namespace railyard::emulator {

class Fabric {
 public:
  Fabric() = default;
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;
  ~Fabric() { close(); }

  /// Makes what other ranks need to reach this one and writes it into `record`. `most_ranks` is a
  /// bound: the number of ranks may not be known yet.
  ncclResult_t open(int most_ranks, int device, Record* record);
  /// REQUIRES: open(). `table` holds all records, by rank.
  ncclResult_t connect(std::vector<Record> table, int rank);
  /// All ranks have connected: what only newcomers need goes.
  void seal() { rings_fd_.reset(); }
  /// Tells the others that this rank is gone. Idempotent.
  void close();
  /// Waits until everything sent is out of this process's hands or cannot be delivered.
  void drain();

  int rank() const { return rank_; }
  int ranks() const { return static_cast<int>(table_.size()); }
  const std::vector<Record>& table() const { return table_; }
  bool local(int peer) const {
    return table_[static_cast<size_t>(peer)].host == table_[static_cast<size_t>(rank_)].host;
  }

  /// Rung when anything may have changed. Always valid.
  Bell& bell() { return inbox_ ? inbox_.bell() : spare_bell_; }

  /// Prepares for traffic with `peer` in either direction.
  void want(int peer, Channel channel);
  Ring outgoing(int peer, Channel channel) const;
  Ring incoming(int peer, Channel channel) const { return inbox_.ring(peer, channel); }
  /// To be called after publishing to outgoing(), or releasing from incoming().
  void notify(int peer);
  /// Sending to `peer` is in vain.
  bool sending_ended(int peer, Channel channel) const;
  /// See Proxy::receiving_ended.
  bool receiving_ended(int peer, Channel channel) const;

 private:
  bool gone(int peer) const;

  int most_ranks_ = 0;
  int rank_ = 0;
  std::vector<Record> table_;
  RingBlock inbox_;
  RingBlock outbox_;
  std::vector<RingBlock> inboxes_;  ///< of the ranks of this node
  UniqueFd rings_fd_;
  UniqueFd listener_;
  Bell spare_bell_;
  std::optional<Proxy> proxy_;
};

}  // namespace railyard::emulator
