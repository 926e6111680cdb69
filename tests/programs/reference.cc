// SPDX-License-Identifier: Apache-2.0
#include "reference.h"

#include <algorithm>
#include <cstring>
#include <functional>

namespace programs {
namespace {

template <typename T>
void put(Bytes& bytes, uint64_t index, int64_t value) {
  const T typed = static_cast<T>(value);
  std::memcpy(bytes.data() + index * sizeof(T), &typed, sizeof(T));
}

void put(Bytes& bytes, uint64_t index, int64_t value, ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
      return put<int8_t>(bytes, index, value);
    case ncclUint8:
      return put<uint8_t>(bytes, index, value);
    case ncclInt32:
      return put<int32_t>(bytes, index, value);
    case ncclUint32:
      return put<uint32_t>(bytes, index, value);
    case ncclInt64:
      return put<int64_t>(bytes, index, value);
    case ncclUint64:
      return put<uint64_t>(bytes, index, value);
    case ncclFloat32:
      return put<float>(bytes, index, value);
    default:
      return put<double>(bytes, index, value);
  }
}

Bytes make(const Operation& operation, uint64_t elements,
           const std::function<int64_t(uint64_t)>& value) {
  Bytes bytes(elements * size_of(operation.type));
  for (uint64_t i = 0; i < elements; ++i) put(bytes, i, value(i), operation.type);
  return bytes;
}

int64_t reduce(ncclRedOp_t how, int64_t a, int64_t b) {
  switch (how) {
    case ncclSum:
      return a + b;
    case ncclProd:
      return a * b;
    case ncclMax:
      return std::max(a, b);
    default:
      return std::min(a, b);
  }
}

}  // namespace

size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}

bool takes_part(const Operation& o, int rank) {
  return o.kind != Kind::kMessage || rank == o.root || rank == o.peer;
}

Bytes sent(uint64_t seed, const Operation& o, const std::vector<int>& members, int rank) {
  const uint64_t ranks = members.size();
  const bool root = rank == o.root;
  uint64_t blocks = 1;
  if (o.kind == Kind::kAllToAll || o.kind == Kind::kReduceScatter) blocks = ranks;
  if (o.kind == Kind::kScatter) blocks = root ? ranks : 0;
  if (o.kind == Kind::kMessage || o.kind == Kind::kBroadcast) blocks = root ? 1 : 0;
  const int world = members[static_cast<size_t>(rank)];
  return make(o, blocks * o.count, [&](uint64_t i) { return input(seed, o, world, i); });
}

Bytes received(uint64_t seed, const Operation& o, const std::vector<int>& members, int rank) {
  const uint64_t ranks = members.size(), own = static_cast<uint64_t>(rank);
  const auto of = [&](uint64_t from, uint64_t i) { return input(seed, o, members[from], i); };
  const auto root = static_cast<uint64_t>(o.root);
  const auto reduced = [&](uint64_t i) {
    int64_t value = of(0, i);
    for (uint64_t from = 1; from < ranks; ++from) value = reduce(o.reduction, value, of(from, i));
    return value;
  };
  switch (o.kind) {
    case Kind::kMessage:
      if (rank != o.peer) return {};
      return make(o, o.count, [&](uint64_t i) { return of(root, i); });
    case Kind::kAllToAll:
      return make(o, ranks * o.count,
                  [&](uint64_t i) { return of(i / o.count, own * o.count + i % o.count); });
    case Kind::kGather:
      if (own != root) return {};
      [[fallthrough]];
    case Kind::kAllGather:
      return make(o, ranks * o.count, [&](uint64_t i) { return of(i / o.count, i % o.count); });
    case Kind::kScatter:
      return make(o, o.count, [&](uint64_t i) { return of(root, own * o.count + i); });
    case Kind::kBroadcast:
      return make(o, o.count, [&](uint64_t i) { return of(root, i); });
    case Kind::kReduce:
      if (own != root) return {};
      [[fallthrough]];
    case Kind::kAllReduce:
      return make(o, o.count, reduced);
    case Kind::kReduceScatter:
      return make(o, o.count, [&](uint64_t i) { return reduced(own * o.count + i); });
  }
  return {};
}

std::vector<uint64_t> message_bytes(const Operation& o, size_t ranks, int rank) {
  std::vector<uint64_t> bytes(ranks);
  const uint64_t block = o.count * size_of(o.type);
  const bool root = rank == o.root;
  if (o.kind == Kind::kMessage && root) bytes[static_cast<size_t>(o.peer)] = block;
  if (o.kind == Kind::kGather) bytes[static_cast<size_t>(o.root)] = block;
  if (o.kind == Kind::kAllToAll || (o.kind == Kind::kScatter && root)) {
    std::fill(bytes.begin(), bytes.end(), block);
  }
  return bytes;
}

}  // namespace programs
