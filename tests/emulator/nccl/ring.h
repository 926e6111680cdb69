// SPDX-License-Identifier: Apache-2.0
//
// Rings of chunks between one writer and one reader, and the bell by which who waits is woken. Both
// may lie in memory shared by processes.
//
//   writer: fill(ring.space()), set its slot, publish()      reader: use front(), release()
//
// Each side only ever stores its own counter. Counters are sequentially consistent, so that "I
// published, are you asleep?" and "I sleep, did you publish?" cannot both be answered with no.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace railyard::emulator {

constexpr uint64_t kChunkBytes = 256 * 1024;
constexpr uint64_t kSlots = 8;

/// Wakes all that wait in any process. Thread-safe.
class Bell {
 public:
  uint32_t value() const { return value_.load(); }
  void ring();
  /// Returns once the bell has rung since value() was `seen`; may return early.
  void wait(uint32_t seen);

 private:
  std::atomic<uint32_t> value_{0};
  std::atomic<uint32_t> waiters_{0};
};

/// What a slot holds; `bytes` of a message of `message_bytes`.
struct Slot {
  uint64_t message_bytes;
  uint64_t bytes;
};

struct RingControl {
  alignas(64) std::atomic<uint64_t> head{0};  ///< chunks published
  alignas(64) std::atomic<uint64_t> tail{0};  ///< chunks released
  alignas(64) Slot slots[kSlots];
};

/// A view of a ring; copies are the same ring.
class Ring {
 public:
  Ring() = default;
  Ring(RingControl* control, char* data) : control_(control), data_(data) {}

  bool full() const { return control_->head.load() - control_->tail.load() >= kSlots; }
  bool empty() const { return control_->head.load() == control_->tail.load(); }
  /// Chunks ever published, and ever released: each is changed by one side alone.
  uint64_t published() const { return control_->head.load(); }
  uint64_t released() const { return control_->tail.load(); }
  /// Chunks published and not released.
  uint64_t used() const { return control_->head.load() - control_->tail.load(); }

  /// Writer, REQUIRES: !full().
  char* space() const { return data_of(control_->head.load()); }
  void publish(Slot slot) const {
    uint64_t head = control_->head.load();
    control_->slots[head % kSlots] = slot;
    control_->head.store(head + 1);
  }

  /// Reader, REQUIRES: index < used().
  const char* data(uint64_t index = 0) const { return data_of(control_->tail.load() + index); }
  Slot slot(uint64_t index = 0) const {
    return control_->slots[(control_->tail.load() + index) % kSlots];
  }
  void release(uint64_t chunks = 1) const { control_->tail.store(control_->tail.load() + chunks); }

 private:
  char* data_of(uint64_t sequence) const { return data_ + (sequence % kSlots) * kChunkBytes; }

  RingControl* control_ = nullptr;
  char* data_ = nullptr;
};

/// What messages are for. Each has rings of its own, so that they never wait for one another.
enum class Channel : uint32_t { kPoint, kCollective, kControl };
constexpr uint32_t kChannels = 3;

/// What a rank shows to the other ranks of its node.
enum class Presence : uint32_t { kAlive, kLeft };

/// One ring for each rank and channel, with the bell of whoever reads them. Pages that no chunk has
/// touched cost nothing.
class RingBlock {
 public:
  RingBlock() = default;
  RingBlock(RingBlock&& other) noexcept;
  RingBlock& operator=(RingBlock&& other) noexcept;
  ~RingBlock();

  /// Memory of this process alone; false with errno set if there is none.
  bool allocate(int ranks);
  /// Memory that others may open; `fd` is set to its descriptor, which the caller owns.
  bool allocate_shared(int ranks, int* fd);
  /// The memory behind descriptor `fd` of process `pid`, made by allocate_shared.
  bool open(int ranks, int pid, int fd);

  explicit operator bool() const { return base_ != nullptr; }
  Ring ring(int rank, Channel channel) const;
  Bell& bell() const;
  std::atomic<Presence>& presence() const;

 private:
  struct Header;
  size_t bytes() const;
  bool map(int ranks, int fd);
  void initialize();

  char* base_ = nullptr;
  int ranks_ = 0;
};

}  // namespace railyard::emulator
