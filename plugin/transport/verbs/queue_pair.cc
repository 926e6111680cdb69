// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs/queue_pair.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "transport/verbs/ports.h"

namespace railyard::verbs {
namespace {

constexpr uint32_t kSignalEvery = 32;
constexpr uint8_t kMinRnrTimer = 12;     // 0.64 ms
constexpr uint8_t kRetryWithoutEnd = 7;  // of rnr_retry
constexpr uint8_t kHopLimit = 255;
constexpr size_t kSubnetPrefixBytes = 8;

Result<uint32_t> random_psn() {
  const Result<wire::Bytes> bytes = net::random_bytes(4);
  if (!bytes.ok()) return bytes.status();
  return wire::Reader(*bytes).u32() & 0xffffff;
}

}  // namespace

Result<std::unique_ptr<QueuePair>> QueuePair::create(Nic& nic) {
  const Result<uint32_t> psn = random_psn();
  if (!psn.ok()) return psn.status();
  ibv_qp_init_attr attributes{};
  attributes.send_cq = nic.cq();
  attributes.recv_cq = nic.cq();
  attributes.srq = nic.srq();
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap.max_send_wr = nic.sends_per_queue_pair();
  attributes.cap.max_send_sge = 1;
  errno = 0;
  std::unique_ptr<QueuePair> self(new QueuePair(nic));
  self->pair_ = own<QueuePairHandle>(nic.library(), nic.library().create_qp(nic.pd(), &attributes));
  if (!self->pair_) return verbs_error(errno, "making a queue pair of " + nic.port().text());
  self->first_psn_ = *psn;
  if (Status status = self->to_init(); !status.ok()) return status;
  return self;
}

QueuePair::~QueuePair() {
  if (!pair_) return;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  nic_.library().modify_qp(pair_.get(), &attributes, IBV_QP_STATE);
  pair_.reset();
  nic_.abandon(under_way_);
}

QueuePairRecord QueuePair::record() const {
  QueuePairRecord record;
  record.number = number();
  record.first_psn = first_psn_;
  const Library& library = nic_.library();
  ibv_ece ece{};
  if (nic_.options().ece && library.query_ece != nullptr &&
      library.query_ece(pair_.get(), &ece) == 0) {
    record.has_ece = true;
    record.ece_vendor = ece.vendor_id;
    record.ece_options = ece.options;
    record.ece_mask = ece.comp_mask;
  }
  return record;
}

Status QueuePair::to_init() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.pkey_index = nic_.options().pkey_index;
  attributes.port_num = nic_.port().number;
  attributes.qp_access_flags =
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  const int error = nic_.library().modify_qp(
      pair_.get(), &attributes,
      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (error == 0) return Status();
  return verbs_error(error, "initialising a queue pair of " + nic_.port().text() + " with P_Key " +
                                "index " + std::to_string(nic_.options().pkey_index));
}

Status QueuePair::connect(const NicRecord& peer_nic, const QueuePairRecord& peer) {
  const Library& library = nic_.library();
  if (peer_nic.link_layer != nic_.record().link_layer)
    return Status::error(Code::kUnavailable,
                         "%s is %s but the peer's %s is not: choose NICs of one kind with "
                         "NCCL_IB_HCA",
                         nic_.record().name.c_str(), nic_.ethernet() ? "Ethernet" : "InfiniBand",
                         peer_nic.name.c_str());
  if (peer.has_ece && nic_.options().ece && library.set_ece != nullptr) {
    ibv_ece ece{};
    ece.vendor_id = peer.ece_vendor;
    ece.options = peer.ece_options;
    ece.comp_mask = peer.ece_mask;
    if (const int error = library.set_ece(pair_.get(), &ece); error != 0)
      log::trace("%s: enhanced connection not used: %s", nic_.port().text().c_str(),
                 std::strerror(error));
  }
  if (peer_nic.mtu != nic_.record().mtu)
    log::info("MTU %d of %s and %d of the peer's %s differ; the smaller is used",
              128 << nic_.record().mtu, nic_.record().name.c_str(), 128 << peer_nic.mtu,
              peer_nic.name.c_str());
  Status status = to_ready_to_receive(peer_nic, peer);
  return status.ok() ? to_ready_to_send() : status;
}

Status QueuePair::to_ready_to_receive(const NicRecord& peer_nic, const QueuePairRecord& peer) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = static_cast<ibv_mtu>(std::min(peer_nic.mtu, nic_.record().mtu));
  attributes.dest_qp_num = peer.number;
  attributes.rq_psn = peer.first_psn;
  attributes.max_dest_rd_atomic = 1;
  attributes.min_rnr_timer = kMinRnrTimer;
  ibv_ah_attr& way = attributes.ah_attr;
  way.sl = nic_.options().service_level;
  way.port_num = nic_.port().number;
  const bool same_subnet = std::equal(
      peer_nic.gid.begin(), peer_nic.gid.begin() + kSubnetPrefixBytes, nic_.record().gid.begin());
  if (nic_.ethernet() || !same_subnet) {
    way.is_global = 1;
    std::memcpy(way.grh.dgid.raw, peer_nic.gid.data(), peer_nic.gid.size());
    way.grh.sgid_index = static_cast<uint8_t>(nic_.gid_index());
    way.grh.hop_limit = kHopLimit;
    way.grh.traffic_class = nic_.ethernet() ? nic_.options().traffic_class : 0;
  }
  if (!nic_.ethernet()) way.dlid = peer_nic.lid;
  const int error = nic_.library().modify_qp(pair_.get(), &attributes,
                                             IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                                                 IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                                 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error == 0) return Status();
  return verbs_error(error, "connecting " + nic_.record().name + ", GID " +
                                text_of(nic_.record().gid) + ", to the peer's " + peer_nic.name +
                                ", GID " + text_of(peer_nic.gid) +
                                " (is there a route between them? NCCL_IB_GID_INDEX and "
                                "NCCL_IB_HCA choose others)");
}

Status QueuePair::to_ready_to_send() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = nic_.options().timeout;
  attributes.retry_cnt = nic_.options().retry_count;
  attributes.rnr_retry = kRetryWithoutEnd;
  attributes.sq_psn = first_psn_;
  attributes.max_rd_atomic = 1;
  const int error =
      nic_.library().modify_qp(pair_.get(), &attributes,
                               IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                   IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  if (error == 0) return Status();
  return verbs_error(error, "making a queue pair of " + nic_.record().name + " ready to send");
}

Status QueuePair::post(ibv_send_wr& request, bool signal) {
  const uint32_t count = since_signal_ + 1;
  signal =
      signal || nic_.crowded() || count >= std::min(kSignalEvery, nic_.sends_per_queue_pair() / 4);
  request.wr_id = count;
  if (signal) request.send_flags |= IBV_SEND_SIGNALED;
  ibv_send_wr* refused = nullptr;
  if (const int error = ibv_post_send(pair_.get(), &request, &refused); error != 0)
    return verbs_error(error, "posting a write to " + nic_.record().name);
  ++under_way_;
  nic_.sent();
  since_signal_ = signal ? 0 : count;
  return Status();
}

void QueuePair::completed(uint64_t wr_id) {
  const auto sends = static_cast<uint32_t>(wr_id);
  under_way_ -= sends;
  nic_.send_done(sends);
}

}  // namespace railyard::verbs
