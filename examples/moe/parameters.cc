// SPDX-License-Identifier: Apache-2.0
// Layout, first values, update and digest of named parameters.
#include "parameters.h"

#include <algorithm>
#include <utility>

#include "random.h"

namespace moe {
namespace {

constexpr Index kAlignment = 64;  // elements; every tensor begins on a cache line

}  // namespace

ParameterStore::ParameterStore(std::vector<ParameterSpec> specs, std::uint64_t seed)
    : specs_(std::move(specs)) {
  Index end = 0;
  for (const ParameterSpec& spec : specs_) {
    offsets_.push_back(end);
    offset_of_.emplace(spec.name, end);
    end += (spec.size + kAlignment - 1) / kAlignment * kAlignment;
  }
  for (Buffer<float>* buffer : {&values_, &gradients_, &means_, &variances_}) {
    buffer->reserve(end);
    std::fill_n(buffer->get(), end, 0.0F);
  }
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    Random random(seed, specs_[i].name);
    std::generate_n(values_.get() + offsets_[i], specs_[i].size, [&] {
      return specs_[i].base + specs_[i].spread * (2.0F * random.uniform() - 1.0F);
    });
  }
}

Tensor ParameterStore::tensor(const std::string& name) const {
  const auto found = offset_of_.find(name);
  if (found == offset_of_.end()) fail("there is no parameter named " + name);
  return {values_.get() + found->second, gradients_.get() + found->second};
}

void ParameterStore::zero_gradients(Compute& compute) {
  compute.zero(gradients_.get(), flat_size());
}

void ParameterStore::update(Compute& compute, const AdamSettings& settings) {
  compute.adam(values_.get(), gradients_.get(), means_.get(), variances_.get(), flat_size(),
               settings);
}

Sha256::Digest ParameterStore::digest() const {
  Sha256 hash;
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    hash.update(values_.get() + offsets_[i],
                static_cast<std::size_t>(specs_[i].size) * sizeof(float));
  }
  return hash.finish();
}

}  // namespace moe
