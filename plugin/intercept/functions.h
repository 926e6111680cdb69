// SPDX-License-Identifier: Apache-2.0
//
// Every public function of NCCL 2.12 to 2.30.7: what railyard exports, looks up, and replaces in
// import tables all comes from this one list.
//
//   H  handled: (name, first version, handler, (parameters), (arguments)); returns ncclResult_t
//   T  handled: the same for functions that return a text
//   C  called by railyard, else passed: (name, first version, (parameters)); returns ncclResult_t
//   P  passed: (name, first version, return type, (parameters)); bound straight to NCCL
//
// Versions are NCCL's version codes; 20305 also stands for older ones. Rows are grouped by kind of
// function and sorted by version. The types in rows of P need not be declared.
#pragma once

#include <cstddef>

#include <nccl.h>

// clang-format off
#define RY_NCCL_FUNCTIONS(H, T, C, P)                                                              \
  /* creation */                                                                                   \
  H(ncclGetUniqueId, 20305, Life::get_unique_id, (ncclUniqueId* id), (id))                         \
  H(ncclCommInitRank, 20305, Life::init_rank,                                                      \
    (ncclComm_t* comm, int ranks, ncclUniqueId id, int rank), (comm, ranks, id, rank))             \
  H(ncclCommInitAll, 20305, Life::init_all,                                                        \
    (ncclComm_t* comms, int devices, const int* list), (comms, devices, list))                     \
  H(ncclCommInitRankConfig, 21403, Life::init_rank_config,                                         \
    (ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config),                \
    (comm, ranks, id, rank, config))                                                               \
  H(ncclCommSplit, 21801, Life::split,                                                             \
    (ncclComm_t comm, int color, int key, ncclComm_t* child, ncclConfig_t* config),                \
    (comm, color, key, child, config))                                                             \
  H(ncclCommInitRankScalable, 22304, Life::init_rank_scalable,                                     \
    (ncclComm_t* comm, int ranks, int rank, int id_count, ncclUniqueId* ids,                       \
     ncclConfig_t* config),                                                                        \
    (comm, ranks, rank, id_count, ids, config))                                                    \
  H(ncclCommShrink, 22703, Life::shrink,                                                           \
    (ncclComm_t comm, int* excluded, int excluded_count, ncclComm_t* child, ncclConfig_t* config,  \
     int flags),                                                                                   \
    (comm, excluded, excluded_count, child, config, flags))                                        \
  H(ncclCommGetUniqueId, 22902, Life::comm_get_unique_id,                                          \
    (ncclComm_t comm, ncclUniqueId* id), (comm, id))                                               \
  H(ncclCommGrow, 22902, Life::grow,                                                               \
    (ncclComm_t comm, int ranks, const ncclUniqueId* id, int rank, ncclComm_t* grown,              \
     ncclConfig_t* config),                                                                        \
    (comm, ranks, id, rank, grown, config))                                                        \
  /* end */                                                                                        \
  H(ncclCommDestroy, 20305, Life::destroy, (ncclComm_t comm), (comm))                              \
  H(ncclCommAbort, 20402, Life::abort, (ncclComm_t comm), (comm))                                  \
  H(ncclCommFinalize, 21403, Life::finalize, (ncclComm_t comm), (comm))                            \
  H(ncclCommRevoke, 22807, Life::revoke, (ncclComm_t comm, int flags), (comm, flags))              \
  H(ncclCommSuspend, 22907, Life::suspend, (ncclComm_t comm, int flags), (comm, flags))            \
  H(ncclCommResume, 22907, Life::resume, (ncclComm_t comm), (comm))                                \
  /* groups and messages */                                                                        \
  H(ncclGroupStart, 20305, Group::start, (), ())                                                   \
  H(ncclGroupEnd, 20305, Group::end, (), ())                                                       \
  H(ncclGroupSimulateEnd, 22203, Group::simulate_end, (ncclSimInfo_t* info), (info))               \
  H(ncclSend, 20703, Group::send,                                                                  \
    (const void* buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,             \
     cudaStream_t stream),                                                                         \
    (buffer, count, type, peer, comm, stream))                                                     \
  H(ncclRecv, 20703, Group::recv,                                                                  \
    (void* buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,                   \
     cudaStream_t stream),                                                                         \
    (buffer, count, type, peer, comm, stream))                                                     \
  H(ncclAlltoAll, 22803, Group::all_to_all,                                                        \
    (const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,               \
     cudaStream_t stream),                                                                         \
    (from, to, count, type, comm, stream))                                                         \
  H(ncclGather, 22803, Group::gather,                                                              \
    (const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,     \
     cudaStream_t stream),                                                                         \
    (from, to, count, type, root, comm, stream))                                                   \
  H(ncclScatter, 22803, Group::scatter,                                                            \
    (const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,     \
     cudaStream_t stream),                                                                         \
    (from, to, count, type, root, comm, stream))                                                   \
  /* questions */                                                                                  \
  C(ncclGetVersion, 20305, (int*))                                                                 \
  C(ncclCommCount, 20305, (ncclComm_t, int*))                                                      \
  C(ncclCommCuDevice, 20305, (ncclComm_t, int*))                                                   \
  C(ncclCommUserRank, 20305, (ncclComm_t, int*))                                                   \
  P(ncclGetErrorString, 20305, const char*, (ncclResult_t))                                        \
  H(ncclCommGetAsyncError, 20402, Life::get_async_error,                                           \
    (ncclComm_t comm, ncclResult_t* state), (comm, state))                                         \
  T(ncclGetLastError, 21304, last_error, (ncclComm_t comm), (comm))                                \
  P(ncclResetDebugInit, 22403, void, (void))                                                       \
  P(ncclCommQueryProperties, 22902, ncclResult_t, (ncclComm_t, ncclCommProperties_t*))             \
  P(ncclCommMemStats, 22907, ncclResult_t, (ncclComm_t, ncclCommMemStat_t, uint64_t*))             \
  /* collectives */                                                                                \
  H(ncclReduce, 20305, Group::reduce,                                                              \
    (const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t operation,         \
     int root, ncclComm_t comm, cudaStream_t stream),                                              \
    (from, to, count, type, operation, root, comm, stream))                                        \
  H(ncclBcast, 20305, Group::bcast,                                                                \
    (void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,                   \
     cudaStream_t stream),                                                                         \
    (buffer, count, type, root, comm, stream))                                                     \
  H(ncclBroadcast, 20305, Group::broadcast,                                                        \
    (const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,     \
     cudaStream_t stream),                                                                         \
    (from, to, count, type, root, comm, stream))                                                   \
  H(ncclAllReduce, 20305, Group::all_reduce,                                                       \
    (const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t operation,         \
     ncclComm_t comm, cudaStream_t stream),                                                        \
    (from, to, count, type, operation, comm, stream))                                              \
  H(ncclReduceScatter, 20305, Group::reduce_scatter,                                               \
    (const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t operation,         \
     ncclComm_t comm, cudaStream_t stream),                                                        \
    (from, to, count, type, operation, comm, stream))                                              \
  H(ncclAllGather, 20305, Group::all_gather,                                                       \
    (const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,               \
     cudaStream_t stream),                                                                         \
    (from, to, count, type, comm, stream))                                                         \
  P(ncclRedOpCreatePreMulSum, 21104, ncclResult_t,                                                 \
    (ncclRedOp_t*, void*, ncclDataType_t, ncclScalarResidence_t, ncclComm_t))                      \
  P(ncclRedOpDestroy, 21104, ncclResult_t, (ncclRedOp_t, ncclComm_t))                              \
  /* memory, windows, one-sided messages */                                                        \
  P(ncclMemAlloc, 21901, ncclResult_t, (void**, size_t))                                           \
  P(ncclMemFree, 21901, ncclResult_t, (void*))                                                     \
  P(ncclCommRegister, 21901, ncclResult_t, (ncclComm_t, void*, size_t, void**))                    \
  P(ncclCommDeregister, 21901, ncclResult_t, (ncclComm_t, void*))                                  \
  P(ncclCommWindowRegister, 22703, ncclResult_t,                                                   \
    (ncclComm_t, void*, size_t, ncclWindow_t*, int))                                               \
  P(ncclCommWindowDeregister, 22703, ncclResult_t, (ncclComm_t, ncclWindow_t))                     \
  P(ncclWinGetUserPtr, 22902, ncclResult_t, (ncclComm_t, ncclWindow_t, void**))                    \
  P(ncclPutSignal, 22902, ncclResult_t,                                                            \
    (const void*, size_t, ncclDataType_t, int, ncclWindow_t, size_t, int, int, unsigned,           \
     ncclComm_t, cudaStream_t))                                                                    \
  P(ncclSignal, 22902, ncclResult_t, (int, int, int, unsigned, ncclComm_t, cudaStream_t))          \
  P(ncclWaitSignal, 22902, ncclResult_t, (int, ncclWaitSignalDesc_t*, ncclComm_t, cudaStream_t))   \
  /* for device code */                                                                            \
  P(ncclDevCommCreate, 22803, ncclResult_t,                                                        \
    (ncclComm_t, const ncclDevCommRequirements_t*, ncclDevComm_t*))                                \
  P(ncclDevCommDestroy, 22803, ncclResult_t, (ncclComm_t, const ncclDevComm_t*))                   \
  P(ncclTeamWorld, 22803, ncclTeam_t, (ncclComm_t))                                                \
  P(ncclTeamLsa, 22803, ncclTeam_t, (ncclComm_t))                                                  \
  P(ncclTeamRail, 22803, ncclTeam_t, (ncclComm_t))                                                 \
  P(ncclTeamRankToWorld, 22803, int, (ncclComm_t, ncclTeam_t, int))                                \
  P(ncclTeamRankToLsa, 22803, int, (ncclComm_t, ncclTeam_t, int))                                  \
  P(ncclLLA2ACalcSlots, 22803, int, (int, int))                                                    \
  P(ncclLLA2ACreateRequirement, 22803, ncclResult_t,                                               \
    (int, int, ncclLLA2AHandle_t*, ncclDevResourceRequirements_t*))                                \
  P(ncclLsaBarrierCreateRequirement, 22803, ncclResult_t,                                          \
    (ncclTeam_t, int, ncclLsaBarrierHandle_t*, ncclDevResourceRequirements_t*))                    \
  P(ncclGinBarrierCreateRequirement, 22807, ncclResult_t,                                          \
    (ncclComm_t, ncclTeam_t, int, ncclGinBarrierHandle_t*, ncclDevResourceRequirements_t*))        \
  P(ncclGetLsaDevicePointer, 22902, ncclResult_t, (ncclWindow_t, size_t, int, void**))             \
  P(ncclGetPeerDevicePointer, 22902, ncclResult_t, (ncclWindow_t, size_t, int, void**))            \
  P(ncclGetLsaMultimemDevicePointer, 22902, ncclResult_t, (ncclWindow_t, size_t, void**))          \
  P(ncclGetMultimemDevicePointer, 22902, ncclResult_t,                                             \
    (ncclWindow_t, size_t, ncclMultimemHandle_t, void**))                                          \
  /* parameters */                                                                                 \
  P(ncclParamBind, 23004, ncclResult_t, (ncclParamHandle_t*, const char*))                         \
  P(ncclParamGet, 23004, ncclResult_t, (ncclParamHandle_t, void*, int, int*))                      \
  P(ncclParamGetI8, 23004, ncclResult_t, (ncclParamHandle_t, int8_t*))                             \
  P(ncclParamGetI16, 23004, ncclResult_t, (ncclParamHandle_t, int16_t*))                           \
  P(ncclParamGetI32, 23004, ncclResult_t, (ncclParamHandle_t, int32_t*))                           \
  P(ncclParamGetI64, 23004, ncclResult_t, (ncclParamHandle_t, int64_t*))                           \
  P(ncclParamGetU8, 23004, ncclResult_t, (ncclParamHandle_t, uint8_t*))                            \
  P(ncclParamGetU16, 23004, ncclResult_t, (ncclParamHandle_t, uint16_t*))                          \
  P(ncclParamGetU32, 23004, ncclResult_t, (ncclParamHandle_t, uint32_t*))                          \
  P(ncclParamGetU64, 23004, ncclResult_t, (ncclParamHandle_t, uint64_t*))                          \
  P(ncclParamGetStr, 23004, ncclResult_t, (ncclParamHandle_t, const char**))                       \
  P(ncclParamGetParameter, 23004, ncclResult_t, (const char*, const char**, int*))                 \
  P(ncclParamGetAllParameterKeys, 23004, ncclResult_t, (const char***, int*))                      \
  P(ncclParamDumpAll, 23004, void, (void))
// clang-format on

/// For kinds of rows that a use has no need of.
#define RY_NO_ROW(...)

namespace railyard::intercept {

/// The handled ones, numbered.
enum class Function : size_t {
#define RY_NUMBER(name, ...) name,
  RY_NCCL_FUNCTIONS(RY_NUMBER, RY_NUMBER, RY_NO_ROW, RY_NO_ROW)
#undef RY_NUMBER
      kCount
};
constexpr auto kFunctions = static_cast<size_t>(Function::kCount);

constexpr const char* kFunctionNames[] = {
#define RY_NAME(name, ...) #name,
    RY_NCCL_FUNCTIONS(RY_NAME, RY_NAME, RY_NO_ROW, RY_NO_ROW)
#undef RY_NAME
};

}  // namespace railyard::intercept
