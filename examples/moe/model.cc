// SPDX-License-Identifier: Apache-2.0
// The model put together from its layers.
#include "model.h"

#include <cmath>
#include <string>

namespace moe {
namespace {

std::string layer_name(Index layer) { return "layer" + std::to_string(layer); }
std::string attention_name(Index layer) { return layer_name(layer) + ".attention"; }
std::string moe_name(Index layer) { return layer_name(layer) + ".moe"; }

}  // namespace

std::vector<ParameterSpec> shared_specs(const ModelConfig& c) {
  constexpr float kEmbeddingSpread = 0.5F;
  std::vector<ParameterSpec> specs;
  specs.push_back({"embedding", kVocabulary * c.width, 0, kEmbeddingSpread});
  specs.push_back({"positions", c.length * c.width, 0, kEmbeddingSpread});
  for (Index i = 0; i < c.layers; ++i) {
    AttentionLayer::append_specs(c, attention_name(i), specs);
    MoeLayer::append_shared_specs(c, moe_name(i), specs);
  }
  specs.push_back({"final.gain", c.width, 1, 0});
  specs.push_back({"final.bias", c.width, 0, 0});
  // Small, so that the first guess is close to even over all bytes.
  const float spread = 0.1F / std::sqrt(static_cast<float>(c.width));
  specs.push_back({"head", c.width * kVocabulary, 0, spread});
  specs.push_back({"head_bias", kVocabulary, 0, 0});
  return specs;
}

std::vector<ParameterSpec> expert_specs(const ModelConfig& c, Index first, Index count) {
  std::vector<ParameterSpec> specs;
  for (Index i = 0; i < c.layers; ++i) {
    MoeLayer::append_expert_specs(c, moe_name(i), first, count, specs);
  }
  return specs;
}

Model::Model(const ModelConfig& config, const ParameterStore& shared, const ParameterStore& experts,
             Compute& compute, Group& group)
    : config_(config),
      compute_(compute),
      table_(shared.tensor("embedding")),
      positions_(shared.tensor("positions")),
      gain_(shared.tensor("final.gain")),
      bias_(shared.tensor("final.bias")),
      head_(shared.tensor("head")),
      head_bias_(shared.tensor("head_bias")) {
  for (Index i = 0; i < config.layers; ++i) {
    layers_.push_back(
        {std::make_unique<AttentionLayer>(config, attention_name(i), shared, compute),
         std::make_unique<MoeLayer>(config, moe_name(i), shared, experts, compute, group)});
  }
  const Index rows = config.rows();
  for (Buffer<float>* buffer : {&embedded_, &normed_, &d_normed_, &d_x_}) {
    buffer->reserve(rows * config.width);
  }
  for (Buffer<float>* buffer : {&logits_, &d_logits_}) buffer->reserve(rows * kVocabulary);
  stats_.reserve(rows * 2);
  loss_.reserve(1);
}

void Model::forward(const std::int32_t* tokens, const std::int32_t* targets) {
  const Index rows = config_.rows();
  const Index width = config_.width;
  tokens_ = tokens;
  compute_.embed(tokens, table_.value, positions_.value, embedded_.get(), rows, config_.length,
                 width);
  top_ = embedded_.get();
  for (const Layer& layer : layers_) top_ = layer.experts->forward(layer.attention->forward(top_));
  compute_.layer_norm(top_, gain_.value, bias_.value, normed_.get(), stats_.get(), rows, width);
  compute_.linear(normed_.get(), head_.value, head_bias_.value, logits_.get(), rows, width,
                  kVocabulary);
  compute_.cross_entropy(logits_.get(), targets, loss_.get(), d_logits_.get(), rows, kVocabulary);
}

void Model::backward() {
  const Index rows = config_.rows();
  const Index width = config_.width;
  compute_.linear_backward(normed_.get(), head_.value, d_logits_.get(), d_normed_.get(),
                           head_.gradient, head_bias_.gradient, rows, width, kVocabulary);
  compute_.zero(d_x_.get(), rows * width);
  compute_.layer_norm_backward(top_, gain_.value, stats_.get(), d_normed_.get(), d_x_.get(),
                               gain_.gradient, bias_.gradient, rows, width);
  for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
    layer->experts->backward(d_x_.get());
    layer->attention->backward(d_x_.get());
  }
  compute_.embed_backward(tokens_, d_x_.get(), table_.gradient, positions_.gradient, rows,
                          config_.length, width);
}

void Model::add_metrics(float* metrics) {
  compute_.add_scaled(loss_.get(), 1, metrics, 1);
  const float share = 1.0F / static_cast<float>(layers_.size());
  for (const Layer& layer : layers_) {
    compute_.add_scaled(layer.experts->balance(), share, metrics + 1, 1);
  }
}

}  // namespace moe
