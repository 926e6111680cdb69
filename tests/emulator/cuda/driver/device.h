// SPDX-License-Identifier: Apache-2.0
//
// The emulated GPUs: how many, what they call themselves and what they say they can do.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include <cuda.h>

namespace railyard::emulator {

inline constexpr int kDriverVersion = 13000;
inline constexpr size_t kTotalMemory = size_t{16} << 30;
inline constexpr const char* kDeviceName = "Emulated GPU";
inline constexpr int kGreatestPriority = -5;

int device_count();
bool is_device(CUdevice device);
/// Identity in the PCI tree, unlike that of any other device of the same or another node.
struct PciAddress {
  unsigned domain, bus, device;
};
PciAddress pci_address(CUdevice device);
std::string pci_bus_id(CUdevice device);
CUuuid device_uuid(CUdevice device);
/// CUDA_ERROR_INVALID_VALUE for an unknown attribute. What CUDA has and is of no interest here is
/// 0.
CUresult device_attribute(CUdevice_attribute attribute, CUdevice device, int* value);

}  // namespace railyard::emulator
