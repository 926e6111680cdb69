// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs/flusher.h"

#include <utility>

#include "transport/verbs/registration.h"

namespace railyard::verbs {

Flusher::Flusher(Nic& nic, const transport::Area& landing)
    : nic_(nic), landing_address_(address_of(landing)) {}

Result<std::unique_ptr<Flusher>> Flusher::make(Nic& nic, const transport::Area& landing) {
  std::unique_ptr<Flusher> self(new Flusher(nic, landing));
  transport::Area sink;
  sink.host = self->sink_.data();
  sink.bytes = self->sink_.size();
  Result<MemoryRegion> region = register_area(nic.library(), nic.pd(), sink, false, nic.options(),
                                              "flush memory with " + nic.port().text());
  if (!region.ok()) return region.status();
  self->sink_region_ = region.take();
  Result<std::unique_ptr<QueuePair>> pair = QueuePair::create(nic);
  if (!pair.ok()) return pair.status();
  self->pair_ = pair.take();
  const QueuePairRecord itself = self->pair_->record();
  if (Status status = self->pair_->connect(nic.record(), itself); !status.ok()) return status;
  return self;
}

Status Flusher::pump() {
  if (waiting_.empty() || !flushing_.empty() || !pair_->has_room()) return Status();
  ibv_sge memory{};
  memory.addr = reinterpret_cast<uintptr_t>(sink_.data());
  memory.length = 8;
  memory.lkey = sink_region_->lkey;
  ibv_send_wr request{};
  request.opcode = IBV_WR_RDMA_READ;
  request.sg_list = &memory;
  request.num_sge = 1;
  request.wr.rdma.remote_addr = landing_address_;
  request.wr.rdma.rkey = nic_.record().landing_key;
  std::swap(waiting_, flushing_);
  return pair_->post(request, true);
}

std::vector<Flusher::Arrived> Flusher::completed(uint64_t wr_id) {
  pair_->completed(wr_id);
  return std::exchange(flushing_, {});
}

}  // namespace railyard::verbs
