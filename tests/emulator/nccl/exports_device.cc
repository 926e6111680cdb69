// SPDX-License-Identifier: Apache-2.0
//
// Exported functions that serve device code. There is none here that could use what they make, so
// they refuse. Their types are not declared: the names
// must be there, for programs that look them up.
#include "exports.h"
#include "result.h"

using railyard::emulator::fail;

#define RY_REFUSED(name)                                                                    \
  extern "C" ncclResult_t p##name();                                                        \
  extern "C" ncclResult_t name() __attribute__((weak, alias("p" #name)));                   \
  extern "C" ncclResult_t p##name() {                                                       \
    return fail(ncclInvalidUsage, #name ": the emulated NCCL has nothing for device code"); \
  }

RY_REFUSED(ncclDevCommCreate)
RY_REFUSED(ncclDevCommDestroy)
RY_REFUSED(ncclTeamWorld)
RY_REFUSED(ncclTeamLsa)
RY_REFUSED(ncclTeamRail)
RY_REFUSED(ncclTeamRankToWorld)
RY_REFUSED(ncclTeamRankToLsa)
RY_REFUSED(ncclLLA2ACalcSlots)
RY_REFUSED(ncclLLA2ACreateRequirement)
RY_REFUSED(ncclLsaBarrierCreateRequirement)
RY_REFUSED(ncclGinBarrierCreateRequirement)
RY_REFUSED(ncclGetLsaDevicePointer)
RY_REFUSED(ncclGetPeerDevicePointer)
RY_REFUSED(ncclGetLsaMultimemDevicePointer)
RY_REFUSED(ncclGetMultimemDevicePointer)
RY_REFUSED(ncclCommQueryProperties)
RY_REFUSED(ncclParamBind)
RY_REFUSED(ncclParamGet)
RY_REFUSED(ncclParamGetI8)
RY_REFUSED(ncclParamGetI16)
RY_REFUSED(ncclParamGetI32)
RY_REFUSED(ncclParamGetI64)
RY_REFUSED(ncclParamGetU8)
RY_REFUSED(ncclParamGetU16)
RY_REFUSED(ncclParamGetU32)
RY_REFUSED(ncclParamGetU64)
RY_REFUSED(ncclParamGetStr)
RY_REFUSED(ncclParamGetParameter)
RY_REFUSED(ncclParamGetAllParameterKeys)
RY_REFUSED(ncclParamDumpAll)
