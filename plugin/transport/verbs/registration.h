// SPDX-License-Identifier: Apache-2.0
//
// Where staging and landing memory should be, and making it known to a NIC.
//
// The best way is GPU memory through a dma-buf; next is GPU memory through the kernel's peer-memory
// interface; where neither works the NIC writes to host memory and the GPU reads it over PCIe.
#pragma once

#include <string>

#include "base/status.h"
#include "transport/transport.h"
#include "transport/verbs/handles.h"
#include "transport/verbs/options.h"

namespace railyard::verbs {

enum class MemoryPath : uint8_t { kHost, kPeerMemory, kDmabuf };
const char* name_of(MemoryPath path);

struct MemoryChoice {
  bool staging_on_gpu = false, landing_on_gpu = false;
  MemoryPath path = MemoryPath::kHost;
  std::string why_not_better;  ///< empty: this is the best there is
};

/// What `pd`'s NIC can do with the GPU of `options`, which is `distance` away.
MemoryChoice choose_memory(const Library& library, ibv_pd* pd, const Options& options,
                           Distance distance);
/// Of two NICs that serve one pool: what both can do.
MemoryChoice worse_of(const MemoryChoice& a, const MemoryChoice& b);

/// Registers all of `area`, which must outlive the result: host memory by its CPU address, GPU
/// memory by its dma-buf if it has one, else by its GPU address (peer memory). `what` says what
/// it is in messages: "landing memory with mlx5_0 port 1".
Result<MemoryRegion> register_area(const Library& library, ibv_pd* pd, const transport::Area& area,
                                   bool remote, const Options& options, const std::string& what);
/// The address by which the NIC knows the start of `area`.
uint64_t address_of(const transport::Area& area);

}  // namespace railyard::verbs
