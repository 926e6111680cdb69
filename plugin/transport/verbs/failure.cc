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

std::string event_meaning(const Library& library, const std::string& device,
                          const ibv_async_event& event, bool* link_lost) {
  *link_lost = false;
  const std::string head = device + ": " + library.event_type_str(event.event_type) + ": ";
  const auto port = [&] { return "port " + std::to_string(event.element.port_num); };
  switch (event.event_type) {
    case IBV_EVENT_PORT_ERR:
      return head + port() +
             " went down; transfers wait and fail when their retries are used up. "
             "Check cable, switch and interface";
    case IBV_EVENT_PORT_ACTIVE:
      return head + port() + " is up";
    case IBV_EVENT_GID_CHANGE:
      return head + "addresses of " + port() +
             " changed; links made before keep the old ones and "
             "fail if those are gone";
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
      return head + "the subnet manager changed " + port() + "; links made before may fail";
    case IBV_EVENT_DEVICE_FATAL:
      *link_lost = true;
      return head + "the device is out of order; all its links are lost. See the kernel's log";
    case IBV_EVENT_CQ_ERR:
      *link_lost = true;
      return head + "a completion queue overflowed, which must not happen: please report this";
    case IBV_EVENT_SRQ_ERR:
      *link_lost = true;
      return head + "the receive queue failed; all links of the device are lost";
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_PATH_MIG_ERR:
      *link_lost = true;
      return head + "a queue pair failed; its link is lost. See the kernel's log on both nodes";
    default:
      return head + "no harm is known to come of it";
  }
}

}  // namespace railyard::verbs
