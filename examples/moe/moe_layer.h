// SPDX-License-Identifier: Apache-2.0
// A residual block of experts spread over the ranks: norm, top-2 router, dispatch of every token
// to its two experts wherever they live, expert networks, combination. No token is dropped.
#pragma once

#include <string>
#include <vector>

#include "buffer.h"
#include "compute.h"
#include "config.h"
#include "group.h"
#include "parameters.h"
#include "plan.h"

namespace moe {

class MoeLayer final {
 public:
  MoeLayer(const ModelConfig& config, const std::string& name, const ParameterStore& shared,
           const ParameterStore& experts, Compute& compute, Group& group);

  static void append_shared_specs(const ModelConfig& config, const std::string& name,
                                  std::vector<ParameterSpec>& specs);
  // Of experts first .. first + count - 1.
  static void append_expert_specs(const ModelConfig& config, const std::string& name, Index first,
                                  Index count, std::vector<ParameterSpec>& specs);

  // Returns the output, which lives until the next call. Waits once, for the counts.
  const float* forward(const float* x);
  // `d_x` comes with the gradient of the output and leaves with that of the input.
  void backward(float* d_x);

  // Where forward() leaves the balance loss.
  const float* balance() const { return balance_.get(); }

 private:
  struct Expert {
    Tensor up, up_bias, down, down_bias;
  };
  void reserve_received(Index rows);
  void run_experts();
  void run_experts_backward();

  const ModelConfig config_;
  Compute& compute_;
  Group& group_;
  Tensor gain_, bias_, router_;
  std::vector<Expert> experts_;
  ExchangePlan plan_;
  const float* x_ = nullptr;

  // One row per token, or per choice of a token.
  Buffer<float> normed_, d_normed_, stats_, probs_, d_logits_, y_;
  Buffer<float> weight_, d_weight_, balance_;
  Buffer<std::int32_t> expert_, slot_, counts_, received_counts_;
  Buffer<float> sent_, returned_, d_sent_, d_returned_;
  // One row per copy received for the experts of this rank.
  Buffer<float> input_, before_, hidden_, output_, d_input_, d_hidden_, d_output_;
  Routing routing_;
};

}  // namespace moe
