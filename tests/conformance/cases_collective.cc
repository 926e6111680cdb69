// SPDX-License-Identifier: Apache-2.0
//
// Collectives and what is built on messages, for every data type.
#include <array>

#include "cases.h"

namespace conformance {
namespace {

constexpr unsigned kEverywhere = kProcesses | kThreads | kOneNode | kOnePerNode;
constexpr int kAlltoAllCame = 22803;

struct Type {
  const char* name;
  ncclDataType_t type;
  size_t bytes;
  int since;
};
constexpr std::array kTypes = {
    Type{"int8", ncclInt8, 1, 21200},
    Type{"uint8", ncclUint8, 1, 21200},
    Type{"int32", ncclInt32, 4, 21200},
    Type{"uint32", ncclUint32, 4, 21200},
    Type{"int64", ncclInt64, 8, 21200},
    Type{"uint64", ncclUint64, 8, 21200},
    Type{"float16", ncclFloat16, 2, 21200},
    Type{"float32", ncclFloat32, 4, 21200},
    Type{"float64", ncclFloat64, 8, 21200},
    Type{"bfloat16", ncclBfloat16, 2, 21200},
    Type{"float8e4m3", static_cast<ncclDataType_t>(10), 1, 22403},
    Type{"float8e5m2", static_cast<ncclDataType_t>(11), 1, 22403},
};

void all_to_all(Trial& t, const Type& type, size_t count) {
  if (LACKS(ncclAlltoAll)) return;
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  const auto ranks = static_cast<size_t>(t.ranks);
  const Buffer out(t, ranks, count * type.bytes), in(t, ranks, count * type.bytes);
  out.fill_for_all(1);
  NCCL(ncclAlltoAll(out.at(0), in.at(0), count, type.type, comm, stream));
  t.sync(stream);
  in.expect_from_all(1);
  in.show("received");
}

void messages(Trial& t, const Type& type, size_t count) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  const auto ranks = static_cast<size_t>(t.ranks);
  const Buffer out(t, ranks, count * type.bytes), in(t, ranks, count * type.bytes);
  out.fill_for_all(1);
  NCCL(ncclGroupStart());
  for (int peer = 0; peer < t.ranks; ++peer) {
    NCCL(ncclSend(out.at(peer), count, type.type, peer, comm, stream));
    NCCL(ncclRecv(in.at(peer), count, type.type, peer, comm, stream));
  }
  NCCL(ncclGroupEnd());
  t.sync(stream);
  in.expect_from_all(1);
  in.show("received");
}

void gather(Trial& t, const Type& type, int root) {
  if (LACKS(ncclGather)) return;
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  constexpr size_t kCount = 3001;
  const auto ranks = static_cast<size_t>(t.ranks);
  const Buffer out(t, 1, kCount * type.bytes), in(t, ranks, kCount * type.bytes);
  out.fill(0, {t.rank, root, 1});
  NCCL(ncclGather(out.at(0), in.at(0), kCount, type.type, root, comm, stream));
  t.sync(stream);
  if (t.rank == root) in.expect_from_all(1);
  in.show("received");
}

void scatter(Trial& t, const Type& type, int root) {
  if (LACKS(ncclScatter)) return;
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  constexpr size_t kCount = 3001;
  const auto ranks = static_cast<size_t>(t.ranks);
  const Buffer out(t, ranks, kCount * type.bytes), in(t, 1, kCount * type.bytes);
  out.fill_for_all(1);
  NCCL(ncclScatter(out.at(0), in.at(0), kCount, type.type, root, comm, stream));
  t.sync(stream);
  in.expect(0, {root, t.rank, 1});
  in.show("received");
}

/// Whole numbers that no type loses.
void fill_small(Trial& t, const Buffer& buffer, size_t count) {
  std::vector<int> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<int>(i % 7) + t.rank;
  CUDA(cudaMemcpy(buffer.at(0), values.data(), count * sizeof(int), cudaMemcpyHostToDevice));
}

void reductions(Trial& t, ncclRedOp_t op) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  constexpr size_t kCount = 1000;
  const auto ranks = static_cast<size_t>(t.ranks);
  const Buffer out(t, ranks, kCount * sizeof(int)), in(t, ranks, kCount * sizeof(int));
  fill_small(t, out, kCount * ranks);
  NCCL(ncclAllReduce(out.at(0), in.at(0), kCount, ncclInt32, op, comm, stream));
  t.sync(stream);
  in.show("all-reduce");
  NCCL(ncclReduce(out.at(0), in.at(0), kCount, ncclInt32, op, 1, comm, stream));
  t.sync(stream);
  in.show("reduce");
  NCCL(ncclReduceScatter(out.at(0), in.at(0), kCount, ncclInt32, op, comm, stream));
  t.sync(stream);
  in.show("reduce-scatter");
}

