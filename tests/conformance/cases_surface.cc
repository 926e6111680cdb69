// SPDX-License-Identifier: Apache-2.0
//
// Functions as such: which there are, what they answer, memory, configs.
#include <dlfcn.h>

#include <array>
#include <cstring>

#include "cases.h"

namespace conformance {
namespace {

constexpr unsigned kEverywhere = kProcesses | kThreads | kOneNode | kOnePerNode;
constexpr int kConfigs = 21403, kMemory = 21901;

/// All functions of NCCL 2.12 to 2.30.
constexpr std::array kFunctions = {
    "ncclGetVersion",
    "ncclGetUniqueId",
    "ncclCommInitRank",
    "ncclCommInitAll",
    "ncclCommDestroy",
    "ncclCommCount",
    "ncclCommCuDevice",
    "ncclCommUserRank",
    "ncclGetErrorString",
    "ncclReduce",
    "ncclBcast",
    "ncclBroadcast",
    "ncclAllReduce",
    "ncclReduceScatter",
    "ncclAllGather",
    "ncclGroupStart",
    "ncclGroupEnd",
    "ncclCommAbort",
    "ncclCommGetAsyncError",
    "ncclSend",
    "ncclRecv",
    "ncclRedOpCreatePreMulSum",
    "ncclRedOpDestroy",
    "ncclGetLastError",
    "ncclCommInitRankConfig",
    "ncclCommFinalize",
    "ncclCommSplit",
    "ncclMemAlloc",
    "ncclMemFree",
    "ncclCommRegister",
    "ncclCommDeregister",
    "ncclGroupSimulateEnd",
    "ncclCommInitRankScalable",
    "ncclResetDebugInit",
    "ncclCommShrink",
    "ncclCommWindowRegister",
    "ncclCommWindowDeregister",
    "ncclAlltoAll",
    "ncclGather",
    "ncclScatter",
    "ncclDevCommCreate",
    "ncclDevCommDestroy",
    "ncclTeamWorld",
    "ncclTeamLsa",
    "ncclTeamRail",
    "ncclTeamRankToWorld",
    "ncclTeamRankToLsa",
    "ncclLLA2ACalcSlots",
    "ncclLLA2ACreateRequirement",
    "ncclLsaBarrierCreateRequirement",
    "ncclGinBarrierCreateRequirement",
    "ncclCommRevoke",
    "ncclCommGetUniqueId",
    "ncclCommGrow",
    "ncclPutSignal",
    "ncclSignal",
    "ncclWaitSignal",
    "ncclWinGetUserPtr",
    "ncclCommQueryProperties",
    "ncclGetLsaDevicePointer",
    "ncclGetPeerDevicePointer",
    "ncclGetLsaMultimemDevicePointer",
    "ncclGetMultimemDevicePointer",
    "ncclCommSuspend",
    "ncclCommResume",
    "ncclCommMemStats",
    "ncclParamBind",
    "ncclParamGet",
    "ncclParamGetI8",
    "ncclParamGetI16",
    "ncclParamGetI32",
    "ncclParamGetI64",
    "ncclParamGetU8",
    "ncclParamGetU16",
    "ncclParamGetU32",
    "ncclParamGetU64",
    "ncclParamGetStr",
    "ncclParamGetParameter",
    "ncclParamGetAllParameterKeys",
    "ncclParamDumpAll",
};

void present(Trial& t) {
  for (const char* name : kFunctions) {
    const std::string twin = std::string("p") + name;
    t.note("%s: %s, twin %s", name, dlsym(RTLD_DEFAULT, name) != nullptr ? "there" : "absent",
           dlsym(RTLD_DEFAULT, twin.c_str()) != nullptr ? "there" : "absent");
  }
}

/// What dlopen and dlsym yield is as good as what the linker yields.
void looked_up(Trial& t) {
  void* const library = dlopen("libnccl.so.2", RTLD_LAZY);
  t.note("library %s", library != nullptr ? "there" : "absent");
  if (library == nullptr) return;
  for (const char* name : kFunctions) {
    t.note("%s: %s", name, dlsym(library, name) != nullptr ? "there" : "absent");
  }
  const auto send = reinterpret_cast<decltype(&ncclSend)>(dlsym(library, "ncclSend"));
  const auto recv = reinterpret_cast<decltype(&ncclRecv)>(dlsym(library, "ncclRecv"));
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  const Buffer out(t, 1, 5000), in(t, 1, 5000);
  out.fill(0, {t.rank, t.next(), 1});
  NCCL(ncclGroupStart());
  NCCL(send(out.at(0), 5000, ncclInt8, t.next(), comm, stream));
  NCCL(recv(in.at(0), 5000, ncclInt8, t.previous(), comm, stream));
  NCCL(ncclGroupEnd());
  t.sync(stream);
  in.expect(0, {t.previous(), t.rank, 1});
  dlclose(library);
}

void version(Trial& t) {
  int version = 0;
  NCCL(ncclGetVersion(&version));
  t.note("version %d", version);
  NCCL(ncclGetVersion(nullptr));
  for (const std::string& other : t.world.gather(std::to_string(version))) {
    CHECK(other == std::to_string(version));
  }
}

void error_strings(Trial& t) {
  for (int code = -1; code <= 12; ++code) {
    t.note("%d: %s", code, ncclGetErrorString(static_cast<ncclResult_t>(code)));
  }
}

void properties(Trial& t) {
  const ncclComm_t comm = t.comm();
  int count = -1, rank = -1, device = -1;
  NCCL(ncclCommCount(comm, &count));
  NCCL(ncclCommUserRank(comm, &rank));
  NCCL(ncclCommCuDevice(comm, &device));
  t.note("%d %d %d", count, rank, device);
  CHECK(count == t.ranks);
  CHECK(rank == t.rank);
  CHECK(device == t.device);
  NCCL(ncclCommCount(nullptr, &count));
  NCCL(ncclCommUserRank(nullptr, &rank));
  NCCL(ncclCommCuDevice(nullptr, &device));
  NCCL(ncclCommCount(comm, nullptr));
  NCCL(ncclCommUserRank(comm, nullptr));
  NCCL(ncclCommCuDevice(comm, nullptr));
  NCCL(ncclCommGetAsyncError(comm, nullptr));
  ncclResult_t state = ncclSuccess;
  NCCL(ncclCommGetAsyncError(nullptr, &state));
}

void unique_ids(Trial& t) {
  ncclUniqueId first, second;
  NCCL(ncclGetUniqueId(&first));
  NCCL(ncclGetUniqueId(&second));
  CHECK(std::memcmp(&first, &second, 64) != 0);
  NCCL(ncclGetUniqueId(nullptr));
}

void last_error(Trial& t) {
  if (LACKS(ncclGetLastError)) return;
  const ncclComm_t comm = t.comm();
  NCCL(ncclSend(nullptr, 0, ncclInt8, t.ranks, comm, nullptr));
  for (const ncclComm_t asked : {comm, ncclComm_t{}}) {
    const char* const text = ncclGetLastError(asked);
    CHECK(text != nullptr && *text != '\0');
  }
}

void debug_init(Trial& t) {
  if (t.lacks(dlsym(RTLD_DEFAULT, "ncclResetDebugInit"), "ncclResetDebugInit")) return;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  ncclResetDebugInit();
#pragma GCC diagnostic pop
  exchange_ring(t, t.comm(), t.stream(), 100, 1);
}

void allocated(Trial& t) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  constexpr size_t kBytes = 3 << 20;
  void *out = nullptr, *in = nullptr;
  NCCL(ncclMemAlloc(&out, kBytes));
  NCCL(ncclMemAlloc(&in, kBytes));
  const Buffer contents(t, 1, kBytes), back(t, 1, kBytes);
  contents.fill(0, {t.rank, t.next(), 1});
  CUDA(cudaMemcpy(out, contents.at(0), kBytes, cudaMemcpyDeviceToDevice));
  CUDA(cudaDeviceSynchronize());
  NCCL(ncclGroupStart());
  NCCL(ncclSend(out, kBytes, ncclUint8, t.next(), comm, stream));
  NCCL(ncclRecv(in, kBytes, ncclUint8, t.previous(), comm, stream));
  NCCL(ncclGroupEnd());
  t.sync(stream);
  CUDA(cudaMemcpy(back.at(0), in, kBytes, cudaMemcpyDeviceToDevice));
  CUDA(cudaDeviceSynchronize());
  back.expect(0, {t.previous(), t.rank, 1});
  NCCL(ncclMemFree(out));
  NCCL(ncclMemFree(in));
  NCCL(ncclMemFree(nullptr));
  NCCL(ncclMemAlloc(nullptr, 1));
}

void registered(Trial& t) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  const Buffer out(t, 1, 4096), in(t, 1, 4096);
  out.fill(0, {t.rank, t.next(), 1});
  void *first = nullptr, *second = nullptr;
  NCCL(ncclCommRegister(comm, out.at(0), 4096, &first));
  NCCL(ncclCommRegister(comm, in.at(0), 4096, &second));
  NCCL(ncclGroupStart());
  NCCL(ncclSend(out.at(0), 4096, ncclUint8, t.next(), comm, stream));
  NCCL(ncclRecv(in.at(0), 4096, ncclUint8, t.previous(), comm, stream));
  NCCL(ncclGroupEnd());
  t.sync(stream);
  in.expect(0, {t.previous(), t.rank, 1});
  NCCL(ncclCommDeregister(comm, first));
  NCCL(ncclCommDeregister(comm, second));
  NCCL(ncclCommRegister(nullptr, out.at(0), 4096, &first));
}

