// SPDX-License-Identifier: Apache-2.0
// One step of training and what surrounds it.
#include "trainer.h"

#include <algorithm>
#include <chrono>

namespace moe {
namespace {

constexpr int kWarmUpSteps = 10;
constexpr int kValidationBatches = 4;
constexpr Index kMetrics = 2;

std::vector<ParameterSpec> local_expert_specs(const ModelConfig& config, const Group& group) {
  const Index local = config.experts / group.ranks();
  return expert_specs(config, group.rank() * local, local);
}

}  // namespace

Trainer::Trainer(const ModelConfig& config, float learning_rate, const TextSampler& text,
                 Compute& compute, Group& group)
    : config_(config),
      learning_rate_(learning_rate),
      text_(text),
      compute_(compute),
      group_(group),
      shared_(shared_specs(config), config.seed),
      experts_(local_expert_specs(config, group), config.seed),
      model_(config, shared_, experts_, compute, group),
      tokens_(config.rows()),
      targets_(config.rows()),
      metrics_(kMetrics) {}

StepRecord Trainer::step(int number) {
  const auto begin = std::chrono::steady_clock::now();
  draw(Split::kTrain, number);
  compute_.zero(metrics_.get(), kMetrics);
  shared_.zero_gradients(compute_);
  experts_.zero_gradients(compute_);
  model_.forward(tokens_.get(), targets_.get());
  model_.backward();
  model_.add_metrics(metrics_.get());

  // The loss of the job is the mean over its ranks. An expert has gathered its share from every
  // rank already, so both kinds of gradients need the same division, which Adam does.
  group_.all_reduce(shared_.gradients(), shared_.flat_size());
  const AdamSettings settings{
      learning_rate_ * std::min(1.0F, static_cast<float>(number) / kWarmUpSteps),
      0.9F,
      0.99F,
      1e-8F,
      1.0F / static_cast<float>(group_.ranks()),
      number};
  shared_.update(compute_, settings);
  experts_.update(compute_, settings);
  const Metrics metrics = collect(1);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  return {number, metrics.loss, metrics.balance, took.count(),
          static_cast<double>(group_.take_exchange_ms())};
}

float Trainer::validate() {
  compute_.zero(metrics_.get(), kMetrics);
  for (int i = 0; i < kValidationBatches; ++i) {
    group_.synchronize();  // the tokens are about to be replaced
    draw(Split::kValidation, i);
    model_.forward(tokens_.get(), targets_.get());
    model_.add_metrics(metrics_.get());
  }
  const Metrics metrics = collect(kValidationBatches);
  group_.take_exchange_ms();
  return metrics.loss;
}

std::string Trainer::parameters_sha256() {
  group_.synchronize();
  constexpr auto kDigest = static_cast<Index>(std::tuple_size_v<Sha256::Digest>);
  Sha256 mine;
  for (const ParameterStore* store : {&shared_, &experts_}) {
    const Sha256::Digest digest = store->digest();
    mine.update(digest.data(), digest.size());
  }
  const Sha256::Digest digest = mine.finish();
  const Buffer<std::uint8_t> own(kDigest);
  const Buffer<std::uint8_t> all(kDigest * group_.ranks());
  std::copy(digest.begin(), digest.end(), own.get());
  group_.all_gather(own.get(), all.get(), kDigest);
  group_.synchronize();
  Sha256 whole;
  whole.update(all.get(), static_cast<std::size_t>(all.size()));
  return Sha256::hex(whole.finish());
}

void Trainer::draw(Split split, int step) {
  text_.draw(split, step, group_.rank() * config_.batch, config_.batch, tokens_.get(),
             targets_.get());
}

Trainer::Metrics Trainer::collect(int batches) {
  group_.all_reduce(metrics_.get(), kMetrics);
  group_.synchronize();
  const float share = 1.0F / static_cast<float>(group_.ranks() * batches);
  return {metrics_[0] * share, metrics_[1] * share};
}

}  // namespace moe
