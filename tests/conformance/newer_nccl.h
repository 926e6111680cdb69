// SPDX-License-Identifier: Apache-2.0
//
// NCCL's functions that are younger than the oldest NCCL we run with: a program that names one is
// to start with any NCCL, and finds it null where it is lacking.
#pragma once

#include <nccl.h>

#pragma weak ncclGetLastError
#pragma weak ncclCommInitRankConfig
#pragma weak ncclCommFinalize
#pragma weak ncclCommSplit
#pragma weak ncclMemAlloc
#pragma weak ncclMemFree
#pragma weak ncclCommRegister
#pragma weak ncclCommDeregister
#pragma weak ncclGroupSimulateEnd
#pragma weak ncclCommInitRankScalable
#pragma weak ncclResetDebugInit
#pragma weak ncclCommShrink
#pragma weak ncclCommWindowRegister
#pragma weak ncclCommWindowDeregister
#pragma weak ncclAlltoAll
#pragma weak ncclGather
#pragma weak ncclScatter
#pragma weak ncclCommRevoke

extern "C" {
// Headers of NCCL 2.28 do not have these.
[[gnu::weak]] ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId* id);
[[gnu::weak]] ncclResult_t ncclCommGrow(ncclComm_t comm, int ranks, const ncclUniqueId* id,
                                        int rank, ncclComm_t* grown, ncclConfig_t* config);
[[gnu::weak]] ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags);
[[gnu::weak]] ncclResult_t ncclCommResume(ncclComm_t comm);
}
