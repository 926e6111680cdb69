// SPDX-License-Identifier: Apache-2.0
// Eigen views on row-major arrays, shared by the CPU kernels. The kernels are templates so that
// their gradients can be checked in double precision.
#pragma once

#define EIGEN_DONT_PARALLELIZE  // results must not depend on a thread count
#include <Eigen/Core>

#include "compute.h"

namespace moe::cpu {

template <typename T>
using Dense = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <typename T>
using Matrix = Eigen::Map<Dense<T>>;
template <typename T>
using ConstMatrix = Eigen::Map<const Dense<T>>;
template <typename T>
using Row = Eigen::Map<Eigen::Array<T, 1, Eigen::Dynamic>>;
template <typename T>
using ConstRow = Eigen::Map<const Eigen::Array<T, 1, Eigen::Dynamic>>;

}  // namespace moe::cpu
