// SPDX-License-Identifier: Apache-2.0
#include "exchange.h"

#include <string.h>

#include <algorithm>

#include "reduce.h"
#include "result.h"

namespace railyard::emulator {

void Exchange::add(std::vector<Lane>* lanes, int peer, const Message& message) {
  auto lane = std::find_if(lanes->begin(), lanes->end(), [&](auto& l) { return l.peer == peer; });
  if (lane == lanes->end()) {
    lanes->push_back(Lane{peer, {}});
    lane = lanes->end() - 1;
  }
  lane->messages.push_back(message);
}

/// Orders the lanes so that ranks do not all begin with the same peer, and prepares the ways.
void Exchange::begin() {
  int rank = fabric_.rank();
  int ranks = fabric_.ranks();
  auto distance = [&](int from, int to) { return (to - from + ranks) % ranks; };
  std::sort(sends_.begin(), sends_.end(), [&](const Lane& a, const Lane& b) {
    return distance(rank, a.peer) < distance(rank, b.peer);
  });
  std::sort(receives_.begin(), receives_.end(), [&](const Lane& a, const Lane& b) {
    return distance(a.peer, rank) < distance(b.peer, rank);
  });
  for (const Lane& lane : sends_) fabric_.want(lane.peer, channel_);
  for (const Lane& lane : receives_) fabric_.want(lane.peer, channel_);
  if (!reduction_) return;
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer != rank) fabric_.want(peer, channel_);
  }
}

bool Exchange::finished() const {
  auto done = [](const Lane& lane) { return lane.finished(); };
  return reduced() && std::all_of(sends_.begin(), sends_.end(), done) &&
         std::all_of(receives_.begin(), receives_.end(), done);
}

ncclResult_t Exchange::run() {
  begin();
  while (!finished()) {
    uint32_t seen = fabric_.bell().value();
    if (aborted_) return fail(ncclInternalError, "the communicator was aborted");
    bool moved = false;
    ncclResult_t result = step(&moved);
    if (result != ncclSuccess) return result;
    if (!moved && !finished()) fabric_.bell().wait(seen);
  }
  return ncclSuccess;
}

ncclResult_t Exchange::step(bool* moved) {
  ncclResult_t result = ncclSuccess;
  if (!reduced()) result = step_reduction(moved);
  for (Lane& lane : sends_) {
    if (result == ncclSuccess && !lane.finished()) result = step_send(&lane, moved);
  }
  if (!reduced()) return result;
  for (Lane& lane : receives_) {
    if (result == ncclSuccess && !lane.finished()) result = step_receive(&lane, moved);
  }
  return result;
}

/// At most one chunk, so that all peers get their turn.
ncclResult_t Exchange::step_send(Lane* lane, bool* moved) {
  if (fabric_.sending_ended(lane->peer, channel_)) return lost(lane->peer);
  Ring ring = fabric_.outgoing(lane->peer, channel_);
  if (ring.full()) return ncclSuccess;
  const Message& message = lane->messages[lane->next];
  uint64_t bytes = std::min(message.bytes - lane->done, kChunkBytes);
  if (message.reduced && reduced_bytes_ - lane->done < bytes) return ncclSuccess;
  if (bytes > 0) {
    ::memcpy(ring.space(), static_cast<const char*>(message.data) + lane->done, bytes);
  }
  ring.publish(Slot{message.bytes, bytes});
  fabric_.notify(lane->peer);
  *moved = true;
  lane->done += bytes;
  if (lane->done == message.bytes) {
    ++lane->next;
    lane->done = 0;
  }
  return ncclSuccess;
}

ncclResult_t Exchange::step_receive(Lane* lane, bool* moved) {
  bool ended = fabric_.receiving_ended(lane->peer, channel_);  // before looking into the ring
  Ring ring = fabric_.incoming(lane->peer, channel_);
  if (ring.empty()) return ended ? lost(lane->peer) : ncclSuccess;
  const Message& message = lane->messages[lane->next];
  Slot slot = ring.slot();
  if (slot.message_bytes != message.bytes || slot.bytes > message.bytes - lane->done) {
    return mismatch(lane->peer, slot.message_bytes, message.bytes);
  }
  if (slot.bytes > 0) {
    ::memcpy(static_cast<char*>(const_cast<void*>(message.data)) + lane->done, ring.data(),
             slot.bytes);
  }
  ring.release();
  fabric_.notify(lane->peer);
  *moved = true;
  lane->done += slot.bytes;
  if (lane->done == message.bytes) {
    ++lane->next;
    lane->done = 0;
  }
  return ncclSuccess;
}

/// Reduces the next chunk once all shares of it have come.
ncclResult_t Exchange::step_reduction(bool* moved) {
  uint64_t bytes = std::min(reduction_->bytes - reduced_bytes_, kChunkBytes);
  std::vector<const void*> shares;
  bool complete = true;
  for (int peer = 0; peer < fabric_.ranks(); ++peer) {
    if (peer == fabric_.rank()) {
      shares.push_back(static_cast<const char*>(reduction_->own) + reduced_bytes_);
      continue;
    }
    bool ended = fabric_.receiving_ended(peer, channel_);
    Ring ring = fabric_.incoming(peer, channel_);
    if (ring.empty()) {
      if (ended) return lost(peer);
      complete = false;
      continue;
    }
    Slot slot = ring.slot();
    if (slot.message_bytes != reduction_->bytes || slot.bytes != bytes) {
      return mismatch(peer, slot.message_bytes, reduction_->bytes);
    }
    shares.push_back(ring.data());
  }
  if (!complete) return ncclSuccess;
  railyard::emulator::reduce(reduction_->type, reduction_->op, shares,
                             bytes / type_size(reduction_->type),
                             static_cast<char*>(reduction_->target) + reduced_bytes_);
  reduced_bytes_ += bytes;
  for (int peer = 0; peer < fabric_.ranks(); ++peer) {
    if (peer == fabric_.rank()) continue;
    fabric_.incoming(peer, channel_).release();
    fabric_.notify(peer);
  }
  *moved = true;
  return ncclSuccess;
}

ncclResult_t Exchange::lost(int peer) const {
  return fail(ncclRemoteError, "rank %d: rank %d has left or its process ended while it was needed",
              fabric_.rank(), peer);
}

ncclResult_t Exchange::mismatch(int peer, uint64_t sent, uint64_t expected) const {
  return fail(ncclInvalidUsage,
              "rank %d: rank %d sent a message of %llu bytes where %llu were to be received",
              fabric_.rank(), peer, static_cast<unsigned long long>(sent),
              static_cast<unsigned long long>(expected));
}

}  // namespace railyard::emulator
