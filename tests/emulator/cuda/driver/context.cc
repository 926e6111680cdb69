// SPDX-License-Identifier: Apache-2.0
#include "context.h"

#include <algorithm>

#include "thread.h"

namespace railyard::emulator {
namespace {

using Kind = StreamObject::Kind;

std::atomic<uint64_t> next_stream_id{1};

}  // namespace

Point StreamObject::submit(Work work, std::vector<Point> after) {
  if (kind == Kind::kNonBlocking) return queue->enqueue(std::move(after), std::move(work));
  std::lock_guard lock(context->order_);
  for (Point& point :
       kind == Kind::kLegacy ? context->pending_of_blocking() : context->pending_of_legacy()) {
    after.push_back(std::move(point));
  }
  return queue->enqueue(std::move(after), std::move(work));
}

bool StreamObject::idle() {
  if (kind == Kind::kLegacy) {
    std::lock_guard lock(context->order_);
    if (!context->pending_of_blocking().empty()) return false;
  }
  return queue->idle();
}

void StreamObject::synchronize() {
  std::vector<Point> points;
  {
    std::lock_guard lock(context->order_);
    if (kind == Kind::kLegacy) points = context->pending_of_blocking();
    points.push_back(queue->tail());
  }
  for (const Point& point : points) point.wait();
}

bool Context::enable_peer(int device) {
  std::lock_guard lock(order_);
  return peers_.insert(device).second;
}

bool Context::disable_peer(int device) {
  std::lock_guard lock(order_);
  return peers_.erase(device) > 0;
}

std::shared_ptr<StreamObject> Context::create_stream(Kind kind, int priority) {
  auto stream = std::make_shared<StreamObject>(StreamObject{
      shared_from_this(), std::make_shared<Stream>(), kind, priority, next_stream_id++});
  std::lock_guard lock(order_);
  drop_finished();
  members_.push_back(Member{stream, stream->queue, kind});
  return stream;
}

std::shared_ptr<StreamObject> Context::legacy_stream() {
  {
    std::lock_guard lock(order_);
    if (legacy_) return legacy_;
  }
  auto stream = create_stream(Kind::kLegacy, 0);
  std::lock_guard lock(order_);
  if (!legacy_) legacy_ = std::move(stream);
  return legacy_;
}

std::shared_ptr<StreamObject> Context::thread_stream() {
  auto& streams = this_thread().default_streams;
  for (const auto& stream : streams) {
    if (stream->context.get() == this) return stream;
  }
  streams.push_back(create_stream(Kind::kBlocking, 0));
  return streams.back();
}

void Context::drop_finished() {
  std::erase_if(members_, [](const Member& member) {
    return member.object.expired() && member.queue->idle();
  });
}

std::vector<Point> Context::pending_of_blocking() {
  drop_finished();
  std::vector<Point> points;
  for (const Member& member : members_) {
    if (member.kind != Kind::kBlocking) continue;
    if (Point tail = member.queue->tail(); !tail.past()) points.push_back(std::move(tail));
  }
  return points;
}

std::vector<Point> Context::pending_of_legacy() {
  if (!legacy_) return {};
  Point tail = legacy_->queue->tail();
  if (tail.past()) return {};
  return {std::move(tail)};
}

void Context::synchronize() {
  std::vector<Point> points;
  {
    std::lock_guard lock(order_);
    drop_finished();
    for (const Member& member : members_) points.push_back(member.queue->tail());
  }
  for (const Point& point : points) point.wait();
}

void Context::destroy() {
  if (destroyed_.exchange(true)) return;
  synchronize();
  std::shared_ptr<StreamObject> legacy;
  std::lock_guard lock(order_);
  for (const Member& member : members_) member.queue->close();
  members_.clear();
  legacy_.swap(legacy);  // breaks the cycle of ownership
}

}  // namespace railyard::emulator
