// SPDX-License-Identifier: Apache-2.0
//
// Every collective in every data type and operation against values computed here.
#include <stdint.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "reduce.h"
#include "world.h"

namespace railyard::emulator {
namespace {

constexpr int kRanks = 4;

/// Elements of any NCCL type, seen as numbers.
class Values {
 public:
  Values(ncclDataType_t type, size_t count)
      : type_(type), size_(type_size(type)), bytes_(count * type_size(type), 0xff) {}

  void* data() { return bytes_.data(); }
  void* data(size_t element) { return bytes_.data() + element * size_; }
  size_t count() const { return bytes_.size() / size_; }

  void set(size_t i, double value) {
    auto f = static_cast<float>(value);
    switch (type_) {
      case ncclInt8:
        return store(i, static_cast<int8_t>(value));
      case ncclUint8:
        return store(i, static_cast<uint8_t>(value));
      case ncclInt32:
        return store(i, static_cast<int32_t>(value));
      case ncclUint32:
        return store(i, static_cast<uint32_t>(value));
      case ncclInt64:
        return store(i, static_cast<int64_t>(value));
      case ncclUint64:
        return store(i, static_cast<uint64_t>(value));
      case ncclFloat16:
        return store(i, float_to_half(f));
      case ncclFloat32:
        return store(i, f);
      case ncclFloat64:
        return store(i, value);
      case ncclBfloat16:
        return store(i, float_to_bfloat(f));
      case ncclFloat8e4m3:
        return store(i, float_to_e4m3(f));
      case ncclFloat8e5m2:
        return store(i, float_to_e5m2(f));
      case ncclNumTypes:
        break;
    }
  }
  bool holds(size_t i, double value) {
    Values expected(type_, 1);
    expected.set(0, value);
    return std::memcmp(data(i), expected.data(), size_) == 0;
  }

 private:
  template <typename T>
  void store(size_t i, T value) {
    std::memcpy(data(i), &value, sizeof value);
  }

