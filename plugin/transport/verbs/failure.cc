// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs/failure.h"

#include <cmath>
#include <cstdio>

namespace railyard::verbs {
namespace {

std::string patience(const Options& options) {
  if (options.timeout == 0) return "";
  char text[96];
  std::snprintf(text, sizeof(text), " after %u retries of %.3g s or more", options.retry_count,
                4.096e-6 * std::ldexp(1.0, options.timeout));
  return text;
}

std::string remedy(const Nic& nic, ibv_wc_status status) {
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
      return patience(nic.options()) +
             ": check that the peer is alive and that cable, switch, routes and lossless settings "
             "of this rail are in order; NCCL_IB_TIMEOUT and NCCL_IB_RETRY_CNT set the patience";
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return ": the peer posted no receives; it may be overloaded";
    case IBV_WC_WR_FLUSH_ERR:
      return ": the queue pair was stopped; see the device's event or the first failure, and check "
             "the port and its cable";
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
      return ": the peer's NIC refused the write; run the same version of railyard everywhere";
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_QP_OP_ERR:
      return ": this NIC could not read staging memory or lost its port; see the kernel's log";
    default:
      return ": see the kernel's log on both nodes";
  }
}

}  // namespace

Status unreachable(const std::string& peer, const Status& why) {
  return Status::error(Code::kRemoteError,
                       "cannot exchange queue pairs with %s: %s; check that its process lives and "
                       "that no firewall is between (NCCL_SOCKET_IFNAME chooses the interface)",
                       peer.c_str(), why.message().c_str());
}

Status lost(const std::string& peer, const Status& why) {
  return Status::error(Code::kRemoteError,
                       "lost the connection to %s: %s without a goodbye; see whether its process "
                       "died and what it logged last",
                       peer.c_str(), why.message().c_str());
}

Status completion_failure(const std::string& peer, const Nic& nic, const NicRecord& peer_nic,
                          const ibv_wc& completion) {
  const GidBytes& gid = nic.record().gid;
  const bool local = nic.ethernet() && (is_link_local(gid) || is_link_local(peer_nic.gid));
  return Status::error(
      Code::kRemoteError,
      "RDMA from %s, GID index %d %s, to %s, %s, GID %s, failed: %s (status %d, vendor error "
      "0x%x)%s%s",
      nic.record().name.c_str(), nic.gid_index(), text_of(gid).c_str(), peer.c_str(),
      peer_nic.name.c_str(), text_of(peer_nic.gid).c_str(),
      nic.library().wc_status_str(completion.status), static_cast<int>(completion.status),
      completion.vendor_err, remedy(nic, completion.status).c_str(),
      local ? "; a link-local GID reaches no further than its own subnet (NCCL_IB_GID_INDEX)" : "");
}

}  // namespace railyard::verbs
