// SPDX-License-Identifier: Apache-2.0
// Forward and backward of the expert block.
#include "moe_layer.h"

#include <cmath>

namespace moe {
namespace {

std::string expert_name(const std::string& layer, Index expert) {
  return layer + ".expert" + std::to_string(expert);
}

float spread_for(Index inputs) { return 1.0F / std::sqrt(static_cast<float>(inputs)); }

}  // namespace

void MoeLayer::append_shared_specs(const ModelConfig& c, const std::string& name,
                                   std::vector<ParameterSpec>& specs) {
  specs.push_back({name + ".gain", c.width, 1, 0});
  specs.push_back({name + ".bias", c.width, 0, 0});
  specs.push_back({name + ".router", c.width * c.experts, 0, spread_for(c.width)});
}

void MoeLayer::append_expert_specs(const ModelConfig& c, const std::string& name, Index first,
                                   Index count, std::vector<ParameterSpec>& specs) {
  for (Index e = first; e < first + count; ++e) {
    const std::string prefix = expert_name(name, e);
    specs.push_back({prefix + ".up", c.width * c.hidden, 0, spread_for(c.width)});
    specs.push_back({prefix + ".up_bias", c.hidden, 0, 0});
    specs.push_back({prefix + ".down", c.hidden * c.width, 0, spread_for(c.hidden)});
    specs.push_back({prefix + ".down_bias", c.width, 0, 0});
  }
}

MoeLayer::MoeLayer(const ModelConfig& config, const std::string& name, const ParameterStore& shared,
                   const ParameterStore& experts, Compute& compute, Group& group)
    : config_(config),
      compute_(compute),
      group_(group),
      gain_(shared.tensor(name + ".gain")),
      bias_(shared.tensor(name + ".bias")),
      router_(shared.tensor(name + ".router")) {
  const Index rows = config.rows();
  const Index copies = rows * kChoices;
  const Index local = config.experts / group.ranks();
  for (Index e = group.rank() * local; e < (group.rank() + 1) * local; ++e) {
    const std::string prefix = expert_name(name, e);
    experts_.push_back({experts.tensor(prefix + ".up"), experts.tensor(prefix + ".up_bias"),
                        experts.tensor(prefix + ".down"), experts.tensor(prefix + ".down_bias")});
  }
  for (Buffer<float>* buffer : {&normed_, &d_normed_, &y_}) buffer->reserve(rows * config.width);
  for (Buffer<float>* buffer : {&probs_, &d_logits_}) buffer->reserve(rows * config.experts);
  for (Buffer<float>* buffer : {&sent_, &returned_, &d_sent_, &d_returned_}) {
    buffer->reserve(copies * config.width);
  }
  for (Buffer<float>* buffer : {&weight_, &d_weight_}) buffer->reserve(copies);
  for (Buffer<std::int32_t>* buffer : {&expert_, &slot_}) buffer->reserve(copies);
  for (Buffer<std::int32_t>* buffer : {&counts_, &received_counts_}) {
    buffer->reserve(config.experts);
  }
  stats_.reserve(rows * 2);
  balance_.reserve(1);
  routing_ = {weight_.get(), expert_.get(), slot_.get(), counts_.get(), balance_.get()};
}

const float* MoeLayer::forward(const float* x) {
  const Index rows = config_.rows();
  const Index width = config_.width;
  x_ = x;
  compute_.layer_norm(x, gain_.value, bias_.value, normed_.get(), stats_.get(), rows, width);
  compute_.linear(normed_.get(), router_.value, nullptr, probs_.get(), rows, width,
                  config_.experts);
  compute_.route(probs_.get(), routing_, rows, config_.experts);
  compute_.scatter(normed_.get(), routing_, sent_.get(), rows, width);

  const auto local = static_cast<Index>(experts_.size());
  group_.all_to_all(counts_.get(), received_counts_.get(), local);
  group_.synchronize();  // the host posts one message per count
  plan_ = make_plan(counts_.get(), received_counts_.get(), group_.rank(), group_.ranks(), local);
  reserve_received(plan_.received_rows);

  group_.exchange(plan_.dispatch, sent_.get(), input_.get(), width);
  run_experts();
  group_.exchange(plan_.combine, output_.get(), returned_.get(), width);
  compute_.combine(x, returned_.get(), routing_, y_.get(), rows, width);
  return y_.get();
}

void MoeLayer::backward(float* d_x) {
  const Index rows = config_.rows();
  const Index width = config_.width;
  compute_.combine_backward(d_x, returned_.get(), routing_, d_returned_.get(), d_weight_.get(),
                            rows, width);
  group_.exchange(plan_.dispatch, d_returned_.get(), d_output_.get(), width);
  run_experts_backward();
  group_.exchange(plan_.combine, d_input_.get(), d_sent_.get(), width);

  compute_.route_backward(probs_.get(), routing_, d_weight_.get(), config_.balance_weight,
                          d_logits_.get(), rows, config_.experts);
  compute_.linear_backward(normed_.get(), router_.value, d_logits_.get(), d_normed_.get(),
                           router_.gradient, nullptr, rows, width, config_.experts);
  compute_.scatter_backward(d_sent_.get(), routing_, d_normed_.get(), rows, width);
  compute_.layer_norm_backward(x_, gain_.value, stats_.get(), d_normed_.get(), d_x, gain_.gradient,
                               bias_.gradient, rows, width);
}

void MoeLayer::reserve_received(Index rows) {
  // Some room to spare, since counts creep up and down from step to step.
  if (rows * config_.width <= input_.size()) return;
  const Index room = rows + rows / 4;
  for (Buffer<float>* buffer : {&input_, &output_, &d_input_, &d_output_}) {
    buffer->reserve(room * config_.width);
  }
  for (Buffer<float>* buffer : {&before_, &hidden_, &d_hidden_}) {
    buffer->reserve(room * config_.hidden);
  }
}

void MoeLayer::run_experts() {
  const Index width = config_.width;
  const Index hidden = config_.hidden;
  Index row = 0;
  for (std::size_t e = 0; e < experts_.size(); ++e) {
    const Index rows = plan_.rows_of_expert[e];
    if (rows == 0) continue;
    float* before = before_.get() + row * hidden;
    float* after = hidden_.get() + row * hidden;
    compute_.linear(input_.get() + row * width, experts_[e].up.value, experts_[e].up_bias.value,
                    before, rows, width, hidden);
    compute_.silu(before, after, rows * hidden);
    compute_.linear(after, experts_[e].down.value, experts_[e].down_bias.value,
                    output_.get() + row * width, rows, hidden, width);
    row += rows;
  }
}

void MoeLayer::run_experts_backward() {
  const Index width = config_.width;
  const Index hidden = config_.hidden;
  Index row = 0;
  for (std::size_t e = 0; e < experts_.size(); ++e) {
    const Index rows = plan_.rows_of_expert[e];
    if (rows == 0) continue;
    const Expert& expert = experts_[e];
    float* d_hidden = d_hidden_.get() + row * hidden;
    compute_.linear_backward(hidden_.get() + row * hidden, expert.down.value,
                             d_output_.get() + row * width, d_hidden, expert.down.gradient,
                             expert.down_bias.gradient, rows, hidden, width);
    compute_.silu_backward(before_.get() + row * hidden, d_hidden, rows * hidden);
    compute_.linear_backward(input_.get() + row * width, expert.up.value, d_hidden,
                             d_input_.get() + row * width, expert.up.gradient,
                             expert.up_bias.gradient, rows, width, hidden);
    row += rows;
  }
}

}  // namespace moe
