// SPDX-License-Identifier: Apache-2.0
//
// The CUDA driver API, found at run time. The table holds exactly the functions railyard calls,
// each under the exported name whose signature it was written for (CUDA 11.7 to 13).
//
// Only this room includes cuda.h; other rooms see the opaque names below.
#pragma once

#include <string>

#include <cuda.h>

#include "base/status.h"

namespace railyard::device {

// clang-format off
#define RY_DRIVER_FUNCTIONS(X)                                                                    \
  X(cuInit, "cuInit", (unsigned))                                                                 \
  X(cuGetErrorString, "cuGetErrorString", (CUresult, const char**))                               \
  X(cuDeviceGet, "cuDeviceGet", (CUdevice*, int))                                                 \
  X(cuDeviceGetCount, "cuDeviceGetCount", (int*))                                                 \
  X(cuDeviceGetAttribute, "cuDeviceGetAttribute", (int*, CUdevice_attribute, CUdevice))           \
  X(cuDeviceGetPCIBusId, "cuDeviceGetPCIBusId", (char*, int, CUdevice))                           \
  X(cuDeviceGetP2PAttribute, "cuDeviceGetP2PAttribute",                                           \
    (int*, CUdevice_P2PAttribute, CUdevice, CUdevice))                                            \
  X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (CUcontext*, CUdevice))                 \
  X(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", (CUdevice))                        \
  X(cuCtxGetCurrent, "cuCtxGetCurrent", (CUcontext*))                                             \
  X(cuCtxPushCurrent, "cuCtxPushCurrent_v2", (CUcontext))                                         \
  X(cuCtxPopCurrent, "cuCtxPopCurrent_v2", (CUcontext*))                                          \
  X(cuCtxGetDevice, "cuCtxGetDevice", (CUdevice*))                                                \
  X(cuModuleLoadData, "cuModuleLoadData", (CUmodule*, const void*))                               \
  X(cuModuleUnload, "cuModuleUnload", (CUmodule))                                                 \
  X(cuModuleGetFunction, "cuModuleGetFunction", (CUfunction*, CUmodule, const char*))             \
  X(cuLaunchKernel, "cuLaunchKernel",                                                             \
    (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,  \
     void**, void**))                                                                             \
  X(cuStreamCreate, "cuStreamCreate", (CUstream*, unsigned))                                      \
  X(cuStreamDestroy, "cuStreamDestroy_v2", (CUstream))                                            \
  X(cuStreamSynchronize, "cuStreamSynchronize", (CUstream))                                       \
  X(cuStreamWaitEvent, "cuStreamWaitEvent", (CUstream, CUevent, unsigned))                        \
  X(cuStreamGetCaptureInfo, "cuStreamGetCaptureInfo_v2",                                          \
    (CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*, const CUgraphNode**, size_t*))      \
  X(cuLaunchHostFunc, "cuLaunchHostFunc", (CUstream, CUhostFn, void*))                            \
  X(cuUserObjectCreate, "cuUserObjectCreate",                                                     \
    (CUuserObject*, void*, CUhostFn, unsigned, unsigned))                                         \
  X(cuUserObjectRelease, "cuUserObjectRelease", (CUuserObject, unsigned))                         \
  X(cuGraphRetainUserObject, "cuGraphRetainUserObject",                                           \
    (CUgraph, CUuserObject, unsigned, unsigned))                                                  \
  X(cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode",                       \
    (CUstreamCaptureMode*))                                                                       \
  X(cuEventCreate, "cuEventCreate", (CUevent*, unsigned))                                         \
  X(cuEventDestroy, "cuEventDestroy_v2", (CUevent))                                               \
  X(cuEventRecord, "cuEventRecord", (CUevent, CUstream))                                          \
  X(cuEventRecordWithFlags, "cuEventRecordWithFlags", (CUevent, CUstream, unsigned))              \
  X(cuEventQuery, "cuEventQuery", (CUevent))                                                      \
  X(cuEventSynchronize, "cuEventSynchronize", (CUevent))                                          \
  X(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2", (CUdeviceptr, const void*, size_t, CUstream))      \
  X(cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", (void*, CUdeviceptr, size_t, CUstream))            \
  X(cuMemHostRegister, "cuMemHostRegister_v2", (void*, size_t, unsigned))                         \
  X(cuMemHostUnregister, "cuMemHostUnregister", (void*))                                          \
  X(cuMemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2", (CUdeviceptr*, void*, unsigned))   \
  X(cuPointerGetAttributes, "cuPointerGetAttributes",                                             \
    (unsigned, CUpointer_attribute*, void**, CUdeviceptr))                                        \
  X(cuMemCreate, "cuMemCreate",                                                                   \
    (CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*, unsigned long long))      \
  X(cuMemRelease, "cuMemRelease", (CUmemGenericAllocationHandle))                                 \
  X(cuMemAddressReserve, "cuMemAddressReserve",                                                   \
    (CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long))                              \
  X(cuMemAddressFree, "cuMemAddressFree", (CUdeviceptr, size_t))                                  \
  X(cuMemMap, "cuMemMap",                                                                         \
    (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long))              \
  X(cuMemUnmap, "cuMemUnmap", (CUdeviceptr, size_t))                                              \
  X(cuMemSetAccess, "cuMemSetAccess",                                                             \
    (CUdeviceptr, size_t, const CUmemAccessDesc*, size_t))                                        \
  X(cuMemGetAllocationGranularity, "cuMemGetAllocationGranularity",                               \
    (size_t*, const CUmemAllocationProp*, CUmemAllocationGranularity_flags))                      \
  X(cuMemExportToShareableHandle, "cuMemExportToShareableHandle",                                 \
    (void*, CUmemGenericAllocationHandle, CUmemAllocationHandleType, unsigned long long))         \
  X(cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle",                             \
    (CUmemGenericAllocationHandle*, void*, CUmemAllocationHandleType))

/// Absent from older drivers; null then.
#define RY_DRIVER_OPTIONAL_FUNCTIONS(X)                                                           \
  X(cuMemGetHandleForAddressRange, "cuMemGetHandleForAddressRange",                               \
    (void*, CUdeviceptr, size_t, CUmemRangeHandleType, unsigned long long))
// clang-format on

struct Driver {
#define RY_MEMBER(member, symbol, signature) CUresult(*member) signature = nullptr;
  RY_DRIVER_FUNCTIONS(RY_MEMBER)
  RY_DRIVER_OPTIONAL_FUNCTIONS(RY_MEMBER)
#undef RY_MEMBER

  /// libcuda.so.1, loaded once per process and initialised. Fails, naming what is missing, on
  /// machines without a driver or GPU. Thread-safe; the table lives as long as the process.
  static Result<const Driver*> get();

  /// ok for CUDA_SUCCESS, else kDeviceError: "<what>: <driver's text>".
  Status check(CUresult result, const std::string& what) const;
};

/// Makes `context` current for a scope and capture-safe calls legal in it (relaxed mode), then
/// restores both. A context that cannot be made current leaves the scope without effect: the calls
/// in it report the failure.
class ContextScope {
 public:
  ContextScope(const Driver& driver, CUcontext context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  const Driver& driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool pushed_ = false, relaxed_ = false;  ///< what there is to undo
};

}  // namespace railyard::device
