// SPDX-License-Identifier: Apache-2.0
// Named parameters with their gradients and Adam's moments, each kind in one flat array, so that
// one all-reduce, one update and one file serve them all. Knows nothing of the model.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "buffer.h"
#include "compute.h"
#include "sha256.h"

namespace moe {

struct ParameterSpec {
  std::string name;  // unique in the whole job; also names the stream of its first values
  Index size;
  float base;    // first values lie in [base - spread, base + spread)
  float spread;  // 0: all equal to base
};

struct Tensor {
  float* value;
  float* gradient;
};

class ParameterStore final {
 public:
  // Bytes one parameter takes: value, gradient and two moments.
  static constexpr Index kBytesPerParameter = 4 * sizeof(float);

  ParameterStore(std::vector<ParameterSpec> specs, std::uint64_t seed);

  Tensor tensor(const std::string& name) const;
  const std::vector<ParameterSpec>& specs() const { return specs_; }

  // Flat views; padding between tensors stays zero.
  Index flat_size() const { return values_.size(); }
  float* gradients() const { return gradients_.get(); }

  void zero_gradients(Compute& compute);
  void update(Compute& compute, const AdamSettings& settings);

  // Over all values in the order of the specs, without padding. REQUIRES: no queued work.
  Sha256::Digest digest() const;

 private:
  std::vector<ParameterSpec> specs_;
  std::vector<Index> offsets_;
  std::unordered_map<std::string, Index> offset_of_;
  Buffer<float> values_;
  Buffer<float> gradients_;
  Buffer<float> means_;
  Buffer<float> variances_;
};

}  // namespace moe
