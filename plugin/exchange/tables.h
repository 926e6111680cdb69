// SPDX-License-Identifier: Apache-2.0
//
// The tables a communicator's kernels read (kernels::CommTable and what it points to), built on
// the host and kept in device memory. Constant but for cursors and scratch.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "device/memory.h"
#include "exchange/gpu.h"
#include "exchange/segment.h"
#include "exchange/slots.h"
#include "topology/topology.h"

namespace railyard::exchange {

struct Mate;

struct TablesSetup {
  const topology::Topology& topology;
  const SlotPlan& plan;
  const Segment& layout;
  const device::Region& segment;
  std::span<const Mate> mates;  ///< by local index
  int rank;
};

/// Builds and uploads; the CommTable is at the region's start. Needs the context current.
Result<std::unique_ptr<device::Region>> make_tables(const Gpu& gpu, const TablesSetup& setup);

}  // namespace railyard::exchange
