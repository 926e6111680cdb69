// SPDX-License-Identifier: Apache-2.0
//
// A libnccl.so.2 that does nothing, so that what is measured is the way to it.
#include <cstring>

#include <nccl.h>

#define RY_EMPTY(name, ...)                                                         \
  extern "C" __attribute__((visibility("default"))) ncclResult_t name(__VA_ARGS__); \
  ncclResult_t name(__VA_ARGS__) { return ncclSuccess; }

RY_EMPTY(ncclGroupStart)
RY_EMPTY(ncclGroupEnd)
RY_EMPTY(ncclSend, const void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t)
RY_EMPTY(ncclRecv, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t)
RY_EMPTY(ncclAlltoAll, const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t)
RY_EMPTY(ncclAllReduce, const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
         cudaStream_t)
RY_EMPTY(ncclCommGetAsyncError, ncclComm_t, ncclResult_t*)

extern "C" __attribute__((visibility("default"))) ncclResult_t ncclGetVersion(int* version);
ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return ncclSuccess;
}
