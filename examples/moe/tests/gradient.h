// SPDX-License-Identifier: Apache-2.0
// Compares a gradient with central differences, element by element, in double precision.
#pragma once

#include <cmath>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "random.h"

namespace moe {

using Values = std::vector<double>;

inline Values random_values(std::size_t size, std::uint64_t seed, double spread = 1) {
  Random random(seed, "values");
  Values values(size);
  for (double& value : values) value = spread * (2.0 * static_cast<double>(random.uniform()) - 1.0);
  return values;
}

inline double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// `loss` must read `x`, which is moved about and put back.
inline void expect_gradient(const char* what, Values& x, const Values& gradient,
                            const std::function<double()>& loss) {
  constexpr double kStep = 1e-5;
  ASSERT_EQ(x.size(), gradient.size()) << what;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double at = x[i];
    x[i] = at + kStep;
    const double above = loss();
    x[i] = at - kStep;
    const double below = loss();
    x[i] = at;
    const double numeric = (above - below) / (2 * kStep);
    EXPECT_NEAR(gradient[i], numeric, 1e-7 + 1e-6 * std::abs(numeric)) << what << " element " << i;
  }
}

}  // namespace moe
