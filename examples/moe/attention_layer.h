// SPDX-License-Identifier: Apache-2.0
// A residual block of causal multi-head attention: norm, one map to queries, keys and values,
// attention, one map back.
#pragma once

#include <string>
#include <vector>

#include "buffer.h"
#include "compute.h"
#include "config.h"
#include "parameters.h"

namespace moe {

class AttentionLayer final {
 public:
  AttentionLayer(const ModelConfig& config, const std::string& name, const ParameterStore& shared,
                 Compute& compute);

  static void append_specs(const ModelConfig& config, const std::string& name,
                           std::vector<ParameterSpec>& specs);

  // Returns the output, which lives until the next call.
  const float* forward(const float* x);
  // `d_x` comes with the gradient of the output and leaves with that of the input.
  void backward(float* d_x);

 private:
  const ModelConfig config_;
  Compute& compute_;
  Tensor gain_, bias_, in_, in_bias_, out_, out_bias_;
  const float* x_ = nullptr;
  Buffer<float> normed_, d_normed_, stats_, qkv_, d_qkv_, probs_, mixed_, d_mixed_, y_;
};

}  // namespace moe
