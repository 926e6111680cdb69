// SPDX-License-Identifier: Apache-2.0
#include "reduce.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace railyard::emulator {
namespace {

/// A binary format narrower than float.
struct Format {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;  ///< the highest exponent holds infinity and NaNs, else one NaN and numbers
  bool saturates;     ///< too large becomes the largest number, else infinity
};
constexpr Format kHalf{5, 10, true, false};
constexpr Format kE4m3{4, 3, false, true};
constexpr Format kE5m2{5, 2, true, true};

constexpr int bias(Format f) { return (1 << (f.exponent_bits - 1)) - 1; }
constexpr uint32_t sign_bit(Format f) { return 1U << (f.exponent_bits + f.mantissa_bits); }
constexpr uint32_t infinity(Format f) { return ((1U << f.exponent_bits) - 1) << f.mantissa_bits; }
constexpr uint32_t nan(Format f) { return sign_bit(f) - 1; }
/// The largest finite number.
constexpr uint32_t largest(Format f) { return f.has_infinity ? infinity(f) - 1 : nan(f) - 1; }

float widen(Format f, uint32_t bits) {
  bool negative = (bits & sign_bit(f)) != 0;
  uint32_t magnitude = bits & (sign_bit(f) - 1);
  uint32_t mantissa = magnitude & ((1U << f.mantissa_bits) - 1);
  int exponent = static_cast<int>(magnitude >> f.mantissa_bits);
  float value;
  if (magnitude > (f.has_infinity ? infinity(f) : largest(f))) {
    value = std::nanf("");
  } else if (f.has_infinity && magnitude == infinity(f)) {
    value = HUGE_VALF;
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<float>(mantissa), 1 - bias(f) - f.mantissa_bits);
  } else {
    value = std::ldexp(static_cast<float>(mantissa | (1U << f.mantissa_bits)),
                       exponent - bias(f) - f.mantissa_bits);
  }
  return negative ? -value : value;
}

uint32_t narrow(Format f, float value) {
  uint32_t sign = std::signbit(value) ? sign_bit(f) : 0;
  if (std::isnan(value)) return sign | nan(f);
  float magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude < 2^exponent
  // Below the smallest normal number the distance between neighbours no longer shrinks.
  int unit = std::max(exponent - 1, 1 - bias(f)) - f.mantissa_bits;
  uint32_t result = largest(f) + 1;
  if (std::isfinite(magnitude) && exponent <= bias(f) + 2) {
    auto steps = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, -unit)));
    // A carry out of the mantissa moves into the exponent, which is what rounding up means.
    auto rows = static_cast<uint32_t>(unit + f.mantissa_bits + bias(f) - 1);
    result = (rows << f.mantissa_bits) + steps;
  }
  if (result > largest(f)) result = f.saturates ? largest(f) : infinity(f);
  return sign | result;
}

/// How a type is stored and in what it is computed.
template <typename Stored, typename Computed>
struct Plain {
  using Storage = Stored;
  using Value = Computed;
  static Value load(Storage s) { return static_cast<Value>(s); }
  static Storage store(Value v) { return static_cast<Storage>(v); }
};
template <typename Stored, float (*Load)(Stored), Stored (*Store)(float)>
struct Narrow {
  using Storage = Stored;
  using Value = float;
  static Value load(Storage s) { return Load(s); }
  static Storage store(Value v) { return Store(v); }
};

template <typename F>
bool with_type(ncclDataType_t type, F f) {
  switch (type) {
    case ncclInt8:
      f(Plain<int8_t, int8_t>{});
      return true;
    case ncclUint8:
      f(Plain<uint8_t, uint8_t>{});
      return true;
    case ncclInt32:
      f(Plain<int32_t, int32_t>{});
      return true;
    case ncclUint32:
      f(Plain<uint32_t, uint32_t>{});
      return true;
    case ncclInt64:
      f(Plain<int64_t, int64_t>{});
      return true;
    case ncclUint64:
      f(Plain<uint64_t, uint64_t>{});
      return true;
    case ncclFloat16:
      f(Narrow<uint16_t, half_to_float, float_to_half>{});
      return true;
    case ncclFloat32:
      f(Plain<float, float>{});
      return true;
    case ncclFloat64:
      f(Plain<double, double>{});
      return true;
    case ncclBfloat16:
      f(Narrow<uint16_t, bfloat_to_float, float_to_bfloat>{});
      return true;
    case ncclFloat8e4m3:
      f(Narrow<uint8_t, e4m3_to_float, float_to_e4m3>{});
      return true;
    case ncclFloat8e5m2:
      f(Narrow<uint8_t, e5m2_to_float, float_to_e5m2>{});
      return true;
    case ncclNumTypes:
      break;
  }
  return false;
}

