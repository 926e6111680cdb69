// SPDX-License-Identifier: Apache-2.0
//
// The exchange kernel compiled for GPUs, as embedded in this build.
#pragma once

#include <cstddef>
#include <span>

namespace railyard::device {

/// What cuModuleLoadData is to load. Empty if the build had no nvcc; data() is then still a valid
/// address, of an image that no GPU loads (an emulated one looks kernels up by name and does).
std::span<const std::byte> kernel_image();

}  // namespace railyard::device
