// SPDX-License-Identifier: Apache-2.0
#include "exchange/tables.h"

#include <cstddef>
#include <vector>

#include "base/checked.h"
#include "exchange/engine.h"
#include "kernels/layout.h"

namespace railyard::exchange {
namespace {

/// Lays arrays out one after another in memory that will live at `device`, while it is still on
/// the host.
class Image {
 public:
  template <typename T>
  uint64_t add(uint64_t count) {
    const uint64_t offset = round_up(bytes_, 128);
    bytes_ = offset + count * sizeof(T);
    return offset;
  }
  uint64_t bytes() const { return bytes_; }
  /// After the last add().
  void place(CUdeviceptr device) {
    device_ = device;
    memory_.assign(bytes_, std::byte{0});
  }
  const std::byte* host() const { return memory_.data(); }
  template <typename T>
  T* host(uint64_t offset) {
    return reinterpret_cast<T*>(memory_.data() + offset);
  }
  template <typename T>
  T* device(uint64_t offset) const {
    return reinterpret_cast<T*>(device_ + offset);
  }

 private:
  uint64_t bytes_ = 0;
  CUdeviceptr device_ = 0;
  std::vector<std::byte> memory_;
};

class Builder {
 public:
  Builder(const Gpu& gpu, const TablesSetup& setup)
      : setup_(setup),
        ranks_(static_cast<uint64_t>(setup.topology.ranks())),
        members_(setup.mates.size()),
        local_(setup.topology.local_index(setup.rank)),
        table_(image_.add<kernels::CommTable>(1)),
        send_(image_.add<kernels::SendFlow>(ranks_)),
        recv_(image_.add<kernels::RecvFlow>(ranks_)),
        releases_(image_.add<kernels::Ring>(members_)),
        cursors_(image_.add<uint64_t>(2 * ranks_)),
        broken_(image_.add<uint32_t>(2 * ranks_)),
        tails_(image_.add<uint64_t>(1 + members_)),
        traffic_(image_.add<kernels::Traffic>(1)),
        counters_(image_.add<uint32_t>(2)),
        lanes_(image_.add<kernels::Lane>(gpu.blocks() * 2 * ranks_)) {}

  uint64_t bytes() const { return image_.bytes(); }
  const std::byte* image() const { return image_.host(); }

  void fill(CUdeviceptr device) {
    image_.place(device);
    fill_table();
    for (size_t relay = 0; relay < members_; ++relay) {
      const int r = static_cast<int>(relay);
      image_.host<kernels::Ring>(releases_)[relay] = ring(
          setup_.layout.release_ring(r, local_), setup_.layout.release_entries(r), 1 + relay, r);
    }
    for (int peer = 0; peer < setup_.topology.ranks(); ++peer) {
      if (peer == setup_.rank) continue;
      image_.host<kernels::SendFlow>(send_)[peer] = send_flow(peer);
      image_.host<kernels::RecvFlow>(recv_)[peer] = recv_flow(peer);
    }
  }

 private:
  template <typename T>
  T* segment(uint64_t offset) const {
    return reinterpret_cast<T*>(setup_.segment.device() + offset);
  }
  int local_index(int rank) const { return setup_.topology.local_index(rank); }
  bool near(int rank) const { return setup_.topology.same_node(rank, setup_.rank); }
  const Mate& mate(int rank) const { return setup_.mates[static_cast<size_t>(local_index(rank))]; }

  kernels::Ring ring(uint64_t entries, uint64_t count, uint64_t tail, int reader) const {
    const int bell = setup_.mates[static_cast<size_t>(reader)].bell.get();
    return {segment<kernels::RingEntry>(entries),
            image_.device<uint64_t>(tails_) + tail,
            count - 1,
            {segment<uint32_t>(setup_.layout.sleeping(reader)), bell, 0}};
  }

