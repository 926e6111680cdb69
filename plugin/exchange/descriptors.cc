// SPDX-License-Identifier: Apache-2.0
#include "exchange/descriptors.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <utility>

namespace railyard::exchange {
namespace {

constexpr uint64_t kRegionBytes = 256 * 1024;
constexpr uint64_t kSmallestBlock = 1024;
/// The done word has a line of its own, before everything else.
constexpr uint64_t kWorkOffset = 64;

void set_done(std::byte* block, uint64_t done) {
  std::atomic_ref(*reinterpret_cast<uint64_t*>(block)).store(done, std::memory_order_relaxed);
}

bool is_done(const std::byte* block) {
  auto* const word = reinterpret_cast<const uint64_t*>(block);
  return std::atomic_ref(const_cast<uint64_t&>(*word)).load(std::memory_order_acquire) != 0;
}

template <typename T>
uint64_t size_of(const std::vector<T>& items) {
  return items.size() * sizeof(T);
}

}  // namespace

Descriptors::Descriptors(const device::Driver& driver, CUdevice device)
    : driver_(driver), device_(device) {}

void Descriptors::group(const std::vector<Message>& messages, int rank, int ranks, uint32_t first,
                        Side* side) {
  side->flows.clear();
  side->self.clear();
  counts_.assign(static_cast<size_t>(ranks), 0);
  for (const Message& message : messages) ++counts_[static_cast<size_t>(message.peer)];
  uint32_t next = 0;
  for (int peer = 0; peer < ranks; ++peer) {
    uint32_t& count = counts_[static_cast<size_t>(peer)];
    if (count == 0 || peer == rank) continue;
    side->flows.push_back({static_cast<uint32_t>(peer), first + next, count, 0});
    count = std::exchange(next, next + count);  // from here on: where its next message goes
  }
  side->messages.resize(next);
  for (const Message& message : messages) {
    const kernels::MessageWork work = {static_cast<std::byte*>(message.buffer), message.bytes};
    if (message.peer == rank) {
      side->self.push_back(work);
    } else {
      side->messages[counts_[static_cast<size_t>(message.peer)]++] = work;
    }
  }
}

Status Descriptors::pair_up(int rank) {
  copies_.clear();
  if (sends_.self.size() != recvs_.self.size()) {
    return Status::error(Code::kInvalidUsage,
                         "rank %d posted %zu sends to itself but %zu receives: both must be in "
                         "the same group",
                         rank, sends_.self.size(), recvs_.self.size());
  }
  for (size_t i = 0; i < sends_.self.size(); ++i) {
    const kernels::MessageWork& send = sends_.self[i];
    const kernels::MessageWork& recv = recvs_.self[i];
    if (send.bytes != recv.bytes) {
      return Status::error(
          Code::kInvalidUsage, "rank %d sends %llu bytes to itself but receives %llu", rank,
          static_cast<unsigned long long>(send.bytes), static_cast<unsigned long long>(recv.bytes));
    }
    if (send.buffer != recv.buffer) copies_.push_back({send.buffer, recv.buffer, send.bytes});
  }
  return {};
}

Status Descriptors::carve(uint64_t bytes) {
  if (regions_.empty() || regions_.back()->bytes() - region_used_ < bytes) {
    Result<std::unique_ptr<device::Region>> region = device::Region::create(
        driver_, device_, device::MemoryKind::kHost, std::max(bytes, kRegionBytes));
    if (!region.ok()) return region.status();
    regions_.push_back(region.take());
    region_used_ = 0;
  }
  device::Region& region = *regions_.back();
  Block block = {region.host() + region_used_, region.device() + region_used_, bytes};
  region_used_ += bytes;
  set_done(block.host, 1);
  blocks_.push_back(block);
  return {};
}

Result<Descriptors::Block*> Descriptors::take(uint64_t bytes) {
  bytes = std::max(std::bit_ceil(bytes), kSmallestBlock);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const size_t index = (next_ + i) % blocks_.size();
    Block& block = blocks_[index];
    if (block.bytes < bytes || block.held || !is_done(block.host)) continue;
    next_ = index + 1;
    return &block;
  }
  if (Status status = carve(bytes); !status.ok()) return status;
  next_ = 0;
  return &blocks_.back();
}

Result<Descriptor> Descriptors::write(const Exchange& exchange, int rank, int ranks) {
  group(exchange.sends, rank, ranks, 0, &sends_);
  group(exchange.recvs, rank, ranks, static_cast<uint32_t>(sends_.messages.size()), &recvs_);
  if (Status status = pair_up(rank); !status.ok()) return status;

  const uint64_t flows = kWorkOffset + sizeof(kernels::ExchangeWork);
  const uint64_t messages = flows + size_of(sends_.flows) + size_of(recvs_.flows);
  const uint64_t copies = messages + size_of(sends_.messages) + size_of(recvs_.messages);
  Result<Block*> taken = take(copies + size_of(copies_));
  if (!taken.ok()) return taken.status();
  Block& block = **taken;

  uint64_t at = flows;
  const auto append = [&](const auto& items) {
    if (!items.empty()) std::memcpy(block.host + at, items.data(), size_of(items));
    at += size_of(items);
  };
  append(sends_.flows);
  append(recvs_.flows);
  append(sends_.messages);
  append(recvs_.messages);
  append(copies_);

  const auto address = [&](uint64_t offset) { return block.device + offset; };
  auto* work = reinterpret_cast<kernels::ExchangeWork*>(block.host + kWorkOffset);
  *work = {};
  work->sends = static_cast<uint32_t>(sends_.flows.size());
  work->recvs = static_cast<uint32_t>(recvs_.flows.size());
  work->copies = static_cast<uint32_t>(copies_.size());
  work->flows = reinterpret_cast<const kernels::FlowWork*>(address(flows));
  work->messages = reinterpret_cast<const kernels::MessageWork*>(address(messages));
  work->self = reinterpret_cast<const kernels::CopyWork*>(address(copies));
  work->done = reinterpret_cast<uint64_t*>(address(0));
  set_done(block.host, 0);
  return Descriptor{address(kWorkOffset), block.host};
}

void Descriptors::withdraw(const Descriptor& descriptor) { set_done(descriptor.block, 1); }

void Descriptors::hold(const Descriptor& descriptor) {
  for (Block& block : blocks_) block.held |= block.host == descriptor.block;
  set_done(descriptor.block, 1);
}

void Descriptors::give_back(const std::byte* freed) {
  for (Block& block : blocks_) block.held &= block.host != freed;
}

void Descriptors::reopen(std::byte* block) { set_done(block, 0); }

}  // namespace railyard::exchange
