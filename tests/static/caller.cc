// SPDX-License-Identifier: Apache-2.0
//
// A library that calls NCCL without saying which library that is in, to be loaded by the probe.
#include <nccl.h>

#define RY_PUBLIC extern "C" __attribute__((visibility("default")))

extern "C" {
[[gnu::weak]] ncclResult_t ncclSend(const void*, size_t, ncclDataType_t, int, ncclComm_t,
                                    cudaStream_t);
[[gnu::weak]] ncclResult_t ncclCommResume(ncclComm_t);
}

RY_PUBLIC int call_group_start();
RY_PUBLIC int call_group_end();
RY_PUBLIC int has_send();
RY_PUBLIC int has_resume();

int call_group_start() { return ncclGroupStart(); }
int call_group_end() { return ncclGroupEnd(); }

// Both are weak: null where NCCL lacks them.
int has_send() { return ncclSend != nullptr ? 1 : 0; }
int has_resume() { return ncclCommResume != nullptr ? 1 : 0; }
