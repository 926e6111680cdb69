// SPDX-License-Identifier: Apache-2.0
// The byte-level language model: embedding, layers of causal attention and experts, final norm,
// output map. Holds activations; parameters live in two stores, those every rank keeps alike and
// those of the experts of this rank.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "attention_layer.h"
#include "buffer.h"
#include "compute.h"
#include "config.h"
#include "group.h"
#include "moe_layer.h"
#include "parameters.h"

namespace moe {

std::vector<ParameterSpec> shared_specs(const ModelConfig& config);
std::vector<ParameterSpec> expert_specs(const ModelConfig& config, Index first, Index count);

class Model final {
 public:
  // REQUIRES: config.experts is a multiple of group.ranks(), and heads divide the width.
  Model(const ModelConfig& config, const ParameterStore& shared, const ParameterStore& experts,
        Compute& compute, Group& group);

  // Both take [batch][length] bytes, which must stay untouched until the work is done; `targets`
  // holds the byte that follows each of `tokens`. Every rank must call them together.
  void forward(const std::int32_t* tokens, const std::int32_t* targets);
  // Adds this rank's gradients of loss plus weighted balance to the stores.
  void backward();

  // Adds the last forward()'s mean cross-entropy over this rank's tokens to metrics[0] and the mean
  // of its layers' balance losses to metrics[1].
  void add_metrics(float* metrics);

 private:
  struct Layer {
    std::unique_ptr<AttentionLayer> attention;
    std::unique_ptr<MoeLayer> experts;
  };

  const ModelConfig config_;
  Compute& compute_;
  Tensor table_, positions_, gain_, bias_, head_, head_bias_;
  std::vector<Layer> layers_;
  const std::int32_t* tokens_ = nullptr;
  const float* top_ = nullptr;  // output of the last layer
  Buffer<float> embedded_, normed_, stats_, logits_, d_logits_, d_normed_, d_x_, loss_;
};

}  // namespace moe
