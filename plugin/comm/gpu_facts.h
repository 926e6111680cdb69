// SPDX-License-Identifier: Apache-2.0
//
// What a rank says of its GPU.
#pragma once

#include <string>

#include "base/status.h"
#include "device/driver.h"

namespace railyard::comm {

struct GpuFacts {
  int ordinal = 0, count = 1;  ///< which of the CUDA devices of this process
  std::string pci;
  bool nvlink = false;  ///< to another GPU of the node
  std::string fabric;   ///< NVLink clique that may span hosts; empty: none
  bool dmabuf = false;  ///< the driver exports its memory as dma-bufs
  int compute = 0;      ///< compute capability, 90 for sm_90
};

/// Of the GPU that `context` belongs to.
Result<GpuFacts> inspect_gpu(const device::Driver& driver, CUcontext context);

/// The current context if it is the device's, else the device's primary context, which then stays
/// for the life of the process.
Result<CUcontext> context_of_device(const device::Driver& driver, int device);

/// The calling thread's context; where it has none yet, the primary context of device 0, as a
/// program that never chose a device would get. That context then stays for the life of the
/// process.
Result<CUcontext> context_of_caller(const device::Driver& driver);

}  // namespace railyard::comm