void windows(Trial& t) {
  if (LACKS(ncclCommWindowRegister)) return;
  const ncclComm_t comm = t.comm();
  void* memory = nullptr;
  NCCL(ncclMemAlloc(&memory, 2 << 20));
  ncclWindow_t window = nullptr;
  NCCL(ncclCommWindowRegister(comm, memory, 2 << 20, &window, NCCL_WIN_DEFAULT));
  exchange_all(t, comm, t.stream(), 1000, 1);
  NCCL(ncclCommWindowDeregister(comm, window));
  NCCL(ncclMemFree(memory));
}

/// A config as a program was compiled with: of this size and version.
void config_of_size(Trial& t, size_t size, unsigned version) {
  struct {
    ncclConfig_t config;
    char behind[64];
  } padded{NCCL_CONFIG_INITIALIZER, {}};
  padded.config.size = size;
  padded.config.version = version;
  const auto before = padded;
  const std::vector<ncclUniqueId> ids = t.world.unique_ids(1);
  ncclComm_t comm = nullptr;
  NCCL(ncclCommInitRankConfig(&comm, t.ranks, ids.at(0), t.rank, &padded.config));
  CHECK(std::memcmp(&before, &padded, sizeof before) == 0);
  t.watch(comm);
  if (comm != nullptr) exchange_all(t, comm, t.stream(), 1000, 1);
}