  ncclDataType_t type_;
  size_t size_;
  Buffer<uint8_t> bytes_;
};

/// What a rank contributes: small enough for all results to be exact even in eight bits.
double input(int rank, size_t i) {
  return 1 + static_cast<double>((i + i / 3 * 7 + 3 * static_cast<size_t>(rank)) % 5 % 2);
}

double expected(ncclRedOp_t op, size_t i, bool integral) {
  double total = input(0, i);
  for (int rank = 1; rank < kRanks; ++rank) {
    double next = input(rank, i);
    if (op == ncclProd) {
      total *= next;
    } else if (op == ncclMax) {
      total = std::max(total, next);
    } else if (op == ncclMin) {
      total = std::min(total, next);
    } else {
      total += next;
    }
  }
  if (op != ncclAvg) return total;
  return integral ? std::trunc(total / kRanks) : total / kRanks;
}

template <typename F>
void for_all_types(F f) {
  for (int type = 0; type < ncclNumTypes; ++type) f(static_cast<ncclDataType_t>(type));
}

template <typename F>
void for_all_types_and_operations(F f) {
  for_all_types([&](ncclDataType_t type) {
    for (int op = 0; op < ncclNumOps; ++op) f(type, static_cast<ncclRedOp_t>(op));
  });
}

void fill(Values* values, int rank) {
  for (size_t i = 0; i < values->count(); ++i) values->set(i, input(rank, i));
}

/// Compares elements [first, first + values->count()) of a reduction.
void expect_reduced(Values* values, ncclDataType_t type, ncclRedOp_t op, size_t first) {
  for (size_t i = 0; i < values->count(); ++i) {
    ASSERT_TRUE(values->holds(i, expected(op, first + i, type <= ncclUint64)))
        << "type " << type << " operation " << op << " element " << i;
  }
}

TEST(Collective, AllReduce) {
  World(kRanks).run([](Rank& rank) {
    for_all_types_and_operations([&](ncclDataType_t type, ncclRedOp_t op) {
      for (size_t count : {size_t{2}, size_t{1021}}) {
        Values in(type, count);
        Values out(type, count);
        fill(&in, rank.rank);
        ASSERT_NCCL(ncclAllReduce(in.data(), out.data(), count, type, op, rank.comm, rank.stream));
        ASSERT_NCCL(ncclAllReduce(in.data(), in.data(), count, type, op, rank.comm, rank.stream));
        rank.synchronize();
        expect_reduced(&out, type, op, 0);
        expect_reduced(&in, type, op, 0);
      }
    });
  });
}

TEST(Collective, Reduce) {
  World(kRanks).run([](Rank& rank) {
    for_all_types_and_operations([&](ncclDataType_t type, ncclRedOp_t op) {
      Values in(type, 333);
      Values out(type, 333);
      fill(&in, rank.rank);
      ASSERT_NCCL(ncclReduce(in.data(), out.data(), 333, type, op, 1, rank.comm, rank.stream));
      ASSERT_NCCL(ncclReduce(in.data(), in.data(), 333, type, op, 3, rank.comm, rank.stream));
      rank.synchronize();
      if (rank.rank == 1) expect_reduced(&out, type, op, 0);
      if (rank.rank == 3) expect_reduced(&in, type, op, 0);
    });
  });
}

TEST(Collective, ReduceScatter) {
  World(kRanks).run([](Rank& rank) {
    for_all_types_and_operations([&](ncclDataType_t type, ncclRedOp_t op) {
      constexpr size_t kCount = 101;
      Values in(type, kCount * kRanks);
      Values out(type, kCount);
      fill(&in, rank.rank);
      size_t first = static_cast<size_t>(rank.rank) * kCount;
      ASSERT_NCCL(
          ncclReduceScatter(in.data(), out.data(), kCount, type, op, rank.comm, rank.stream));
      ASSERT_NCCL(
          ncclReduceScatter(in.data(), in.data(first), kCount, type, op, rank.comm, rank.stream));
      rank.synchronize();
      expect_reduced(&out, type, op, first);
      Values in_place(type, kCount);
      std::memcpy(in_place.data(), in.data(first), kCount * type_size(type));
      expect_reduced(&in_place, type, op, first);
    });
  });
}

TEST(Collective, AllGather) {
  World(kRanks).run([](Rank& rank) {
    for_all_types([&](ncclDataType_t type) {
      constexpr size_t kCount = 500;
      Values in(type, kCount);
      Values out(type, kCount * kRanks);
      Values both(type, kCount * kRanks);
      fill(&in, rank.rank);
      void* own = both.data(static_cast<size_t>(rank.rank) * kCount);
      std::memcpy(own, in.data(), kCount * type_size(type));
      ASSERT_NCCL(ncclAllGather(in.data(), out.data(), kCount, type, rank.comm, rank.stream));
      ASSERT_NCCL(ncclAllGather(own, both.data(), kCount, type, rank.comm, rank.stream));
      rank.synchronize();
      for (size_t i = 0; i < out.count(); ++i) {
        double value = input(static_cast<int>(i / kCount), i % kCount);
        ASSERT_TRUE(out.holds(i, value) && both.holds(i, value)) << type << " " << i;
      }
    });
  });
}

TEST(Collective, Broadcast) {
  World(kRanks).run([](Rank& rank) {
    for_all_types([&](ncclDataType_t type) {
      Values in(type, 700);
      Values out(type, 700);
      Values legacy(type, 700);
      fill(&in, rank.rank);
      if (rank.rank == 2) fill(&legacy, rank.rank);
      ASSERT_NCCL(ncclBroadcast(in.data(), out.data(), 700, type, 2, rank.comm, rank.stream));
      ASSERT_NCCL(ncclBcast(legacy.data(), 700, type, 2, rank.comm, rank.stream));
      rank.synchronize();
      for (size_t i = 0; i < out.count(); ++i) {
        ASSERT_TRUE(out.holds(i, input(2, i)) && legacy.holds(i, input(2, i))) << type << " " << i;
      }
    });
  });
}

TEST(Collective, EveryRankAndRunGetsTheSameBits) {
  constexpr size_t kCount = 700'001;  // several chunks of every block
  std::vector<std::vector<float>> results(2 * kRanks);
  World(kRanks).run([&](Rank& rank) {
    std::mt19937 random(static_cast<unsigned>(rank.rank));
    std::uniform_real_distribution<float> any(-1, 1);
    Buffer<float> in(kCount);
    for (float& value : in) value = any(random);
    for (size_t run = 0; run < 2; ++run) {
      Buffer<float> out(kCount);
      ASSERT_NCCL(ncclAllReduce(in.data(), out.data(), kCount, ncclFloat32, ncclSum, rank.comm,
                                rank.stream));
      rank.synchronize();
      results[run * kRanks + static_cast<size_t>(rank.rank)] = out.copy();
    }
  });
  for (const auto& result : results) EXPECT_EQ(result, results.front());
}

TEST(Collective, ScalesInputsByEachRanksOwnScalar) {
  World(kRanks).run([](Rank& rank) {
    auto scalar = static_cast<float>(rank.rank + 1);
    Buffer<float> on_device(1, scalar);
    ncclRedOp_t host;
    ncclRedOp_t device;
    ASSERT_NCCL(
        ncclRedOpCreatePreMulSum(&host, &scalar, ncclFloat32, ncclScalarHostImmediate, rank.comm));
    ASSERT_NCCL(ncclRedOpCreatePreMulSum(&device, on_device.data(), ncclFloat32, ncclScalarDevice,
                                         rank.comm));
    scalar = -1;  // was copied
    Buffer<float> in(100, 2.0F);
    Buffer<float> a(100);
    Buffer<float> b(100);
    Buffer<float> part(25);
    ASSERT_NCCL(ncclAllReduce(in.data(), a.data(), 100, ncclFloat32, host, rank.comm, rank.stream));
    ASSERT_NCCL(
        ncclAllReduce(in.data(), b.data(), 100, ncclFloat32, device, rank.comm, rank.stream));
    ASSERT_NCCL(
        ncclReduceScatter(in.data(), part.data(), 25, ncclFloat32, host, rank.comm, rank.stream));
    EXPECT_EQ(ncclAllReduce(in.data(), a.data(), 100, ncclFloat16, host, rank.comm, rank.stream),
              ncclInvalidArgument);
    ASSERT_NCCL(ncclRedOpDestroy(host, rank.comm));
    EXPECT_EQ(ncclRedOpDestroy(host, rank.comm), ncclInvalidArgument);
    rank.synchronize();
    EXPECT_EQ(std::count(a.begin(), a.end(), 20.0F), 100);
    EXPECT_EQ(std::count(b.begin(), b.end(), 20.0F), 100);
    EXPECT_EQ(std::count(part.begin(), part.end(), 20.0F), 25);
  });
}

/// Collectives without elements do not even need the other ranks.
TEST(Collective, DropsEmptyCalls) {
  World(2).run([](Rank& rank) {
    if (rank.rank == 0) {
      ASSERT_NCCL(ncclAllReduce(nullptr, nullptr, 0, ncclInt8, ncclSum, rank.comm, rank.stream));
      ASSERT_NCCL(ncclAlltoAll(nullptr, nullptr, 0, ncclInt8, rank.comm, rank.stream));
      ASSERT_NCCL(ncclGather(nullptr, nullptr, 0, ncclInt8, 1, rank.comm, rank.stream));
    }
    rank.synchronize();
  });
}

}  // namespace
}  // namespace railyard::emulator