/// Integers are added and multiplied unsigned, where overflow is defined.
template <typename T, typename F>
T wrapping(T a, T b, F f) {
  if constexpr (std::is_integral_v<T>) {
    using Wide = std::conditional_t<(sizeof(T) < 8), uint32_t, uint64_t>;
    return static_cast<T>(f(static_cast<Wide>(a), static_cast<Wide>(b)));
  } else {
    return f(a, b);
  }
}

template <typename T>
void combine(ncclRedOp_t op, T* total, const T* next, size_t n) {
  switch (op) {
    case ncclProd:
      for (size_t i = 0; i < n; ++i) {
        total[i] = wrapping(total[i], next[i], [](auto a, auto b) { return a * b; });
      }
      return;
    case ncclMax:
      for (size_t i = 0; i < n; ++i) total[i] = std::max(total[i], next[i]);
      return;
    case ncclMin:
      for (size_t i = 0; i < n; ++i) total[i] = std::min(total[i], next[i]);
      return;
    default:  // sums and averages
      for (size_t i = 0; i < n; ++i) {
        total[i] = wrapping(total[i], next[i], [](auto a, auto b) { return a + b; });
      }
  }
}

template <typename T>
T divide(T value, size_t divisor) {
  using Wide = std::conditional_t<
      std::is_floating_point_v<T>, T,
      std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>;  // holds any number of ranks
  return static_cast<T>(static_cast<Wide>(value) / static_cast<Wide>(divisor));
}

constexpr size_t kBlock = 512;

template <typename Type>
void load_block(const void* source, size_t offset, size_t n, typename Type::Value* out) {
  using Storage = typename Type::Storage;
  Storage raw[kBlock];
  std::memcpy(raw, static_cast<const Storage*>(source) + offset, n * sizeof(Storage));
  for (size_t i = 0; i < n; ++i) out[i] = Type::load(raw[i]);
}

template <typename Type>
void store_block(const typename Type::Value* values, size_t offset, size_t n, void* target) {
  using Storage = typename Type::Storage;
  Storage raw[kBlock];
  for (size_t i = 0; i < n; ++i) raw[i] = Type::store(values[i]);
  std::memcpy(static_cast<Storage*>(target) + offset, raw, n * sizeof(Storage));
}

}  // namespace

size_t type_size(ncclDataType_t type) {
  size_t size = 0;
  with_type(type, [&](auto t) { size = sizeof(typename decltype(t)::Storage); });
  return size;
}

void reduce(ncclDataType_t type, ncclRedOp_t op, const std::vector<const void*>& sources,
            uint64_t count, void* target) {
  with_type(type, [&](auto t) {
    using Type = decltype(t);
    using Value = typename Type::Value;
    for (size_t at = 0; at < count; at += kBlock) {
      size_t n = std::min<size_t>(kBlock, count - at);
      Value total[kBlock];
      Value next[kBlock];
      load_block<Type>(sources[0], at, n, total);
      for (size_t s = 1; s < sources.size(); ++s) {
        load_block<Type>(sources[s], at, n, next);
        combine(op, total, next, n);
      }
      if (op == ncclAvg) {
        for (size_t i = 0; i < n; ++i) total[i] = divide(total[i], sources.size());
      }
      store_block<Type>(total, at, n, target);
    }
  });
}

void scale(ncclDataType_t type, const void* source, const void* scalar, uint64_t count,
           void* target) {
  with_type(type, [&](auto t) {
    using Type = decltype(t);
    using Value = typename Type::Value;
    Value factor;
    load_block<Type>(scalar, 0, 1, &factor);
    for (size_t at = 0; at < count; at += kBlock) {
      size_t n = std::min<size_t>(kBlock, count - at);
      Value values[kBlock];
      Value factors[kBlock];
      std::fill_n(factors, n, factor);
      load_block<Type>(source, at, n, values);
      combine(ncclProd, values, factors, n);
      store_block<Type>(values, at, n, target);
    }
  });
}

float half_to_float(uint16_t bits) { return widen(kHalf, bits); }
uint16_t float_to_half(float value) { return static_cast<uint16_t>(narrow(kHalf, value)); }

float bfloat_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}
uint16_t float_to_bfloat(float value) {
  if (std::isnan(value)) return 0x7fff;
  auto bits = std::bit_cast<uint32_t>(value);
  bits += 0x7fff + ((bits >> 16) & 1);  // to nearest, ties to even
  return static_cast<uint16_t>(bits >> 16);
}

float e4m3_to_float(uint8_t bits) { return widen(kE4m3, bits); }
uint8_t float_to_e4m3(float value) { return static_cast<uint8_t>(narrow(kE4m3, value)); }
float e5m2_to_float(uint8_t bits) { return widen(kE5m2, bits); }
uint8_t float_to_e5m2(float value) { return static_cast<uint8_t>(narrow(kE5m2, value)); }

}  // namespace railyard::emulator
