// SPDX-License-Identifier: Apache-2.0
// CPU kernel of causal multi-head attention and its gradient.
#pragma once

#include <cmath>

#include "cpu/matrix.h"

namespace moe::cpu {

// One head of one sequence inside rows that are `stride` wide.
template <typename T>
using Head = Eigen::Map<Dense<T>, 0, Eigen::OuterStride<>>;
template <typename T>
using ConstHead = Eigen::Map<const Dense<T>, 0, Eigen::OuterStride<>>;

template <typename T>
void attention(const T* qkv, T* y, T* probs, const AttentionShape& shape) {
  const auto [batch, length, heads, width] = shape;
  const Index depth = width / heads;
  const T scale = T(1) / std::sqrt(static_cast<T>(depth));
  const Eigen::OuterStride<> wide(3 * width);
  for (Index b = 0; b < batch; ++b) {
    for (Index h = 0; h < heads; ++h) {
      const T* head = qkv + b * length * 3 * width + h * depth;
      const ConstHead<T> q(head, length, depth, wide);
      const ConstHead<T> k(head + width, length, depth, wide);
      const ConstHead<T> v(head + 2 * width, length, depth, wide);
      Matrix<T> p(probs + (b * heads + h) * length * length, length, length);
      p.noalias() = q * k.transpose() * scale;
      for (Index i = 0; i < length; ++i) {
        Row<T> seen(p.data() + i * length, i + 1);
        seen = (seen - seen.maxCoeff()).exp();
        seen /= seen.sum();
        p.row(i).tail(length - i - 1).setZero();
      }
      Head<T>(y + b * length * width + h * depth, length, depth, Eigen::OuterStride<>(width))
          .noalias() = p * v;
    }
  }
}

template <typename T>
void attention_backward(const T* qkv, const T* probs, const T* d_y, T* d_qkv,
                        const AttentionShape& shape) {
  const auto [batch, length, heads, width] = shape;
  const Index depth = width / heads;
  const T scale = T(1) / std::sqrt(static_cast<T>(depth));
  const Eigen::OuterStride<> wide(3 * width);
  Dense<T> d_p(length, length);
  for (Index b = 0; b < batch; ++b) {
    for (Index h = 0; h < heads; ++h) {
      const Index offset = b * length * 3 * width + h * depth;
      const ConstHead<T> q(qkv + offset, length, depth, wide);
      const ConstHead<T> k(qkv + offset + width, length, depth, wide);
      const ConstHead<T> v(qkv + offset + 2 * width, length, depth, wide);
      const ConstMatrix<T> p(probs + (b * heads + h) * length * length, length, length);
      const ConstHead<T> gradient(d_y + b * length * width + h * depth, length, depth,
                                  Eigen::OuterStride<>(width));
      Head<T>(d_qkv + offset + 2 * width, length, depth, wide).noalias() = p.transpose() * gradient;
      d_p.noalias() = gradient * v.transpose();
      for (Index i = 0; i < length; ++i) {
        const T along = p.row(i).dot(d_p.row(i));
        d_p.row(i).array() = p.row(i).array() * (d_p.row(i).array() - along) * scale;
      }
      Head<T>(d_qkv + offset, length, depth, wide).noalias() = d_p * k;
      Head<T>(d_qkv + offset + width, length, depth, wide).noalias() = d_p.transpose() * q;
    }
  }
}

}  // namespace moe::cpu
