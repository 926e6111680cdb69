// SPDX-License-Identifier: Apache-2.0
#include "ring.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <new>
#include <utility>

namespace railyard::emulator {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t round_up(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

static_assert(std::atomic<uint32_t>::is_always_lock_free);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace

void Bell::ring() {
  value_.fetch_add(1);
  if (waiters_.load() == 0) return;
  ::syscall(SYS_futex, &value_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Bell::wait(uint32_t seen) {
  waiters_.fetch_add(1);
  ::syscall(SYS_futex, &value_, FUTEX_WAIT, seen, nullptr, nullptr, 0);
  waiters_.fetch_sub(1);
}

struct RingBlock::Header {
  alignas(64) Bell bell;
  alignas(64) std::atomic<Presence> presence{Presence::kAlive};
};

RingBlock::RingBlock(RingBlock&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), ranks_(other.ranks_) {}

RingBlock& RingBlock::operator=(RingBlock&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(ranks_, other.ranks_);
  return *this;
}

RingBlock::~RingBlock() {
  if (base_ != nullptr) ::munmap(base_, bytes());
}

size_t RingBlock::bytes() const {
  auto rings = static_cast<size_t>(ranks_) * kChannels;
  return kPage + round_up(rings * sizeof(RingControl)) + rings * kSlots * kChunkBytes;
}

bool RingBlock::map(int ranks, int fd) {
  ranks_ = ranks;
  int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* memory = ::mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, fd, 0);
  if (memory == MAP_FAILED) return false;
  base_ = static_cast<char*>(memory);
  return true;
}

void RingBlock::initialize() {
  new (base_) Header;
  for (int i = 0; i < ranks_ * static_cast<int>(kChannels); ++i) {
    new (base_ + kPage + static_cast<size_t>(i) * sizeof(RingControl)) RingControl;
  }
}

bool RingBlock::allocate(int ranks) {
  if (!map(ranks, -1)) return false;
  initialize();
  return true;
}

bool RingBlock::allocate_shared(int ranks, int* fd) {
  ranks_ = ranks;
  *fd = ::memfd_create("nccl-rings", MFD_CLOEXEC);
  if (*fd < 0) return false;
  if (::ftruncate(*fd, static_cast<off_t>(bytes())) != 0 || !map(ranks, *fd)) return false;
  initialize();
  return true;
}

bool RingBlock::open(int ranks, int pid, int fd) {
  char path[64];
  ::snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
  int own = ::open(path, O_RDWR | O_CLOEXEC);
  if (own < 0) return false;
  bool mapped = map(ranks, own);
  ::close(own);
  return mapped;
}

Ring RingBlock::ring(int rank, Channel channel) const {
  size_t rings = static_cast<size_t>(ranks_) * kChannels;
  size_t index = static_cast<size_t>(rank) * kChannels + static_cast<size_t>(channel);
  char* controls = base_ + kPage;
  char* data = controls + round_up(rings * sizeof(RingControl));
  return Ring(std::launder(reinterpret_cast<RingControl*>(controls + index * sizeof(RingControl))),
              data + index * kSlots * kChunkBytes);
}

Bell& RingBlock::bell() const { return std::launder(reinterpret_cast<Header*>(base_))->bell; }

std::atomic<Presence>& RingBlock::presence() const {
  return std::launder(reinterpret_cast<Header*>(base_))->presence;
}

}  // namespace railyard::emulator