void copies(Trial& t) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  const auto ranks = static_cast<size_t>(t.ranks);
  const Buffer out(t, 1, 3000), in(t, ranks, 3000);
  const int root = t.ranks - 1;
  out.fill(0, {t.rank, 0, 1});
  NCCL(ncclBroadcast(out.at(0), in.at(0), 3000, ncclInt8, root, comm, stream));
  t.sync(stream);
  in.expect(0, {root, 0, 1});
  NCCL(ncclAllGather(out.at(0), in.at(0), 3000, ncclInt8, comm, stream));
  t.sync(stream);
  for (int peer = 0; peer < t.ranks; ++peer) in.expect(static_cast<size_t>(peer), {peer, 0, 1});
  NCCL(ncclBcast(out.at(0), 3000, ncclInt8, root, comm, stream));
  t.sync(stream);
  out.expect(0, {root, 0, 1});
}

void own_operation(Trial& t) {
  const ncclComm_t comm = t.comm();
  const cudaStream_t stream = t.stream();
  const Buffer out(t, 1, 400), in(t, 1, 400);
  fill_small(t, out, 100);
  ncclRedOp_t op = ncclSum;
  int scalar = 3;
  NCCL(ncclRedOpCreatePreMulSum(&op, &scalar, ncclInt32, ncclScalarHostImmediate, comm));
  NCCL(ncclAllReduce(out.at(0), in.at(0), 100, ncclInt32, op, comm, stream));
  t.sync(stream);
  in.show("reduced");
  exchange_ring(t, comm, stream, 1000, 1);
  NCCL(ncclRedOpDestroy(op, comm));
  NCCL(ncclAllReduce(out.at(0), in.at(0), 100, ncclInt32, op, comm, stream));
  NCCL(ncclRedOpDestroy(op, comm));
}

}  // namespace

Cases collective_cases() {
  Cases cases;
  for (const Type& type : kTypes) {
    const std::string name = type.name;
    std::vector<const char*> rows{"surface/types"};
    if (type.type >= 10) rows.push_back("5.7/fp8");
    cases.push_back({"all-to-all of " + name, rows, kEverywhere,
                     [type](Trial& t) { all_to_all(t, type, 2003); }, kAlltoAllCame});
    cases.push_back({"messages of " + name, rows, kEverywhere | kVersions,
                     [type](Trial& t) { messages(t, type, 1501); }, type.since});
    cases.push_back({"gather of " + name, rows, kProcesses,
                     [type](Trial& t) { gather(t, type, 1); }, kAlltoAllCame});
    cases.push_back({"scatter of " + name, rows, kProcesses,
                     [type](Trial& t) { scatter(t, type, t.ranks - 1); }, kAlltoAllCame});
  }
  for (const size_t count : {1UL, 63UL, 65537UL, 700001UL}) {
    cases.push_back({"all-to-all of " + std::to_string(count),
                     {"5.3/all-to-all", "5.3/counts"},
                     kProcesses | kThreads | kThreeNodes,
                     [count](Trial& t) { all_to_all(t, kTypes[0], count); },
                     kAlltoAllCame});
  }
  const std::array operations{ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg};
  for (const ncclRedOp_t op : operations) {
    cases.push_back({"reductions by operation " + std::to_string(op),
                     {"surface/collectives"},
                     kProcesses | kVersions,
                     [op](Trial& t) { reductions(t, op); }});
  }
  cases.push_back({"gather to rank 0",
                   {"surface/types"},
                   kEverywhere,
                   [](Trial& t) { gather(t, kTypes[2], 0); },
                   kAlltoAllCame});
  cases.push_back({"scatter from rank 0",
                   {"surface/types"},
                   kEverywhere,
                   [](Trial& t) { scatter(t, kTypes[2], 0); },
                   kAlltoAllCame});
  cases.push_back(
      {"broadcasts and gathers", {"surface/collectives"}, kEverywhere | kVersions, copies});
  cases.push_back(
      {"own operation", {"surface/collectives"}, kEverywhere | kVersions, own_operation});
  return cases;
}

}  // namespace conformance
