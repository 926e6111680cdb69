// SPDX-License-Identifier: Apache-2.0
#include "comm/gpu_facts.h"

#include "comm/nvml.h"

namespace railyard::comm {
namespace {

/// NVLink is what lets two GPUs do atomics on each other's memory natively.
bool nvlink_to_any(const device::Driver& driver, CUdevice device, int count) {
  for (int i = 0; i < count; ++i) {
    CUdevice other = 0;
    int native = 0;
    if (driver.cuDeviceGet(&other, i) != CUDA_SUCCESS || other == device) continue;
    if (driver.cuDeviceGetP2PAttribute(&native, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED,
                                       device, other) == CUDA_SUCCESS &&
        native != 0) {
      return true;
    }
  }
  return false;
}

int attribute(const device::Driver& driver, CUdevice_attribute which, CUdevice device) {
  int value = 0;
  return driver.cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS ? value : 0;
}

}  // namespace

Result<GpuFacts> inspect_gpu(const device::Driver& driver, CUcontext context) {
  const device::ContextScope scope(driver, context);
  GpuFacts facts;
  CUdevice device = 0;
  char pci[32] = {};
  Status status = driver.check(driver.cuCtxGetDevice(&device), "cuCtxGetDevice");
  if (status.ok()) {
    status =
        driver.check(driver.cuDeviceGetPCIBusId(pci, sizeof pci, device), "cuDeviceGetPCIBusId");
  }
  if (status.ok()) status = driver.check(driver.cuDeviceGetCount(&facts.count), "cuDeviceGetCount");
  if (!status.ok()) return status;
  facts.ordinal = device;
  facts.pci = pci;
  const NvmlFacts nvml = ask_nvml(facts.pci);
  facts.fabric = nvml.fabric;
  facts.nvlink = facts.count > 1 ? nvlink_to_any(driver, device, facts.count) : nvml.nvlink;
  facts.dmabuf = attribute(driver, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, device) != 0;
  facts.compute = 10 * attribute(driver, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) +
                  attribute(driver, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
  return facts;
}

Result<CUcontext> context_of_device(const device::Driver& driver, int device) {
  CUcontext context = nullptr;
  Status status = driver.check(driver.cuCtxGetCurrent(&context), "cuCtxGetCurrent");
  CUdevice wanted = 0, current = 0;
  if (status.ok()) status = driver.check(driver.cuDeviceGet(&wanted, device), "cuDeviceGet");
  if (!status.ok()) return status;
  if (context != nullptr && driver.cuCtxGetDevice(&current) == CUDA_SUCCESS && current == wanted) {
    return context;
  }
  status =
      driver.check(driver.cuDevicePrimaryCtxRetain(&context, wanted), "cuDevicePrimaryCtxRetain");
  if (!status.ok()) return status;
  return context;
}

Result<CUcontext> context_of_caller(const device::Driver& driver) {
  CUcontext context = nullptr;
  const Status status = driver.check(driver.cuCtxGetCurrent(&context), "cuCtxGetCurrent");
  if (!status.ok()) return status;
  if (context != nullptr) return context;
  return context_of_device(driver, 0);
}

}  // namespace railyard::comm
