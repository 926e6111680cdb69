// SPDX-License-Identifier: Apache-2.0
// The CPU implementation of Compute: every operation runs as a host function of one CUDA stream,
// so that it takes its place among the transfers queued there.
#pragma once

#include <memory>

#include <cuda_runtime_api.h>

#include "compute.h"

namespace moe {

std::unique_ptr<Compute> make_cpu_compute(cudaStream_t stream);

}  // namespace moe
