// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs/nic.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "transport/verbs/registration.h"

namespace railyard::verbs {
namespace {

constexpr uint32_t kReceives = 2048;
constexpr uint32_t kSends = 2048;
constexpr uint32_t kSendsPerQueuePair = 128;
constexpr uint32_t kReceiveBatch = 64;  // posted again together

void set_nonblocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

std::string list_of(std::span<const GidEntry> table) {
  std::string list;
  for (size_t i = 0; i < table.size(); ++i) {
    if (is_zero(table[i].bytes)) continue;
    list += (list.empty() ? "" : ", ") + std::to_string(i) + " (" + text_of(table[i].bytes) +
            (table[i].roce_version != 0 ? ", RoCE v" + std::to_string(table[i].roce_version) : "") +
            ")";
  }
  return list.empty() ? "no GID at all" : list;
}

}  // namespace

Result<std::unique_ptr<Nic>> Nic::open(const Library& library, const Options& options,
                                       const Port& port) {
  Result<Context> context = open_device(library, port.device);
  if (!context.ok()) return context.status();
  std::unique_ptr<Nic> nic(new Nic(library, options, port));
  nic->context_ = context.take();
  errno = 0;
  nic->pd_ = own<ProtectionDomain>(library, library.alloc_pd(nic->context()));
  if (!nic->pd_) return verbs_error(errno, "allocating a protection domain of " + port.text());
  if (Status status = nic->inspect(); !status.ok()) return status;
  return nic;
}

Status Nic::inspect() {
  ibv_device_attr device{};
  ibv_port_attr state{};
  int error = library_.query_device(context(), &device);
  if (error == 0) error = library_.query_port(context(), port_.number, &state);
  if (error != 0) return verbs_error(error, "asking " + port_.text() + " for its attributes");
  if (device.max_srq < 1)
    return Status::error(Code::kUnavailable,
                         "%s has no shared receive queues, which railyard needs: use another NIC "
                         "(NCCL_IB_HCA) or RAILYARD_TRANSPORT=tcp",
                         port_.text().c_str());
  if (options_.pkey_index >= state.pkey_tbl_len)
    return Status::error(Code::kUnavailable,
                         "NCCL_IB_PKEY=%u is no index of the P_Key table of %s, which has %u "
                         "entries",
                         options_.pkey_index, port_.text().c_str(), state.pkey_tbl_len);
  ethernet_ = state.link_layer == IBV_LINK_LAYER_ETHERNET;
  sends_per_queue_pair_ = std::min(kSendsPerQueuePair, static_cast<uint32_t>(device.max_qp_wr));
  receives_ = std::min(kReceives, static_cast<uint32_t>(device.max_srq_wr));
  const auto completions = static_cast<uint32_t>(device.max_cqe);
  if (completions < receives_ + kSends) receives_ = std::min(receives_, completions / 2);
  send_limit_ = std::min(kSends, completions - receives_);
  record_.name = "rail " + std::to_string(port_.rail) + " (" + port_.text() + ")";
  record_.link_layer = state.link_layer;
  record_.mtu = static_cast<uint8_t>(state.active_mtu);
  record_.lid = state.lid;
  return choose_gid(state);
}

Status Nic::choose_gid(const ibv_port_attr& state) {
  const auto table = read_gid_table(library_, context(), port_.device, port_.number,
                                    state.gid_tbl_len, options_.sysfs);
  gid_index_ = 0;
  if (ethernet_ && options_.gid_index >= 0) {
    gid_index_ = options_.gid_index;
  } else if (ethernet_ && !table.empty()) {
    GidPreference preference;
    preference.family = options_.address_family;
    preference.roce_version = options_.roce_version;
    preference.range = AddressRange::parse(options_.address_range, options_.address_family);
    gid_index_ = choose_roce_gid(table, preference);
  }
  const auto index = static_cast<size_t>(gid_index_);
  if (index >= table.size() || is_zero(table[index].bytes)) {
    return Status::error(Code::kUnavailable,
                         "GID index %d%s of %s is not in use; the port has %s: correct "
                         "NCCL_IB_GID_INDEX or give the interface an address",
                         gid_index_, options_.gid_index >= 0 ? " (NCCL_IB_GID_INDEX)" : "",
                         port_.text().c_str(), list_of(table).c_str());
  }
  record_.gid = table[index].bytes;
  roce_version_ = table[index].roce_version;
  if (ethernet_ && is_link_local(record_.gid))
    log::warn(
        "GID index %d of %s, %s, is link-local and reaches only its own subnet; the port has "
        "%s: give the interface an IPv4 address or set NCCL_IB_GID_INDEX",
        gid_index_, port_.text().c_str(), text_of(record_.gid).c_str(), list_of(table).c_str());
  return Status();
}

Status Nic::expose(const transport::Area& staging, const transport::Area& landing) {
  if (Status status = make_queues(); !status.ok()) return status;
  Result<MemoryRegion> from = register_area(library_, pd(), staging, false, options_,
                                            "staging memory with " + port_.text());
  if (!from.ok()) return from.status();
  Result<MemoryRegion> to =
      register_area(library_, pd(), landing, true, options_, "landing memory with " + port_.text());
  if (!to.ok()) return to.status();
  staging_ = from.take();
  landing_ = to.take();
  record_.landing_key = landing_->rkey;
  return Status();
}

Status Nic::make_queues() {
  errno = 0;
  channel_ = own<CompletionChannel>(library_, library_.create_comp_channel(context()));
  if (!channel_) return verbs_error(errno, "making a completion channel of " + port_.text());
  set_nonblocking(channel_->fd);
  set_nonblocking(context_->async_fd);
  cq_ = own<CompletionQueue>(
      library_, library_.create_cq(context(), static_cast<int>(receives_ + send_limit_), nullptr,
                                   channel_.get(), 0));
  if (!cq_) return verbs_error(errno, "making a completion queue of " + port_.text());
  ibv_srq_init_attr attributes{};
  attributes.attr.max_wr = receives_;
  attributes.attr.max_sge = 1;
  srq_ = own<SharedReceiveQueue>(library_, library_.create_srq(pd(), &attributes));
  if (!srq_) return verbs_error(errno, "making a shared receive queue of " + port_.text());
  return post_receives(receives_);
}

Status Nic::post_receives(uint32_t count) {
  // A write with immediate uses up a receive but none of its memory, so all are alike and empty.
  std::array<ibv_recv_wr, kReceiveBatch> batch{};
  while (count > 0) {
    const uint32_t now = std::min(count, kReceiveBatch);
    for (uint32_t i = 0; i < now; ++i) batch[i].next = i + 1 < now ? &batch[i + 1] : nullptr;
    ibv_recv_wr* refused = nullptr;
    if (const int error = ibv_post_srq_recv(srq(), batch.data(), &refused); error != 0)
      return verbs_error(error, "posting receives to " + port_.text());
    count -= now;
  }
  return Status();
}

void Nic::receive_used() {
  if (++receives_used_ < std::min(kReceiveBatch, receives_ / 2)) return;
  if (const Status status = post_receives(receives_used_); !status.ok())
    log::warn("%s: peers will have to wait", status.message().c_str());
  receives_used_ = 0;
}

int Nic::poll(std::span<ibv_wc> completions) {
  const int found = ibv_poll_cq(cq(), static_cast<int>(completions.size()), completions.data());
  if (found == 0 && abandoned_ > 0) {
    sends_ -= abandoned_;
    abandoned_ = 0;
  }
  return found;
}

Status Nic::arm() {
  if (const int error = ibv_req_notify_cq(cq(), 0); error != 0)
    return verbs_error(error, "asking for completion events of " + port_.text());
  armed_ = true;
  return Status();
}

void Nic::take_events() {
  ibv_cq* queue = nullptr;
  void* unused = nullptr;
  while (library_.get_cq_event(channel_.get(), &queue, &unused) == 0) {
    library_.ack_cq_events(queue, 1);
    armed_ = false;
  }
}

std::string Nic::describe() const {
  std::string text = port_.text() + " (";
  text += ethernet_ ? roce_version_ != 0 ? "RoCE v" + std::to_string(roce_version_) : "RoCE"
                    : std::string("InfiniBand");
  if (ethernet_) text += ", GID " + std::to_string(gid_index_) + " " + text_of(record_.gid);
  return text + ", MTU " + std::to_string(128 << record_.mtu) + ")";
}

}  // namespace railyard::verbs
