// SPDX-License-Identifier: Apache-2.0
// Forward and backward of the attention block.
#include "attention_layer.h"

#include <cmath>

namespace moe {
namespace {

AttentionShape shape_of(const ModelConfig& c) { return {c.batch, c.length, c.heads, c.width}; }

}  // namespace

void AttentionLayer::append_specs(const ModelConfig& c, const std::string& name,
                                  std::vector<ParameterSpec>& specs) {
  const float spread = 1.0F / std::sqrt(static_cast<float>(c.width));
  specs.push_back({name + ".gain", c.width, 1, 0});
  specs.push_back({name + ".bias", c.width, 0, 0});
  specs.push_back({name + ".in", c.width * 3 * c.width, 0, spread});
  specs.push_back({name + ".in_bias", 3 * c.width, 0, 0});
  specs.push_back({name + ".out", c.width * c.width, 0, spread});
  specs.push_back({name + ".out_bias", c.width, 0, 0});
}

AttentionLayer::AttentionLayer(const ModelConfig& config, const std::string& name,
                               const ParameterStore& shared, Compute& compute)
    : config_(config),
      compute_(compute),
      gain_(shared.tensor(name + ".gain")),
      bias_(shared.tensor(name + ".bias")),
      in_(shared.tensor(name + ".in")),
      in_bias_(shared.tensor(name + ".in_bias")),
      out_(shared.tensor(name + ".out")),
      out_bias_(shared.tensor(name + ".out_bias")) {
  const Index rows = config.rows();
  for (Buffer<float>* buffer : {&normed_, &d_normed_, &mixed_, &d_mixed_, &y_}) {
    buffer->reserve(rows * config.width);
  }
  for (Buffer<float>* buffer : {&qkv_, &d_qkv_}) buffer->reserve(rows * 3 * config.width);
  stats_.reserve(rows * 2);
  probs_.reserve(rows * config.heads * config.length);
}

const float* AttentionLayer::forward(const float* x) {
  const Index rows = config_.rows();
  const Index width = config_.width;
  x_ = x;
  compute_.layer_norm(x, gain_.value, bias_.value, normed_.get(), stats_.get(), rows, width);
  compute_.linear(normed_.get(), in_.value, in_bias_.value, qkv_.get(), rows, width, 3 * width);
  compute_.attention(qkv_.get(), mixed_.get(), probs_.get(), shape_of(config_));
  compute_.linear(mixed_.get(), out_.value, out_bias_.value, y_.get(), rows, width, width);
  compute_.add_scaled(x, 1, y_.get(), rows * width);
  return y_.get();
}

void AttentionLayer::backward(float* d_x) {
  const Index rows = config_.rows();
  const Index width = config_.width;
  compute_.linear_backward(mixed_.get(), out_.value, d_x, d_mixed_.get(), out_.gradient,
                           out_bias_.gradient, rows, width, width);
  compute_.attention_backward(qkv_.get(), probs_.get(), d_mixed_.get(), d_qkv_.get(),
                              shape_of(config_));
  compute_.linear_backward(normed_.get(), in_.value, d_qkv_.get(), d_normed_.get(), in_.gradient,
                           in_bias_.gradient, rows, width, 3 * width);
  compute_.layer_norm_backward(x_, gain_.value, stats_.get(), d_normed_.get(), d_x, gain_.gradient,
                               bias_.gradient, rows, width);
}

}  // namespace moe
