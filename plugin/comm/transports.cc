// SPDX-License-Identifier: Apache-2.0
#include "comm/transports.h"

#include "transport/tcp/tcp_transport.h"
#include "transport/verbs/verbs_transport.h"

namespace railyard::comm {
namespace {

verbs::Options verbs_options(const Config& config, const NcclEnv& nccl, const GpuFacts& gpu) {
  verbs::Options options = verbs::options_from([&](const char* name) -> const char* {
    const auto own = config.values.find(name);
    return own != config.values.end() ? own->second.c_str() : nccl.find(name);
  });
  options.gpu_pci = gpu.pci;
  options.gpu_index = gpu.ordinal;
  options.gpu_count = gpu.count;
  options.gpu_dmabuf = gpu.dmabuf;
  options.gpu_compute = gpu.compute;
  options.connect_timeout_ms = static_cast<int>(config.join_s) * 1000;
  return options;
}

device::MemoryKind kind_of(bool on_gpu) {
  return on_gpu ? device::MemoryKind::kDevice : device::MemoryKind::kHost;
}

}  // namespace

Result<UsableTransport> find_transport(const Config& config, const NcclEnv& nccl,
                                       const GpuFacts& gpu) {
  if (config.transport == TransportKind::kTcp) return UsableTransport{"tcp", {}, -1};
  const auto survey = verbs::survey(verbs_options(config, nccl, gpu));
  if (!survey.ok()) {
    return Status::error(survey.status().code(),
                         "no RDMA transport: %s (RAILYARD_TRANSPORT=tcp does without)",
                         survey.status().message().c_str());
  }
  UsableTransport found{"verbs", {}, survey->nearest()};
  for (const auto& nic : survey->nics) found.nics.push_back(nic.place);
  return found;
}

Result<exchange::TransportChoice> make_transport(const Config& config, const NcclEnv& nccl,
                                                 const GpuFacts& gpu,
                                                 const net::SocketAddress& at) {
  exchange::TransportChoice choice;
  if (config.transport == TransportKind::kTcp) {
    transport::TcpOptions options;
    options.bind = at;
    auto made = transport::make_tcp(options);
    if (!made.ok()) return made.status();
    choice.transport = made.take();
    return choice;
  }
  verbs::Options options = verbs_options(config, nccl, gpu);
  options.bootstrap = at;
  const auto survey = verbs::survey(options);
  if (!survey.ok()) return survey.status();
  auto made = transport::make_verbs(options);
  if (!made.ok()) return made.status();
  choice.transport = made.take();
  choice.staging = kind_of(survey->staging_on_gpu);
  choice.landing = kind_of(survey->landing_on_gpu);
  return choice;
}

}  // namespace railyard::comm
