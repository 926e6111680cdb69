// SPDX-License-Identifier: Apache-2.0
//
// Modules and kernels. Any image loads; what it holds is the set of kernels compiled for the CPU.
// Libraries (cuLibrary*) are modules of no context. Thread-safe.
#pragma once

#include <cuda.h>

#include "context.h"
#include "kernels/host_kernels.h"

namespace railyard::emulator {

/// `context` null: a library.
CUresult load_module(const Context* context, const void* image, CUmodule* module);
CUresult unload_module(CUmodule module);
CUresult get_function(CUmodule module, const char* name, CUfunction* function);
/// Null if there is no such function.
const kernels::HostKernel* find_function(CUfunction function);

struct Grid {
  unsigned x, y, z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
};

CUresult launch(CUfunction function, const Grid& grid, StreamObject& stream, void** parameters,
                void** extra);

}  // namespace railyard::emulator
