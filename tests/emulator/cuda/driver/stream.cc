// SPDX-License-Identifier: Apache-2.0
#include "stream.h"

#include <unistd.h>

#include <thread>

#include "process.h"

namespace railyard::emulator {

bool Point::past() const {
  if (!stream) return true;
  std::lock_guard lock(stream->mutex_);
  return stream->done_ >= sequence;
}

void Point::wait() const {
  if (!stream) return;
  std::unique_lock lock(stream->mutex_);
  stream->progress_.wait(lock, [&] { return stream->done_ >= sequence; });
}

Point Stream::enqueue(std::vector<Point> after, Work work) {
  std::lock_guard lock(mutex_);
  queue_.push_back(Item{std::move(after), std::move(work)});
  if (!started_) {
    started_ = true;
    std::thread([self = shared_from_this()] { self->run(); }).detach();
  }
  work_.notify_one();
  return Point{shared_from_this(), ++enqueued_};
}

Point Stream::tail() {
  std::lock_guard lock(mutex_);
  return Point{shared_from_this(), enqueued_};
}

void Stream::close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  work_.notify_one();
}

void Stream::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [&] { return !queue_.empty() || closed_; });
    if (queue_.empty()) return;
    Item item = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    for (const Point& point : item.after) point.wait();
    // What the work touches may be on its way out already: the process ends without it.
    while (exiting()) ::pause();
    item.work();
    item = Item{};
    lock.lock();
    ++done_;
    progress_.notify_all();
  }
}

}  // namespace railyard::emulator
