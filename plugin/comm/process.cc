// SPDX-License-Identifier: Apache-2.0
#include "comm/process.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/interfaces.h"
#include "comm/gpu_facts.h"
#include "comm/transports.h"

namespace railyard::comm {
namespace {

constexpr const char* kBootIdFile = "/proc/sys/kernel/random/boot_id";
constexpr const char* kVersion = "0.1.0";
/// The data path works only if both ends have the same.
constexpr const char* kMustAgree[] = {"RAILYARD_TRANSPORT", "RAILYARD_COMMS", "RAILYARD_BUFFER_MB",
                                      "RAILYARD_CTAS", "RAILYARD_QPS"};

std::string host_name() {
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0) return "unknown host";
  return name;
}

/// The entry of a list for a device; one entry serves all. Null: the list is too short.
template <typename T>
const T* entry_for(const std::vector<T>& list, int device) {
  const size_t index = list.size() == 1 ? 0 : static_cast<size_t>(device);
  return index < list.size() ? &list[index] : nullptr;
}

}  // namespace

Result<net::SocketAddress> Process::address() const {
  const auto interfaces = net::list_interfaces();
  if (!interfaces.ok()) return interfaces.status();
  const auto chosen = net::choose_interface(*interfaces, nccl_);
  if (!chosen.ok()) return chosen.status();
  return chosen->address;
}

Result<net::SocketAddress> Process::data_address(int device) const {
  if (config_.tcp_interfaces.empty() || config_.transport != TransportKind::kTcp) return address();
  const auto interfaces = net::list_interfaces();
  if (!interfaces.ok()) return interfaces.status();
  const auto chosen = net::data_interface(*interfaces, config_.tcp_interfaces, device);
  if (!chosen.ok()) {
    return Status::error(chosen.status().code(), "RAILYARD_TCP_IFNAME: %s",
                         chosen.status().message().c_str());
  }
  return chosen->address;
}

Result<MeetingPoint> Process::new_meeting() {
  const std::lock_guard lock(mutex_);
  if (server_ == nullptr) {
    const auto at = address();
    if (!at.ok()) return at.status();
    auto started = MeetingServer::start(*at, meeting_options());
    if (!started.ok()) return started.status();
    server_ = started.take();
  }
  return server_->new_point();
}

MeetingServerOptions Process::meeting_options() const {
  MeetingServerOptions options;
  options.come_ms = config_.join_s * int64_t{1000};
  options.round_ms = 2 * options.come_ms;
  return options;
}

Status Process::open_rendezvous(const net::SocketAddress& at, const Secret& key) {
  const std::lock_guard lock(mutex_);
  if (rendezvous_ == nullptr) {
    MeetingServerOptions options = meeting_options();
    options.key = key;
    auto started = MeetingServer::start(at, options);
    if (!started.ok()) {
      return Status::error(started.status().code(),
                           "no rendezvous at %s: %s (RAILYARD_RENDEZVOUS names another place; it "
                           "must be on the host of rank 0)",
                           at.text().c_str(), started.status().message().c_str());
    }
    rendezvous_ = started.take();
  }
  rendezvous_->admit(key);
  return {};
}

Introduction Process::introduce(CUcontext context) {
  Introduction record;
  record.host_name = host_name();
  record.place.host = record.host_name;
  record.settings = {"version=" + std::string(kVersion)};
  for (const char* name : kMustAgree) {
    record.settings.push_back(std::string(name) + "=" + config_.values.at(name));
  }
  const Status status = fill(record, context);
  if (!status.ok()) record.trouble = status.message();
  return record;
}

Status Process::fill(Introduction& record, CUcontext context) {
  const auto server = new_meeting();
  if (!server.ok()) return server.status();
  record.server = *server;
  {
    const std::lock_guard lock(mutex_);
    if (!id_) {
      const auto id = make_secret();
      if (!id.ok()) return id.status();
      id_ = *id;
    }
    record.process = *id_;
  }
  const auto driver = device::Driver::get();
  if (!driver.ok()) return driver.status();
  if (context == nullptr) return Status(Code::kDeviceError, "there is no CUDA context");
  const auto facts = inspect_gpu(**driver, context);
  if (!facts.ok()) return facts.status();
  record.nvlink = facts->nvlink;
  record.fabric = facts->fabric;
  const Status placed = fill_place(record, facts->ordinal);
  if (!placed.ok()) return placed;
  const auto transport = find_transport(config_, nccl_, *facts);
  if (!transport.ok()) return transport.status();
  record.transport = transport->name;
  record.place.nics = transport->nics;
  record.place.nearest_nic = transport->nearest_nic;
  return {};
}

Status Process::fill_place(Introduction& record, int device) const {
  if (!config_.host_ids.empty()) {
    const std::string* id = entry_for(config_.host_ids, device);
    if (id == nullptr) {
      return Status::error(Code::kInvalidArgument,
                           "RAILYARD_HOSTID has no entry for CUDA device %d", device);
    }
    record.place.host = record.host_name = *id;
  } else if (const std::string id = nccl_.text("NCCL_HOSTID"); !id.empty()) {
    record.place.host = record.host_name = id;
  } else {
    std::string boot;
    std::getline(std::ifstream(kBootIdFile) >> std::ws, boot);
    record.place.host = record.host_name + " " + boot;
  }
  if (config_.rails.empty()) return {};
  const int* rail = entry_for(config_.rails, device);
  if (rail == nullptr) {
    return Status::error(Code::kInvalidArgument, "RAILYARD_RAILS has no entry for CUDA device %d",
                         device);
  }
  record.place.rail_override = *rail;
  return {};
}

Result<SharedGpu*> Process::gpu(CUcontext context) {
  const std::lock_guard lock(mutex_);
  const auto known = gpus_.find(context);
  if (known != gpus_.end()) return known->second.get();
  auto made = make_gpu(context);
  if (!made.ok()) return made.status();
  return gpus_.emplace(context, made.take()).first->second.get();
}

Result<std::unique_ptr<SharedGpu>> Process::make_gpu(CUcontext context) {
  const auto driver = device::Driver::get();
  if (!driver.ok()) return driver.status();
  const auto facts = inspect_gpu(**driver, context);
  if (!facts.ok()) return facts.status();
  const auto at = data_address(facts->ordinal);
  if (!at.ok()) return at.status();
  auto choice = make_transport(config_, nccl_, *facts, *at);
  if (!choice.ok()) return choice.status();
  exchange::GpuOptions options;
  options.pool_bytes = uint64_t{config_.buffer_mb} << 20;
  options.blocks = config_.ctas;
  auto gpu = exchange::Gpu::create(**driver, context, choice.take(), options);
  if (!gpu.ok()) return gpu.status();

  auto shared = std::make_unique<SharedGpu>();
  shared->gpu = gpu.take();
  const auto publish = [&](Pool& pool, const std::shared_ptr<device::Region>& region) -> Status {
    const auto id = make_secret();
    if (!id.ok()) return id.status();
    pool = {*id, region->kind(), region->bytes()};
    regions_.add(pool, shared->gpu->ordinal(), region);
    return {};
  };
  Status status = publish(shared->staging, shared->gpu->staging());
  if (status.ok()) status = publish(shared->landing, shared->gpu->landing());
  if (!status.ok()) return status;
  return shared;
}

}  // namespace railyard::comm
