// SPDX-License-Identifier: Apache-2.0
//
// Functions of NCCL 2.29 and 2.30, which the headers this is built with do not declare.
#pragma once

#include <cstddef>
#include <cstdint>

#include <nccl.h>

/// Every field up to multimem_support is filled; those after it for programs newer than 2.29.3.
struct CommProperties {
  size_t size;
  unsigned magic, version;
  int rank, ranks, cuda_device, nvml_device;
  bool device_api_support, multimem_support;
  int gin_type, lsa_teams;
  bool host_rma_support;
  int railed_gin_type;
};

extern "C" {

#define RY_NEWER(name, parameters) \
  ncclResult_t name parameters;    \
  ncclResult_t p##name parameters

RY_NEWER(ncclCommGetUniqueId, (ncclComm_t comm, ncclUniqueId* id));
RY_NEWER(ncclCommGrow, (ncclComm_t comm, int ranks, const ncclUniqueId* id, int rank,
                        ncclComm_t* newcomm, ncclConfig_t* config));
RY_NEWER(ncclCommSuspend, (ncclComm_t comm, int flags));
RY_NEWER(ncclCommResume, (ncclComm_t comm));
RY_NEWER(ncclCommMemStats, (ncclComm_t comm, int which, uint64_t* bytes));
RY_NEWER(ncclCommQueryProperties, (ncclComm_t comm, CommProperties* properties));
RY_NEWER(ncclWinGetUserPtr, (ncclComm_t comm, ncclWindow_t win, void** pointer));
RY_NEWER(ncclPutSignal, (const void* from, size_t count, ncclDataType_t type, int peer,
                         ncclWindow_t window, size_t offset, int signal, int context,
                         unsigned flags, ncclComm_t comm, cudaStream_t stream));
RY_NEWER(ncclSignal,
         (int peer, int signal, int context, unsigned flags, ncclComm_t comm, cudaStream_t stream));
RY_NEWER(ncclWaitSignal, (int count, void* descriptions, ncclComm_t comm, cudaStream_t stream));

#undef RY_NEWER

/// Has no second name.
void ncclResetDebugInitInternal();

}  // extern "C"
