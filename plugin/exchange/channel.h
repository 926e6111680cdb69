// SPDX-License-Identifier: Apache-2.0
//
// The carrier's half of one communicator: what its kernels posted goes to the transport, what the
// transport landed is published, what was pulled becomes credit.
//
//   post ring     --> post_cell          on_cell   --> arrival words of the destination
//   release rings --> post_credit        on_credit --> credit words of this rank
//
// Thread-bound to the carrier after attach(); launched() and the farewell calls are thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "exchange/health.h"
#include "exchange/segment.h"
#include "exchange/slots.h"
#include "kernels/layout.h"
#include "topology/topology.h"
#include "transport/transport.h"

namespace railyard::exchange {

struct ChannelSetup {
  const topology::Topology* topology = nullptr;  ///< outlives the channel, as all pointers here
  const SlotPlan* plan = nullptr;
  const Segment* layout = nullptr;
  int rank = 0;
  std::byte* segment = nullptr;
  std::byte* landing = nullptr;  ///< this rank's landing pool as the CPU sees it, null: GPU memory
  std::vector<transport::Address> addresses;  ///< by rank
  std::vector<std::string> names;             ///< by rank
  std::vector<int> bells;                     ///< eventfd of each mate's carrier, by local index
  std::vector<int> lives;                     ///< see Mate::life; -1: none
};

class Channel {
 public:
  Channel(ChannelSetup setup, Health& health);

  // --- carrier's thread ---

  /// Opens the links.
  Status open(transport::Transport& transport);
  void close(transport::Transport& transport);
  /// Moves what the rings hold. True if anything moved.
  bool progress(transport::Transport& transport);
  /// Whether something of this communicator is under way that may need the carrier soon.
  bool in_flight() const;
  /// Before blocking: from now on producers ring the bell.
  void announce_sleep();

  uint32_t first_tag() const { return first_tag_; }
  uint32_t tags() const { return tags_; }
  /// Tags relative to first_tag(). See transport::Receiver.
  std::span<std::byte> landing(transport::LinkId link, uint32_t tag);
  void on_cell(transport::LinkId link, uint32_t tag);
  void on_credit(transport::LinkId link, uint32_t tag);
  void on_link_down(transport::LinkId link, const Status& why);
  /// The process of a mate has ended: nobody may wait for it any more.
  void on_mate_lost(transport::Transport& transport, int local);
  std::span<const int> lives() const { return setup_.lives; }

  // --- any thread ---

  /// An exchange is about to be launched, or (withdrawn) was not after all. Ring the carrier after.
  void launched() { launched_.fetch_add(1, std::memory_order_release); }
  void withdrawn() { launched_.fetch_sub(1, std::memory_order_release); }
  /// From the next progress() on: once nothing is under way, says farewell to the mates.
  /// `farewell` is kSaid or kLeaving.
  void say_farewell(uint32_t farewell = kSaid) {
    farewell_asked_.store(farewell, std::memory_order_release);
  }
  /// Waits until farewell was said, and with `all`, until every mate has said it.
  void wait_farewell(bool all);
  /// As with `all`, but not beyond `limit`.
  void wait_farewell(std::chrono::steady_clock::time_point limit);
  /// No rank of the node needs this one any more.
  bool mates_gone() const;
  /// All exchanges launched here are over.
  bool settled() const;
  /// Ends waits: the communicator is given up.
  void abandon();
  Health& health() { return health_; }

 private:
  /// Flow of this rank to a rank of another node, by staging slot / slots.
  struct OutFlow {
    int dst = -1;  ///< -1: same node, nothing for the carrier to do
    transport::LinkId link{};
    uint32_t landing_tag = 0;
    uint64_t landing_offset = 0, staging_offset = 0;
    uint64_t* credit = nullptr;
    bool broken = false;
  };
  /// Flow that this rank relays, by landing slot / slots.
  struct InFlow {
    int src = 0, local = 0;
    transport::LinkId link{};
    uint32_t staging_tag = 0, broken_tag = 0;
    uint64_t landing_offset = 0;
    uint64_t* arrival = nullptr;
    kernels::Doorbell* doorbell = nullptr;
    bool broken = false;
  };
  struct RingReader {
    const kernels::RingEntry* entries = nullptr;
    uint64_t mask = 0, head = 0;
    bool next(uint32_t* slot, uint64_t* bytes);
  };
  static constexpr uint64_t kNotInUse = ~uint64_t{0};

  void make_flows();
  bool drain_posts(transport::Transport& transport);
  bool drain_releases(transport::Transport& transport, RingReader& ring);
  void post(transport::Transport& transport, uint32_t slot, uint64_t bytes);
  void release(transport::Transport& transport, uint32_t slot);
  void break_out(OutFlow& flow);
  void break_in(InFlow& flow);
  /// Breaks a flow that nobody will pull from again, and tells its source.
  void refuse(transport::Transport& transport, InFlow& flow);
  /// `gone`: all mates have said farewell, and their rings have been served since.
  void check_farewell(uint32_t farewell, bool gone);
  void ring_mates();
  uint64_t local_count() const { return setup_.bells.size(); }

  ChannelSetup setup_;
  Health& health_;
  const uint32_t slots_;
  const int node_, local_;
  uint32_t first_tag_, landing_tags_, staging_tags_, tags_;
  kernels::RankStatus* status_;
  kernels::Doorbell* doorbell_;

  std::vector<OutFlow> out_;
  std::vector<InFlow> in_;
  std::vector<uint64_t> sent_;    ///< [staging slot] sequence of the cell in it, or kNotInUse
  std::vector<uint64_t> landed_;  ///< [landing slot] sequence of the cell in it, or kNotInUse
  std::vector<uint64_t> expect_;  ///< [landing slot] sequence of the next cell to land
  RingReader posts_;
  std::vector<RingReader> releases_;  ///< by local index of the destination
  std::vector<transport::LinkId> links_;
  uint64_t cells_out_ = 0;     ///< posted, credit not yet back
  uint64_t cells_landed_ = 0;  ///< landed, not yet pulled
  bool fault_seen_ = false;

  std::atomic<uint64_t> launched_{0};
  std::atomic<uint32_t> farewell_asked_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool farewell_said_ = false, all_said_ = false, abandoned_ = false;  ///< guarded by mutex_
};

}  // namespace railyard::exchange
