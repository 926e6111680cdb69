// SPDX-License-Identifier: Apache-2.0
// The training loop's body: one step, the validation, and the fingerprint of the outcome.
#pragma once

#include <string>

#include "buffer.h"
#include "compute.h"
#include "config.h"
#include "data.h"
#include "group.h"
#include "model.h"
#include "parameters.h"

namespace moe {

struct StepRecord {
  int step;            // from 1
  float loss;          // mean cross-entropy over all ranks' tokens, before the update
  float balance;       // mean balance loss over ranks and layers
  double step_ms;      // on this rank
  double exchange_ms;  // of it in exchanges, waiting for peers included
};

class Trainer final {
 public:
  Trainer(const ModelConfig& config, float learning_rate, const TextSampler& text, Compute& compute,
          Group& group);

  // Every rank must call each of these together with the others.
  StepRecord step(int number);
  float validate();
  // SHA-256 over the ranks' own digests, which cover all parameters they hold, in rank order.
  std::string parameters_sha256();

 private:
  struct Metrics {
    float loss;
    float balance;
  };
  void draw(Split split, int step);
  Metrics collect(int batches);

  const ModelConfig config_;
  const float learning_rate_;
  const TextSampler& text_;
  Compute& compute_;
  Group& group_;
  ParameterStore shared_;
  ParameterStore experts_;
  Model model_;
  Buffer<std::int32_t> tokens_, targets_;
  Buffer<float> metrics_;
};

}  // namespace moe
