// SPDX-License-Identifier: Apache-2.0
// CPU kernels of the dense parts: linear maps, layer norm, SiLU, embedding, loss, Adam.
// What each computes is stated in compute.h.
#pragma once

#include <cmath>

#include "cpu/matrix.h"

namespace moe::cpu {

template <typename T>
void linear(const T* x, const T* w, const T* bias, T* y, Index rows, Index in, Index out) {
  Matrix<T> result(y, rows, out);
  result.noalias() = ConstMatrix<T>(x, rows, in) * ConstMatrix<T>(w, in, out);
  if (bias != nullptr) result.array().rowwise() += ConstRow<T>(bias, out);
}

template <typename T>
void linear_backward(const T* x, const T* w, const T* d_y, T* d_x, T* d_w, T* d_bias, Index rows,
                     Index in, Index out) {
  const ConstMatrix<T> gradient(d_y, rows, out);
  Matrix<T>(d_x, rows, in).noalias() = gradient * ConstMatrix<T>(w, in, out).transpose();
  Matrix<T>(d_w, in, out).noalias() += ConstMatrix<T>(x, rows, in).transpose() * gradient;
  if (d_bias == nullptr) return;
  Row<T> bias(d_bias, out);
  for (Index i = 0; i < rows; ++i) bias += ConstRow<T>(d_y + i * out, out);
}

template <typename T>
void layer_norm(const T* x, const T* gain, const T* bias, T* y, T* stats, Index rows, Index width) {
  constexpr T kEpsilon = T(1e-5);
  for (Index i = 0; i < rows; ++i) {
    const ConstRow<T> in(x + i * width, width);
    const T mean = in.mean();
    const T scale = T(1) / std::sqrt((in - mean).square().mean() + kEpsilon);
    Row<T>(y + i * width, width) =
        (in - mean) * scale * ConstRow<T>(gain, width) + ConstRow<T>(bias, width);
    stats[2 * i] = mean;
    stats[2 * i + 1] = scale;
  }
}

template <typename T>
void layer_norm_backward(const T* x, const T* gain, const T* stats, const T* d_y, T* d_x, T* d_gain,
                         T* d_bias, Index rows, Index width) {
  Eigen::Array<T, 1, Eigen::Dynamic> normal(width);
  Eigen::Array<T, 1, Eigen::Dynamic> d_normal(width);
  for (Index i = 0; i < rows; ++i) {
    const ConstRow<T> gradient(d_y + i * width, width);
    const T scale = stats[2 * i + 1];
    normal = (ConstRow<T>(x + i * width, width) - stats[2 * i]) * scale;
    d_normal = gradient * ConstRow<T>(gain, width);
    const T mean = d_normal.mean();
    const T along = (d_normal * normal).mean();
    Row<T>(d_x + i * width, width) += scale * (d_normal - mean - normal * along);
    Row<T>(d_gain, width) += gradient * normal;
    Row<T>(d_bias, width) += gradient;
  }
}

template <typename T>
void silu(const T* x, T* y, Index size) {
  const ConstRow<T> in(x, size);
  Row<T>(y, size) = in / (T(1) + (-in).exp());
}

template <typename T>
void silu_backward(const T* x, T* d_y, Index size) {
  for (Index i = 0; i < size; ++i) {
    const T sigmoid = T(1) / (T(1) + std::exp(-x[i]));
    d_y[i] *= sigmoid * (T(1) + x[i] * (T(1) - sigmoid));
  }
}

template <typename T>
void embed(const std::int32_t* tokens, const T* table, const T* positions, T* y, Index rows,
           Index length, Index width) {
  for (Index i = 0; i < rows; ++i) {
    Row<T>(y + i * width, width) = ConstRow<T>(table + tokens[i] * width, width) +
                                   ConstRow<T>(positions + (i % length) * width, width);
  }
}

template <typename T>
void embed_backward(const std::int32_t* tokens, const T* d_y, T* d_table, T* d_positions,
                    Index rows, Index length, Index width) {
  for (Index i = 0; i < rows; ++i) {
    const ConstRow<T> gradient(d_y + i * width, width);
    Row<T>(d_table + tokens[i] * width, width) += gradient;
    Row<T>(d_positions + (i % length) * width, width) += gradient;
  }
}

template <typename T>
void cross_entropy(const T* logits, const std::int32_t* targets, T* loss, T* d_logits, Index rows,
                   Index classes) {
  double sum = 0;
  for (Index i = 0; i < rows; ++i) {
    const ConstRow<T> in(logits + i * classes, classes);
    Row<T> out(d_logits + i * classes, classes);
    const T top = in.maxCoeff();
    out = (in - top).exp();
    const T total = out.sum();
    sum += static_cast<double>(std::log(total) + top - in[targets[i]]);
    out /= total;
    out[targets[i]] -= T(1);
    out /= static_cast<T>(rows);
  }
  loss[0] = static_cast<T>(sum / static_cast<double>(rows));
}

template <typename T>
void adam(T* value, const T* gradient, T* mean, T* variance, Index size,
          const AdamSettings& settings) {
  const T beta1 = settings.beta1;
  const T beta2 = settings.beta2;
  const T correct1 = T(1) / (T(1) - std::pow(beta1, static_cast<T>(settings.step)));
  const T correct2 = T(1) / (T(1) - std::pow(beta2, static_cast<T>(settings.step)));
  const ConstRow<T> raw(gradient, size);
  Row<T> m(mean, size);
  Row<T> v(variance, size);
  m = beta1 * m + (T(1) - beta1) * settings.gradient_scale * raw;
  v = beta2 * v + (T(1) - beta2) * (settings.gradient_scale * raw).square();
  Row<T>(value, size) -=
      settings.learning_rate * (m * correct1) / ((v * correct2).sqrt() + settings.epsilon);
}

}  // namespace moe::cpu
