// SPDX-License-Identifier: Apache-2.0
//
// The host thread, one per process and GPU, that talks to the transport for all communicators. It
// never calls CUDA: a thread behind the driver's context lock could deadlock with a waiting
// kernel. Kernel and carrier meet only in mapped memory.
//
// With nothing under way it blocks in epoll. With work in flight it spins if it may; otherwise it
// blocks until somebody rings its bell, or, where kernels run on a GPU and cannot ring, looks
// again every 20 µs.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "exchange/channel.h"
#include "transport/transport.h"

namespace railyard::exchange {

class Carrier final : private transport::Receiver {
 public:
  /// `kernel_rings`: kernels run on the host and ring the bell.
  static Result<std::unique_ptr<Carrier>> start(transport::Transport& transport, bool kernel_rings);
  /// Stops the thread. REQUIRES: no channel is attached.
  ~Carrier() override;

  /// eventfd of the bell; mates get duplicates.
  int bell() const { return bell_.get(); }
  /// Wakes the carrier whatever it waits for.
  void wake();
  /// Whether it may spin while work is in flight; false at first.
  void allow_spinning(bool allowed) { may_spin_.store(allowed, std::memory_order_relaxed); }

  /// Opens the channel's links and serves it until detach(). Both wait for the carrier's thread;
  /// the channel stays the caller's. detach() also waits until what was posted, others' credits
  /// among it, is with the network: the process may exit next. A peer that does not read holds it
  /// up for kFlushLimitMs at most.
  Status attach(Channel& channel);
  void detach(Channel& channel);

  /// Of the transport, so of all communicators. Waits for the carrier's thread.
  transport::Counters counters();

  static constexpr int kFlushLimitMs = 5000;

 private:
  Carrier(transport::Transport& transport, bool kernel_rings);

  void run();
  bool serve();
  bool obey();
  void block(bool in_flight);
  bool in_flight() const;
  void watch(int fd, uint64_t key);
  void on_event(uint64_t key);
  void call(std::function<void()> command);
  /// The channel that owns a tag, and the tag relative to it; null if nobody does.
  Channel* owner(uint32_t tag, uint32_t* relative);

  std::span<std::byte> landing(transport::LinkId link, uint32_t tag) override;
  void on_cell(transport::LinkId link, uint32_t tag) override;
  void on_credit(transport::LinkId link, uint32_t tag) override;
  void on_link_down(transport::LinkId link, const Status& why) override;

  transport::Transport& transport_;
  const bool kernel_rings_;
  std::atomic<bool> may_spin_{false};
  UniqueFd bell_, epoll_;
  std::map<uint32_t, Channel*> channels_;           ///< by first tag; carrier's thread
  std::map<int, std::pair<Channel*, int>> lives_;   ///< fd → mate; carrier's thread
  std::map<transport::LinkId, Status> lost_links_;  ///< carrier's thread

  std::mutex mutex_;
  std::vector<std::function<void()>> commands_;               ///< guarded by mutex_
  bool stop_ = false;                                         ///< carrier's thread
  std::vector<std::shared_ptr<std::promise<void>>> flushed_;  ///< carrier's thread
  std::thread thread_;
};

}  // namespace railyard::exchange
