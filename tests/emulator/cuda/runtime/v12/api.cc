// SPDX-License-Identifier: Apache-2.0
//
// Exported functions whose shape is that of CUDA 12, declared here by hand: the headers at hand are
// those of CUDA 13.
#include "properties.h"

using namespace railyard::emulator;  // NOLINT: a file of exports only

namespace {

/// cudaDeviceProp as programs built with CUDA 12 know it.
struct DeviceProperties {
  char name[256];
  CUuuid uuid;
  char luid[8];
  unsigned luidDeviceNodeMask;
  size_t totalGlobalMem, sharedMemPerBlock;
  int regsPerBlock, warpSize;
  size_t memPitch;
  int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], clockRate;
  size_t totalConstMem;
  int major, minor;
  size_t textureAlignment, texturePitchAlignment;
  int deviceOverlap, multiProcessorCount, kernelExecTimeoutEnabled, integrated, canMapHostMemory,
      computeMode, maxTexture1D, maxTexture1DMipmap, maxTexture1DLinear, maxTexture2D[2],
      maxTexture2DMipmap[2], maxTexture2DLinear[3], maxTexture2DGather[2], maxTexture3D[3],
      maxTexture3DAlt[3], maxTextureCubemap, maxTexture1DLayered[2], maxTexture2DLayered[3],
      maxTextureCubemapLayered[2], maxSurface1D, maxSurface2D[2], maxSurface3D[3],
      maxSurface1DLayered[2], maxSurface2DLayered[3], maxSurfaceCubemap,
      maxSurfaceCubemapLayered[2];
  size_t surfaceAlignment;
  int concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID, tccDriver,
      asyncEngineCount, unifiedAddressing, memoryClockRate, memoryBusWidth, l2CacheSize,
      persistingL2CacheMaxSize, maxThreadsPerMultiProcessor, streamPrioritiesSupported,
      globalL1CacheSupported, localL1CacheSupported;
  size_t sharedMemPerMultiprocessor;
  int regsPerMultiprocessor, managedMemory, isMultiGpuBoard, multiGpuBoardGroupID,
      hostNativeAtomicSupported, singleToDoublePrecisionPerfRatio, pageableMemoryAccess,
      concurrentManagedAccess, computePreemptionSupported, canUseHostPointerForRegisteredMem,
      cooperativeLaunch, cooperativeMultiDeviceLaunch;
  size_t sharedMemPerBlockOptin;
  int pageableMemoryAccessUsesHostPageTables, directManagedMemAccessFromHost,
      maxBlocksPerMultiProcessor, accessPolicyMaxWindowSize;
  size_t reservedSharedMemPerBlock;
  int hostRegisterSupported, sparseCudaArraySupported, hostRegisterReadOnlySupported,
      timelineSemaphoreInteropSupported, memoryPoolsSupported, gpuDirectRDMASupported;
  unsigned gpuDirectRDMAFlushWritesOptions;
  int gpuDirectRDMAWritesOrdering;
  unsigned memoryPoolSupportedHandleTypes;
  int deferredMappingCudaArraySupported, ipcEventSupported, clusterLaunch, unifiedFunctionPointers,
      reserved[63];
};
static_assert(sizeof(DeviceProperties) == 1032);
static_assert(offsetof(DeviceProperties, multiProcessorCount) == 388);
static_assert(offsetof(DeviceProperties, pciBusID) == 584);
static_assert(offsetof(DeviceProperties, memoryPoolSupportedHandleTypes) == 760);

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceProperties_v2(DeviceProperties*, int);
cudaError_t capture_info_v1(cudaStream_t, cudaStreamCaptureStatus*,
                            unsigned long long*) __asm__("cudaStreamGetCaptureInfo");
cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t, cudaStreamCaptureStatus*, unsigned long long*,
                                        cudaGraph_t*, const cudaGraphNode_t**, size_t*);
cudaError_t cudaStreamGetCaptureInfo_v3(cudaStream_t, cudaStreamCaptureStatus*, unsigned long long*,
                                        cudaGraph_t*, const cudaGraphNode_t**,
                                        const cudaGraphEdgeData**, size_t*);
cudaError_t update_dependencies_v1(cudaStream_t, cudaGraphNode_t*, size_t,
                                   unsigned) __asm__("cudaStreamUpdateCaptureDependencies");
cudaError_t cudaStreamUpdateCaptureDependencies_v2(cudaStream_t, cudaGraphNode_t*,
                                                   const cudaGraphEdgeData*, size_t, unsigned);

cudaError_t cudaGetDeviceProperties_v2(DeviceProperties* properties, int device) {
  return with_driver([&]() -> CUresult {
    CUresult code = describe_device(properties, device);
    if (code != CUDA_SUCCESS) return code;
    properties->clockRate = attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE, device);
    properties->memoryClockRate = attribute(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, device);
    properties->deviceOverlap = attribute(CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, device);
    return CUDA_SUCCESS;
  });
}

cudaError_t capture_info_v1(cudaStream_t stream, cudaStreamCaptureStatus* status,
                            unsigned long long* id) {
  return capture_info(stream, status, id, nullptr, nullptr, nullptr, nullptr);
}

cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                        unsigned long long* id, cudaGraph_t* graph,
                                        const cudaGraphNode_t** dependencies, size_t* count) {
  return capture_info(stream, status, id, graph, dependencies, nullptr, count);
}

cudaError_t cudaStreamGetCaptureInfo_v3(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                        unsigned long long* id, cudaGraph_t* graph,
                                        const cudaGraphNode_t** dependencies,
                                        const cudaGraphEdgeData** edges, size_t* count) {
  return capture_info(stream, status, id, graph, dependencies, edges, count);
}

cudaError_t update_dependencies_v1(cudaStream_t stream, cudaGraphNode_t* nodes, size_t count,
                                   unsigned flags) {
  return update_dependencies(stream, nodes, count, flags);
}

cudaError_t cudaStreamUpdateCaptureDependencies_v2(cudaStream_t stream, cudaGraphNode_t* nodes,
                                                   const cudaGraphEdgeData*, size_t count,
                                                   unsigned flags) {
  return update_dependencies(stream, nodes, count, flags);
}

}  // extern "C"
