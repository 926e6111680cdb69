// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs/registration.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "transport/verbs/ports.h"

namespace railyard::verbs {
namespace {

bool has_peer_memory(const std::string& sysfs) {
  for (const char* file :
       {"/kernel/mm/memory_peers/nv_mem/version", "/kernel/mm/memory_peers/nv_mem_nc/version",
        "/module/nvidia_peermem/version"})
    if (access((sysfs + file).c_str(), F_OK) == 0) return true;
  return false;
}

/// Empty if the NIC's driver registers dma-bufs, else why not.
std::string dmabuf_refusal(const Library& library, ibv_pd* pd, const Options& options) {
  if (!options.dmabuf) return "dma-buf is switched off by NCCL_DMABUF_ENABLE";
  if (!options.gpu_dmabuf) return "the GPU's driver exports no dma-buf";
  if (library.reg_dmabuf_mr == nullptr)
    return "libibverbs has no ibv_reg_dmabuf_mr (rdma-core 34 or newer has)";
  // A driver that knows dma-bufs complains about the descriptor, another about the request.
  errno = 0;
  ibv_mr* region = library.reg_dmabuf_mr(pd, 0, 0, 0, -1, 0);
  const int error = errno;
  if (region != nullptr) library.dereg_mr(region);
  if (error != EOPNOTSUPP && error != EPROTONOSUPPORT) return "";
  return std::string("the NIC's driver registers no dma-buf (") + std::strerror(error) + ")";
}

bool may_read_gpu(const Options& options) {
  return options.gdr_read == -2 ? options.gpu_compute >= 80 : options.gdr_read == 1;
}

}  // namespace

const char* name_of(MemoryPath path) {
  switch (path) {
    case MemoryPath::kHost:
      return "host memory";
    case MemoryPath::kPeerMemory:
      return "GPU memory (peer memory)";
    case MemoryPath::kDmabuf:
      return "GPU memory (dma-buf)";
  }
  return "?";
}

MemoryChoice choose_memory(const Library& library, ibv_pd* pd, const Options& options,
                           Distance distance) {
  MemoryChoice choice;
  if (options.gpu_compute == 0) {
    choice.why_not_better = "there is no GPU";
    return choice;
  }
  if (distance > options.gdr_level) {
    choice.why_not_better = "the NIC is farther from the GPU than NCCL_NET_GDR_LEVEL allows";
    return choice;
  }
  choice.why_not_better = dmabuf_refusal(library, pd, options);
  if (choice.why_not_better.empty()) {
    choice.path = MemoryPath::kDmabuf;
  } else if (has_peer_memory(options.sysfs)) {
    choice.path = MemoryPath::kPeerMemory;
  } else {
    choice.why_not_better += ", and the module nvidia_peermem is not loaded";
    return choice;
  }
  choice.landing_on_gpu = true;
  choice.staging_on_gpu = may_read_gpu(options);
  return choice;
}

MemoryChoice worse_of(const MemoryChoice& a, const MemoryChoice& b) {
  return a.path <= b.path ? a : b;
}

uint64_t address_of(const transport::Area& area) {
  return area.host != nullptr ? reinterpret_cast<uintptr_t>(area.host) : area.device;
}

Result<MemoryRegion> register_area(const Library& library, ibv_pd* pd, const transport::Area& area,
                                   bool remote, const Options& options, const std::string& what) {
  int access = IBV_ACCESS_LOCAL_WRITE;
  if (remote) access |= IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  const bool relaxed = options.relaxed_ordering && library.reg_mr_iova2 != nullptr;
  if (relaxed) access |= IBV_ACCESS_RELAXED_ORDERING;
  const uint64_t address = address_of(area);
  const bool dmabuf = area.host == nullptr && area.dmabuf_fd >= 0;
  ibv_mr* region = nullptr;
  errno = 0;
  if (dmabuf && library.reg_dmabuf_mr != nullptr) {
    region = library.reg_dmabuf_mr(pd, 0, area.bytes, address, area.dmabuf_fd, access);
  } else if (relaxed) {
    region = library.reg_mr_iova2(pd, reinterpret_cast<void*>(address), area.bytes, address,
                                  static_cast<unsigned>(access));
  } else {
    region = library.reg_mr(pd, reinterpret_cast<void*>(address), area.bytes, access);
  }
  if (region != nullptr) return own<MemoryRegion>(library, region);
  const int error = errno;
  std::string remedy;
  if (area.host == nullptr)
    remedy = dmabuf ? " by its dma-buf (NCCL_DMABUF_ENABLE=0 avoids it)"
                    : " by its GPU address (is nvidia_peermem loaded? NCCL_NET_GDR_LEVEL=LOC "
                      "avoids it)";
  return verbs_error(error,
                     "registering " + std::to_string(area.bytes) + " bytes of " + what + remedy);
}

}  // namespace railyard::verbs
