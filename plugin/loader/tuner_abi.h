// SPDX-License-Identifier: Apache-2.0
//
// NCCL's tuner interface, versions 2 to 6, as far as railyard reads or passes it on. What a
// version shares with the one before is written once.
#pragma once

#include <cstddef>
#include <cstdint>

#include <nccl.h>

namespace railyard::loader::tuner {

/// Takes a level, subsystems, file, line and a printf format; never called here.
using Logger = void (*)();

enum class Collective : int {};

/// One entry per algorithm and protocol, in rows of protocols; microseconds, or kIgnore. Declared
/// float** by NCCL.
using CostTable = float**;
constexpr float kIgnore = -1.0F;  ///< must not be used
constexpr int kUndecided = -1;    ///< no algorithm or protocol
constexpr int kAlgorithmCollnetDirect = 2, kAlgorithmNvls = 4, kProtocolSimple = 2;

struct DomainInfo {
  int domains, least_ranks, most_ranks;
};
static_assert(sizeof(DomainInfo) == 12);

struct Constants;  ///< passed on only

struct V2 {
  const char* name;
  ncclResult_t (*init)(size_t ranks, size_t nodes, Logger logger, void** context);
  ncclResult_t (*get_info)(void* context, Collective collective, size_t bytes, int collnet,
                           int nvls, int pipelined, int* algorithm, int* protocol, int* channels);
  ncclResult_t (*destroy)(void* context);
};
static_assert(sizeof(V2) == 32 && offsetof(V2, get_info) == 16 && offsetof(V2, destroy) == 24);

struct V3 {
  const char* name;
  ncclResult_t (*init)(size_t ranks, size_t nodes, Logger logger, void** context);
  ncclResult_t (*get_info)(void* context, Collective collective, size_t bytes, int pipelined,
                           CostTable costs, int algorithms, int protocols, int* channels);
  ncclResult_t (*destroy)(void* context);
};
static_assert(sizeof(V3) == 32 && offsetof(V3, get_info) == 16 && offsetof(V3, destroy) == 24);

struct V4 {
  const char* name;
  ncclResult_t (*init)(size_t ranks, size_t nodes, Logger logger, void** context);
  ncclResult_t (*get_info)(void* context, Collective collective, size_t bytes, int pipelined,
                           CostTable costs, int algorithms, int protocols, int registered,
                           int* channels);
  ncclResult_t (*destroy)(void* context);
};
static_assert(sizeof(V4) == 32 && offsetof(V4, get_info) == 16 && offsetof(V4, destroy) == 24);

struct V5 {
  const char* name;
  ncclResult_t (*init)(void** context, uint64_t hash, size_t ranks, size_t nodes, Logger logger,
                       DomainInfo* domains, Constants* constants);
  ncclResult_t (*get_info)(void* context, Collective collective, size_t bytes, int pipelined,
                           CostTable costs, int algorithms, int protocols, int registered,
                           int* channels);
  ncclResult_t (*finalize)(void* context);
};
static_assert(sizeof(V5) == 32 && offsetof(V5, get_info) == 16 && offsetof(V5, finalize) == 24);

struct V6 {
  V5 as_v5;
  ncclResult_t (*get_chunk_size)(void* context, Collective collective, size_t bytes, int algorithm,
                                 int protocol, int channels, size_t* chunk);  ///< may be null
};
static_assert(sizeof(V6) == 40 && offsetof(V6, get_chunk_size) == 32);

}  // namespace railyard::loader::tuner