  void fill_table() {
    auto& table = *image_.host<kernels::CommTable>(table_);
    table.rank = static_cast<uint32_t>(setup_.rank);
    table.ranks = static_cast<uint32_t>(ranks_);
    table.slots = setup_.plan.slots_per_flow();
    table.cell_bytes = setup_.plan.cell_bytes();
    table.cell_stride = setup_.plan.stride();
    table.send = image_.device<kernels::SendFlow>(send_);
    table.recv = image_.device<kernels::RecvFlow>(recv_);
    table.send_next = image_.device<uint64_t>(cursors_);
    table.recv_next = table.send_next + ranks_;
    table.send_broken = image_.device<uint32_t>(broken_);
    table.recv_broken = table.send_broken + ranks_;
    table.lanes = image_.device<kernels::Lane>(lanes_);
    table.traffic = image_.device<kernels::Traffic>(traffic_);
    table.blocks_done = image_.device<uint32_t>(counters_);
    table.fault_claimed = table.blocks_done + 1;
    table.post = ring(setup_.layout.post_ring(local_), setup_.layout.post_entries(), 0, local_);
    table.doorbell = segment<kernels::Doorbell>(setup_.layout.doorbell(local_));
    table.status = segment<kernels::RankStatus>(setup_.layout.status(local_));
  }

  kernels::SendFlow send_flow(int dst) const {
    const uint32_t slot = setup_.plan.staging_slot(setup_.rank, dst);
    kernels::SendFlow flow = {};
    flow.credit = segment<uint64_t>(setup_.layout.credit(local_, dst));
    flow.cells = reinterpret_cast<std::byte*>(mate(setup_.rank).staging->device() +
                                              setup_.plan.staging_offset(setup_.rank, slot));
    flow.ring_slot = slot;
    if (near(dst)) {
      const int local = local_index(dst);
      flow.peer_arrival = segment<uint64_t>(setup_.layout.arrival(local, setup_.rank));
      flow.peer_doorbell = segment<kernels::Doorbell>(setup_.layout.doorbell(local));
    }
    return flow;
  }

  kernels::RecvFlow recv_flow(int src) const {
    kernels::RecvFlow flow = {};
    flow.arrival = segment<uint64_t>(setup_.layout.arrival(local_, src));
    if (near(src)) {
      const uint32_t slot = setup_.plan.staging_slot(src, setup_.rank);
      flow.cells = reinterpret_cast<const std::byte*>(mate(src).staging->device() +
                                                      setup_.plan.staging_offset(src, slot));
      flow.peer_credit = segment<uint64_t>(setup_.layout.credit(local_index(src), setup_.rank));
      flow.peer_doorbell = segment<kernels::Doorbell>(setup_.layout.doorbell(local_index(src)));
      return flow;
    }
    const int relay = setup_.topology.relay(src, setup_.topology.node_of(setup_.rank));
    const uint32_t slot = setup_.plan.landing_slot(src, setup_.rank);
    flow.cells = reinterpret_cast<const std::byte*>(mate(relay).landing->device() +
                                                    setup_.plan.landing_offset(relay, slot));
    flow.release = image_.device<kernels::Ring>(releases_) + local_index(relay);
    flow.ring_slot = slot;
    return flow;
  }

  const TablesSetup& setup_;
  const uint64_t ranks_, members_;
  const int local_;
  Image image_;
  const uint64_t table_, send_, recv_, releases_, cursors_, broken_, tails_, traffic_, counters_,
      lanes_;
};

}  // namespace

Result<std::unique_ptr<device::Region>> make_tables(const Gpu& gpu, const TablesSetup& setup) {
  const device::Driver& driver = gpu.driver();
  Builder builder(gpu, setup);
  Result<std::unique_ptr<device::Region>> made =
      device::Region::create(driver, gpu.ordinal(), device::MemoryKind::kDevice, builder.bytes());
  if (!made.ok()) return made.status();
  std::unique_ptr<device::Region> region = made.take();
  builder.fill(region->device());
  Status status = driver.check(driver.cuMemcpyHtoDAsync(region->device(), builder.image(),
                                                        builder.bytes(), gpu.setup_stream()),
                               "uploading a communicator's tables");
  if (status.ok()) {
    status = driver.check(driver.cuStreamSynchronize(gpu.setup_stream()),
                          "uploading a communicator's tables");
  }
  if (!status.ok()) return status;
  return region;
}

}  // namespace railyard::exchange
