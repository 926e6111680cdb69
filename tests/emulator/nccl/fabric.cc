// SPDX-License-Identifier: Apache-2.0
#include "fabric.h"

#include <unistd.h>

#include <utility>

#include "result.h"

namespace railyard::emulator {

ncclResult_t Fabric::open(int most_ranks, int device, Record* record) {
  most_ranks_ = most_ranks;
  int fd = -1;
  bool allocated = inbox_.allocate_shared(most_ranks, &fd);
  rings_fd_ = UniqueFd(fd);
  if (!allocated || !outbox_.allocate(most_ranks)) {
    return fail_system("memory for the rings of rank %d", record->rank);
  }
  ncclResult_t result = data_address(device, &record->address);
  if (result == ncclSuccess) result = meeting_address(&record->control);
  sockaddr_in all = record->address;
  if (all.sin_addr.s_addr != record->control.sin_addr.s_addr) all.sin_addr.s_addr = INADDR_ANY;
  if (result == ncclSuccess) result = listen_at(&all, &listener_);
  if (result != ncclSuccess) return result;
  record->address.sin_port = record->control.sin_port = all.sin_port;
  if (!make_key(&record->key)) return fail_system("random numbers for a communicator");
  record->device = device;
  record->host = host_hash(device);
  record->pid = ::getpid();
  record->rings_fd = fd;
  return ncclSuccess;
}

ncclResult_t Fabric::connect(std::vector<Record> table, int rank) {
  table_ = std::move(table);
  rank_ = rank;
  inboxes_.resize(table_.size());
  for (size_t peer = 0; peer < table_.size(); ++peer) {
    const Record& record = table_[peer];
    if (static_cast<int>(peer) == rank || !local(static_cast<int>(peer))) continue;
    if (!inboxes_[peer].open(most_ranks_, record.pid, record.rings_fd)) {
      return fail_system("opening the rings of rank %zu, process %d", peer, record.pid);
    }
  }
  proxy_.emplace(table_, rank, std::move(listener_), inbox_, outbox_);
  return table_.size() == 1 ? ncclSuccess : proxy_->start();
}

void Fabric::close() {
  if (inbox_) inbox_.presence() = Presence::kLeft;
  for (RingBlock& peer : inboxes_) {
    if (peer) peer.bell().ring();
  }
  if (proxy_) proxy_->stop();
}

void Fabric::drain() {
  if (!proxy_) return;
  for (;;) {
    uint32_t seen = bell().value();
    if (proxy_->drained()) return;
    bell().wait(seen);
  }
}

void Fabric::want(int peer, Channel channel) {
  if (!local(peer)) proxy_->want(peer, channel);
}

Ring Fabric::outgoing(int peer, Channel channel) const {
  return local(peer) ? inboxes_[static_cast<size_t>(peer)].ring(rank_, channel)
                     : outbox_.ring(peer, channel);
}

void Fabric::notify(int peer) {
  if (local(peer)) {
    inboxes_[static_cast<size_t>(peer)].bell().ring();
  } else {
    proxy_->wake();
  }
}

bool Fabric::gone(int peer) const {
  return inboxes_[static_cast<size_t>(peer)].presence().load() == Presence::kLeft ||
         proxy_->dead(peer);
}

bool Fabric::sending_ended(int peer, Channel channel) const {
  return local(peer) ? gone(peer) : proxy_->sending_ended(peer, channel);
}

bool Fabric::receiving_ended(int peer, Channel channel) const {
  return local(peer) ? gone(peer) : proxy_->receiving_ended(peer, channel);
}

}  // namespace railyard::emulator
