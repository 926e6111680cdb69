// SPDX-License-Identifier: Apache-2.0
// CPU kernels of the router: choice of experts, copies sorted by expert, weighted combination, and
// their gradients. What each computes is stated in compute.h.
#pragma once

#include <algorithm>
#include <vector>

#include "cpu/matrix.h"

namespace moe::cpu {

static_assert(kChoices == 2, "the router's gradient is written for two choices");

// Fills counts and slots from the chosen experts.
inline void number_copies(const std::int32_t* expert, std::int32_t* slot, std::int32_t* counts,
                          Index rows, Index experts) {
  std::fill_n(counts, experts, 0);
  for (Index i = 0; i < rows * kChoices; ++i) ++counts[expert[i]];
  std::vector<std::int32_t> next(static_cast<std::size_t>(experts), 0);
  for (std::size_t e = 1; e < next.size(); ++e) next[e] = next[e - 1] + counts[e - 1];
  for (Index i = 0; i < rows * kChoices; ++i) slot[i] = next[static_cast<std::size_t>(expert[i])]++;
}

// The two likeliest experts, the lower number first where they tie.
template <typename T>
void choose_two(const T* probs, std::int32_t* chosen, Index experts) {
  std::int32_t first = 0;
  std::int32_t second = 1;
  if (probs[1] > probs[0]) std::swap(first, second);
  for (std::int32_t e = 2; e < experts; ++e) {
    if (probs[e] > probs[first]) {
      second = first;
      first = e;
    } else if (probs[e] > probs[second]) {
      second = e;
    }
  }
  chosen[0] = first;
  chosen[1] = second;
}

// `weight` and `balance` are apart from `routing` so that tests may use another scalar type.
template <typename T>
void route(T* probs, const Routing& routing, T* weight, T* balance, Index rows, Index experts) {
  Eigen::Array<T, 1, Eigen::Dynamic> mean = Eigen::Array<T, 1, Eigen::Dynamic>::Zero(experts);
  for (Index i = 0; i < rows; ++i) {
    Row<T> p(probs + i * experts, experts);
    p = (p - p.maxCoeff()).exp();
    p /= p.sum();
    mean += p;
    std::int32_t* chosen = routing.expert + i * kChoices;
    choose_two(p.data(), chosen, experts);
    const T sum = p[chosen[0]] + p[chosen[1]];
    weight[i * kChoices] = p[chosen[0]] / sum;
    weight[i * kChoices + 1] = p[chosen[1]] / sum;
  }
  number_copies(routing.expert, routing.slot, routing.counts, rows, experts);
  T loss = 0;
  for (Index e = 0; e < experts; ++e) loss += static_cast<T>(routing.counts[e]) * mean[e];
  const T copies = static_cast<T>(rows * kChoices);
  balance[0] = loss * static_cast<T>(experts) / copies / static_cast<T>(rows);
}

// The share of copies each expert receives is held constant, as is usual: it has no gradient.
template <typename T>
void route_backward(const T* probs, const Routing& routing, const T* d_weight, T balance_weight,
                    T* d_logits, Index rows, Index experts) {
  const T unit = balance_weight * static_cast<T>(experts) / static_cast<T>(rows * kChoices) /
                 static_cast<T>(rows);
  Eigen::Array<T, 1, Eigen::Dynamic> from_balance(experts);
  for (Index e = 0; e < experts; ++e) from_balance[e] = unit * static_cast<T>(routing.counts[e]);
  Eigen::Array<T, 1, Eigen::Dynamic> d_p(experts);
  for (Index i = 0; i < rows; ++i) {
    const ConstRow<T> p(probs + i * experts, experts);
    const std::int32_t* chosen = routing.expert + i * kChoices;
    const T sum = p[chosen[0]] + p[chosen[1]];
    const T pull = (d_weight[i * kChoices] - d_weight[i * kChoices + 1]) / (sum * sum);
    d_p = from_balance;
    d_p[chosen[0]] += pull * p[chosen[1]];
    d_p[chosen[1]] -= pull * p[chosen[0]];
    const T along = (d_p * p).sum();
    Row<T>(d_logits + i * experts, experts) = p * (d_p - along);
  }
}

template <typename T>
void scatter(const T* x, const std::int32_t* slot, T* copies, Index rows, Index width) {
  for (Index i = 0; i < rows * kChoices; ++i) {
    Row<T>(copies + slot[i] * width, width) = ConstRow<T>(x + i / kChoices * width, width);
  }
}

template <typename T>
void scatter_backward(const T* d_copies, const std::int32_t* slot, T* d_x, Index rows,
                      Index width) {
  for (Index i = 0; i < rows * kChoices; ++i) {
    Row<T>(d_x + i / kChoices * width, width) += ConstRow<T>(d_copies + slot[i] * width, width);
  }
}

template <typename T>
void combine(const T* x, const T* copies, const std::int32_t* slot, const T* weight, T* y,
             Index rows, Index width) {
  for (Index i = 0; i < rows; ++i) {
    const Index c = i * kChoices;
    Row<T>(y + i * width, width) = ConstRow<T>(x + i * width, width) +
                                   weight[c] * ConstRow<T>(copies + slot[c] * width, width) +
                                   weight[c + 1] * ConstRow<T>(copies + slot[c + 1] * width, width);
  }
}

template <typename T>
void combine_backward(const T* d_y, const T* copies, const std::int32_t* slot, const T* weight,
                      T* d_copies, T* d_weight, Index rows, Index width) {
  for (Index i = 0; i < rows * kChoices; ++i) {
    const ConstRow<T> gradient(d_y + i / kChoices * width, width);
    Row<T>(d_copies + slot[i] * width, width) = weight[i] * gradient;
    d_weight[i] = (gradient * ConstRow<T>(copies + slot[i] * width, width)).sum();
  }
}

}  // namespace moe::cpu
