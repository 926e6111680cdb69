// SPDX-License-Identifier: Apache-2.0
//
// Conversions of narrow floating types, and reductions in memory.
#include "reduce.h"

#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

namespace railyard::emulator {
namespace {

TEST(Narrow, KnowsLandmarks) {
  EXPECT_EQ(half_to_float(0x3c00), 1.0F);
  EXPECT_EQ(half_to_float(0x0001), std::ldexp(1.0F, -24));
  EXPECT_EQ(half_to_float(0x7bff), 65504.0F);
  EXPECT_EQ(half_to_float(0xfc00), -HUGE_VALF);
  EXPECT_EQ(float_to_half(65520.0F), 0x7c00);
  EXPECT_EQ(float_to_half(-2.0F), 0xc000);
  EXPECT_EQ(bfloat_to_float(0x3f80), 1.0F);
  EXPECT_EQ(float_to_bfloat(1.0F + std::ldexp(1.0F, -8)), 0x3f80);  // a tie goes to even
  EXPECT_EQ(float_to_bfloat(1.0F + 3 * std::ldexp(1.0F, -8)), 0x3f82);
  EXPECT_EQ(e4m3_to_float(0x38), 1.0F);
  EXPECT_EQ(e4m3_to_float(0x7e), 448.0F);
  EXPECT_EQ(e4m3_to_float(0x01), std::ldexp(1.0F, -9));
  EXPECT_EQ(float_to_e4m3(1000.0F), 0x7e);  // saturates
  EXPECT_EQ(e5m2_to_float(0x3c), 1.0F);
  EXPECT_EQ(e5m2_to_float(0x7b), 57344.0F);
  EXPECT_EQ(float_to_e5m2(1e6F), 0x7b);
  EXPECT_TRUE(std::isnan(e4m3_to_float(0x7f)));
  EXPECT_TRUE(std::isnan(half_to_float(float_to_half(std::nanf("")))));
}

/// Every value goes there and back, and what lies between two values goes to the nearer one.
template <typename Bits>
void check_rounding(float (*widen)(Bits), Bits (*narrow)(float), unsigned first_special) {
  for (unsigned bits = 0; bits + 1 < first_special; ++bits) {
    float low = widen(static_cast<Bits>(bits));
    float high = widen(static_cast<Bits>(bits + 1));
    ASSERT_EQ(narrow(low), bits);
    ASSERT_LT(low, high);
    float middle = low + (high - low) / 2;
    ASSERT_EQ(narrow(middle), bits % 2 == 0 ? bits : bits + 1) << bits;
    ASSERT_EQ(narrow(std::nextafter(middle, low)), bits);
    ASSERT_EQ(narrow(std::nextafter(middle, high)), bits + 1);
  }
}

TEST(Narrow, RoundsToNearestEven) {
  check_rounding(half_to_float, float_to_half, 0x7c00);
  check_rounding(bfloat_to_float, float_to_bfloat, 0x7f80);
  check_rounding(e4m3_to_float, float_to_e4m3, 0x7f);
  check_rounding(e5m2_to_float, float_to_e5m2, 0x7c);
}

template <typename T>
T reduced(ncclDataType_t type, ncclRedOp_t op, std::vector<T> values) {
  std::vector<const void*> sources;
  for (const T& value : values) sources.push_back(&value);
  T result;
  reduce(type, op, sources, 1, &result);
  return result;
}

TEST(Reduce, DoesEveryOperation) {
  EXPECT_EQ(reduced<int>(ncclInt32, ncclSum, {-3, 5, 7}), 9);
  EXPECT_EQ(reduced<int>(ncclInt32, ncclProd, {-3, 5, 7}), -105);
  EXPECT_EQ(reduced<int>(ncclInt32, ncclMax, {-3, 5, -7}), 5);
  EXPECT_EQ(reduced<int>(ncclInt32, ncclMin, {-3, 5, -7}), -7);
  EXPECT_EQ(reduced<int>(ncclInt32, ncclAvg, {-3, 5, -6}), -1);
  EXPECT_EQ(reduced<float>(ncclFloat32, ncclAvg, {1, 2}), 1.5F);
}

TEST(Reduce, WrapsIntegers) {
  EXPECT_EQ(reduced<int8_t>(ncclInt8, ncclSum, {127, 1}), -128);
  EXPECT_EQ(reduced<int32_t>(ncclInt32, ncclProd, {65536, 65536}), 0);
  EXPECT_EQ(reduced<uint64_t>(ncclUint64, ncclSum, {~0ULL, 2}), 1U);
  EXPECT_EQ(reduced<int8_t>(ncclInt8, ncclAvg, std::vector<int8_t>(200, 0)), 0);
}

/// 1 + 2^-11 + 2^-11 is 1 when each step is rounded to fp16.
TEST(Reduce, AccumulatesNarrowTypesInSinglePrecision) {
  uint16_t small = float_to_half(std::ldexp(1.0F, -11));
  uint16_t sum = reduced<uint16_t>(ncclFloat16, ncclSum, {float_to_half(1), small, small});
  EXPECT_EQ(half_to_float(sum), 1 + std::ldexp(1.0F, -10));
}

TEST(Reduce, WorksInPlaceOnManyElements) {
  std::vector<double> a(3001);
  std::vector<double> b(3001);
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<double>(i);
    b[i] = 0.5;
  }
  reduce(ncclFloat64, ncclSum, {a.data(), b.data()}, b.size(), b.data());
  for (size_t i = 0; i < b.size(); ++i) ASSERT_EQ(b[i], static_cast<double>(i) + 0.5);
  double factor = 4;
  scale(ncclFloat64, b.data(), &factor, b.size(), b.data());
  EXPECT_EQ(b[3000], 12002.0);
}

TEST(Types, HaveTheirSizes) {
  size_t expected[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  for (int type = 0; type < ncclNumTypes; ++type) {
    EXPECT_EQ(type_size(static_cast<ncclDataType_t>(type)), expected[type]) << type;
  }
  EXPECT_EQ(type_size(ncclNumTypes), 0U);
}

}  // namespace
}  // namespace railyard::emulator
