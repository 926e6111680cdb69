// SPDX-License-Identifier: Apache-2.0
//
// What NCCL's plugins export, as their interfaces lay it down: tuners (versions 1 to 6) and the
// environment (1 and 2). Sizes and times are in bytes and microseconds.
#pragma once

#include <cstddef>
#include <cstdint>

#include <nccl.h>

namespace railyard::emulator::plugin {

using Logger = void (*)(int level, unsigned long flags, const char* file, int line,
                        const char* format, ...);
/// Writes what a plugin has to say to stderr, with NCCL_DEBUG=WARN or more.
void log(int level, unsigned long flags, const char* file, int line, const char* format, ...);

enum Function : int { kBroadcast, kReduce, kAllGather, kReduceScatter, kAllReduce };
constexpr int kAlgorithms = 7, kProtocols = 3;

struct NvlDomains {
  int count, least_ranks, most_ranks;
};
struct Constants {
  double base_latencies[7][3], hardware_latencies[3][7][3], ll_max[4][3], ring_ll128_max[4][3],
      tree_ll128_max[4][3], tree_max[4][3], nvls_tree_max[4][3];
};

struct TunerV1 {
  const char* name;
  ncclResult_t (*init)(size_t ranks, size_t nodes, Logger);
  ncclResult_t (*getCollInfo)(Function, size_t bytes, int collnet, int nvls, int pipe_ops,
                              int* algorithm, int* protocol, int* channels);
  ncclResult_t (*destroy)();
};
struct TunerV2 {
  const char* name;
  ncclResult_t (*init)(size_t ranks, size_t nodes, Logger, void** context);
  ncclResult_t (*getCollInfo)(void* context, Function, size_t bytes, int collnet, int nvls,
                              int pipe_ops, int* algorithm, int* protocol, int* channels);
  ncclResult_t (*destroy)(void* context);
};
struct TunerV3 {
  const char* name;
  ncclResult_t (*init)(size_t ranks, size_t nodes, Logger, void** context);
  ncclResult_t (*getCollInfo)(void* context, Function, size_t bytes, int pipe_ops, float** costs,
                              int algorithms, int protocols, int* channels);
  ncclResult_t (*destroy)(void* context);
};
struct TunerV4 {
  const char* name;
  ncclResult_t (*init)(size_t ranks, size_t nodes, Logger, void** context);
  ncclResult_t (*getCollInfo)(void* context, Function, size_t bytes, int pipe_ops, float** costs,
                              int algorithms, int protocols, int registered, int* channels);
  ncclResult_t (*destroy)(void* context);
};
struct TunerV5 {
  const char* name;
  ncclResult_t (*init)(void** context, uint64_t communicator, size_t ranks, size_t nodes, Logger,
                       NvlDomains*, Constants*);
  ncclResult_t (*getCollInfo)(void* context, Function, size_t bytes, int pipe_ops, float** costs,
                              int algorithms, int protocols, int registered, int* channels);
  ncclResult_t (*finalize)(void* context);
};
struct TunerV6 {
  const char* name;
  decltype(TunerV5::init) init;
  decltype(TunerV5::getCollInfo) getCollInfo;
  decltype(TunerV5::finalize) finalize;
  ncclResult_t (*getChunkSize)(void* context, Function, size_t bytes, int algorithm, int protocol,
                               int channels, size_t* chunk);
};

struct EnvV1 {
  const char* name;
  ncclResult_t (*init)(uint8_t major, uint8_t minor, uint8_t patch, const char* suffix);
  ncclResult_t (*finalize)();
  const char* (*getEnv)(const char* name);
};
struct EnvV2 {
  const char* name;
  ncclResult_t (*init)(uint8_t major, uint8_t minor, uint8_t patch, const char* suffix, Logger);
  ncclResult_t (*finalize)();
  const char* (*getEnv)(const char* name);
};

}  // namespace railyard::emulator::plugin
