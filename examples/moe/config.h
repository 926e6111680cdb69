// SPDX-License-Identifier: Apache-2.0
// The shape of the model and of its training, as every rank must agree on it.
#pragma once

#include <cstdint>

#include "compute.h"

namespace moe {

constexpr Index kVocabulary = 256;  // bytes

struct ModelConfig {
  Index width = 64;    // of a token
  Index hidden = 128;  // inside an expert
  Index layers = 2;
  Index heads = 4;
  Index experts = 0;  // in the whole job, per layer
  Index length = 64;  // tokens of a sequence
  Index batch = 8;    // sequences per rank and step
  float balance_weight = 0.01F;
  std::uint64_t seed = 1;

  Index rows() const { return batch * length; }
};

}  // namespace moe
