// SPDX-License-Identifier: Apache-2.0
//
// Exported functions that serve device code. No rank can reach the memory of another by address
// here, and the real library without such memory refuses what these refuse. Teams are told
// nevertheless: every rank is alone with itself.
#include <memory>

#include "communicator.h"
#include "exports.h"
#include "group.h"
#include "result.h"

using namespace railyard::emulator;  // NOLINT: this file only puts C names on things of it

/// ncclTeam_t.
struct Team {
  int ranks, rank, stride;
};

#define RY_DEVICE(type, name, parameters)                                  \
  extern "C" type p##name parameters;                                      \
  extern "C" type name parameters __attribute__((weak, alias("p" #name))); \
  extern "C" type p##name parameters

#define RY_REFUSED(name)                                                                    \
  RY_DEVICE(ncclResult_t, name, ()) {                                                       \
    return fail(ncclInvalidUsage, #name ": the emulated NCCL has nothing for device code"); \
  }

RY_DEVICE(Team, ncclTeamWorld, (ncclComm_t comm)) {
  std::shared_ptr<Communicator> communicator = find_handle(comm);
  return communicator ? Team{communicator->ranks(), communicator->rank(), 1} : Team{};
}

RY_DEVICE(Team, ncclTeamLsa, (ncclComm_t comm)) { return Team{find_handle(comm) ? 1 : 0, 0, 1}; }

RY_DEVICE(Team, ncclTeamRail, (ncclComm_t comm)) { return pncclTeamWorld(comm); }

RY_DEVICE(int, ncclTeamRankToWorld, (ncclComm_t comm, Team team, int rank)) {
  return pncclTeamWorld(comm).rank + (rank - team.rank) * team.stride;
}

RY_DEVICE(int, ncclTeamRankToLsa, (ncclComm_t, Team team, int rank)) {
  return (rank - team.rank) * team.stride;
}

RY_DEVICE(int, ncclLLA2ACalcSlots, (int elements, int bytes)) {
  constexpr int kSlotBytes = 8;
  return elements * ((bytes + kSlotBytes - 1) / kSlotBytes);
}

RY_REFUSED(ncclDevCommCreate)
RY_REFUSED(ncclDevCommDestroy)
RY_REFUSED(ncclLLA2ACreateRequirement)
RY_REFUSED(ncclLsaBarrierCreateRequirement)
RY_REFUSED(ncclGinBarrierCreateRequirement)
RY_REFUSED(ncclGetLsaDevicePointer)
RY_REFUSED(ncclGetPeerDevicePointer)
RY_REFUSED(ncclGetLsaMultimemDevicePointer)
RY_REFUSED(ncclGetMultimemDevicePointer)
