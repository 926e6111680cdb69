// SPDX-License-Identifier: Apache-2.0
//
// An in-order queue of work with a thread of its own.
//
// Every piece of work has a sequence, from 1. A Point (stream, sequence) names a moment: the end of
// that work. Work may be told to wait for points of other streams. Whoever enqueues must name only
// points that already exist, so no cycle of waits can arise.
//
// The thread starts with the first work and sleeps while there is none. It is detached and keeps
// the stream alive until it was closed and its work is done; so closing a busy stream is legal.
// When the process exits, no further work is begun.
//
// Thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace railyard::emulator {

class Stream;

struct Point {
  std::shared_ptr<Stream> stream;  ///< null: a moment that is always past
  uint64_t sequence = 0;

  bool past() const;
  void wait() const;
};

using Work = std::function<void()>;

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// The point at which `work` is done. `work` begins when all before it in this stream is done
  /// and all of `after` is past.
  Point enqueue(std::vector<Point> after, Work work);
  /// The end of all work enqueued so far.
  Point tail();
  bool idle() { return tail().past(); }
  /// No work will come any more.
  void close();

 private:
  friend struct Point;
  struct Item {
    std::vector<Point> after;
    Work work;
  };
  void run();

  std::mutex mutex_;
  std::condition_variable work_;      ///< queue_ or closed_ changed
  std::condition_variable progress_;  ///< done_ changed
  std::deque<Item> queue_;
  uint64_t enqueued_ = 0;
  uint64_t done_ = 0;
  bool started_ = false;
  bool closed_ = false;
};

}  // namespace railyard::emulator
