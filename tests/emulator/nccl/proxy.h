// SPDX-License-Identifier: Apache-2.0
//
// The thread of a communicator that moves chunks between rings and sockets and notices when peers
// are gone. It sleeps in epoll whenever it can move nothing.
//
// Each rank has one connection for each (peer, channel) it sends on, made when first wanted. Who
// wants to receive also connects: a connection tells whether the other end lives. Flow control is
// TCP's: a receiver does not read while its ring is full.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "bootstrap.h"
#include "ring.h"

namespace railyard::emulator {

class Proxy {
 public:
  /// `inbox` receives, `outbox` (rings by peer) is sent; `inbox`'s bell is rung after anything has
  /// changed. `table` and both blocks must outlive the proxy.
  Proxy(const std::vector<Record>& table, int rank, UniqueFd listener, const RingBlock& inbox,
        const RingBlock& outbox);
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;
  ~Proxy() { stop(); }

  ncclResult_t start();
  /// Closes all connections. Idempotent.
  void stop();

  // Thread-safe:

  /// Something was published in the outbox or released from the inbox.
  void wake();
  /// Asks for a connection to `peer` of another node.
  void want(int peer, Channel channel);
  /// No more can be sent to `peer`.
  bool sending_ended(int peer, Channel channel) const;
  /// What is in the inbox from `peer` is all that will ever come, if read before the inbox.
  bool receiving_ended(int peer, Channel channel) const;
  /// The process of a peer on this node has ended.
  bool dead(int peer) const { return peers_[static_cast<size_t>(peer)].dead.load(); }
  /// Everything sent has left for the network, or never will.
  bool drained() const;

 private:
  enum class State : int { kNone, kWanted, kConnecting, kOpen, kEnded };
  struct Header {
    uint64_t message_bytes;
    uint64_t bytes;
  };
  struct Hello {
    Key key;
    int32_t rank;
    Channel channel;
  };
  struct Outgoing {
    std::atomic<State> state{State::kNone};
    UniqueFd fd;
    bool writable = false;
    uint64_t sent = 0;  ///< bytes of the oldest chunk, header included
  };
  struct Incoming {
    std::atomic<State> state{State::kNone};
    UniqueFd fd;
    bool readable = false;
    bool hung_up = false;
    Header header{};
    uint64_t header_bytes = 0;
    uint64_t body_bytes = 0;
  };
  struct Peer {
    Outgoing outgoing[kChannels];
    Incoming incoming[kChannels];
    std::atomic<bool> unreachable{false};  ///< and whatever it sent before is known
    std::atomic<bool> dead{false};
    bool refused = false;
    UniqueFd process;  ///< pidfd, for peers of this node in other processes
  };
  /// A connection that has not said yet whose it is.
  struct Stranger {
    UniqueFd fd;
    Hello hello{};
    size_t bytes = 0;
  };

  void run();
  bool busy() const;
  void handle_event(uint64_t tag, uint32_t events);
  void watch(int fd, uint64_t tag);
  void accept_all();
  bool identify(Stranger* stranger);
  void adopt(Stranger* stranger);
  /// Whose NIC data for a rank of another node leaves by: our own, or, with relays_, that of the
  /// rank of this node that is on the other's rail.
  int nic_rank(int peer) const;
  void connect(int peer, uint32_t channel);
  void greet(int peer, Outgoing* flow);
  void push(int peer, uint32_t channel);
  bool push_some(const Ring& ring, Outgoing* flow);
  void pull(int peer, uint32_t channel);
  bool pull_some(const Ring& ring, Incoming* flow);
  void end_outgoing(int peer, uint32_t channel);
  void settle_refused();
  Ring out(int peer, uint32_t channel) const;
  Ring in(int peer, uint32_t channel) const;

  const std::vector<Record>& table_;
  const int rank_;
  UniqueFd listener_;
  const RingBlock& inbox_;
  const RingBlock& outbox_;
  const bool relays_;  ///< EMULATOR_NCCL_RELAY
  std::vector<Peer> peers_;
  UniqueFd epoll_;
  UniqueFd event_;
  std::map<int, Stranger> strangers_;  ///< by descriptor
  std::vector<std::pair<int, uint32_t>> active_out_;
  std::vector<std::pair<int, uint32_t>> active_in_;
  std::atomic<bool> wants_{false};
  std::atomic<bool> sleeping_{false};
  std::atomic<bool> stop_{false};
  bool incoming_waits_ = false;  ///< the listener may hold connections
  std::thread thread_;
};

}  // namespace railyard::emulator