/// NCCL 2.14's ended after `blocking`.
void old_config(Trial& t) {
  config_of_size(t, offsetof(ncclConfig_t, cgaClusterSize), NCCL_VERSION(2, 14, 3));
}
void present_config(Trial& t) { config_of_size(t, sizeof(ncclConfig_t), NCCL_VERSION_CODE); }
void newer_config(Trial& t) { config_of_size(t, sizeof(ncclConfig_t) + 16, NCCL_VERSION_CODE); }

/// An id stays good when a call is refused before it is used.
void refused_configs(Trial& t) {
  const std::vector<ncclUniqueId> ids = t.world.unique_ids(1);
  ncclComm_t comm = nullptr;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.magic = 1;
  NCCL(ncclCommInitRankConfig(&comm, t.ranks, ids.at(0), t.rank, &config));
  CHECK(comm == nullptr);
  config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 7;
  NCCL(ncclCommInitRankConfig(&comm, t.ranks, ids.at(0), t.rank, &config));
  CHECK(comm == nullptr);
  NCCL(ncclCommInitRankConfig(nullptr, t.ranks, ids.at(0), t.rank, nullptr));
  NCCL(ncclCommInitRankConfig(&comm, t.ranks, ids.at(0), t.rank, nullptr));
  t.watch(comm);
  if (comm != nullptr) exchange_all(t, comm, t.stream(), 10, 1);
}

}  // namespace

Cases surface_cases() {
  const unsigned all = kEverywhere | kVersions;
  return {
      {"present", {"surface/present"}, all, present},
      {"looked up", {"surface/present"}, all, looked_up},
      {"version", {"surface/answers", "5.9/version"}, all, version},
      {"error strings", {"surface/answers"}, all, error_strings},
      {"properties", {"surface/answers", "5.7/communicator"}, all, properties},
      {"unique ids", {"surface/answers"}, all, unique_ids},
      {"last error", {"5.7/texts", "surface/answers"}, all, last_error},
      {"debug init", {"surface/answers"}, kProcesses, debug_init, 22403},
      {"allocated", {"surface/memory"}, kEverywhere | kVersions, allocated, kMemory},
      {"registered", {"surface/memory"}, kEverywhere | kVersions, registered, kMemory},
      {"windows", {"surface/memory"}, kProcesses | kOneNode, windows, 22703},
      {"config of 2.14", {"surface/config"}, all, old_config, kConfigs},
      {"config of its own version", {"surface/config"}, kEverywhere, present_config, 22809},
      {"config of a newer version", {"surface/config"}, kEverywhere, newer_config, kConfigs},
      {"refused configs", {"surface/config"}, kProcesses | kOneNode, refused_configs, kConfigs},
  };
}

}  // namespace conformance
