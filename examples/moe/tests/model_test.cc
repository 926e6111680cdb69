// SPDX-License-Identifier: Apache-2.0
// The whole model as a job of one rank: its gradient against central differences along the
// gradient itself, tensor by tensor, and a short training.
#include "model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "cpu/cpu_compute.h"
#include "cuda_check.h"
#include "random.h"
#include "trainer.h"

namespace moe {
namespace {

ModelConfig tiny() {
  ModelConfig config;
  config.width = 16;
  config.hidden = 24;
  config.layers = 2;
  config.heads = 2;
  config.experts = 4;
  config.length = 8;
  config.batch = 2;
  config.balance_weight = 0.1F;
  return config;
}

class OneRank : public ::testing::Test {
 protected:
  void SetUp() override {
    check(cudaStreamCreate(&stream_), "cudaStreamCreate");
    compute_ = make_cpu_compute(stream_);
    ncclUniqueId id{};
    check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    group_ = std::make_unique<Group>(id, 0, 1, stream_);
  }
  void TearDown() override {
    group_->close();
    group_.reset();
    check(cudaStreamDestroy(stream_), "cudaStreamDestroy");
  }

  cudaStream_t stream_ = nullptr;
  std::unique_ptr<Compute> compute_;
  std::unique_ptr<Group> group_;
};

class Gradients : public OneRank {
 protected:
  void SetUp() override {
    OneRank::SetUp();
    shared_ = std::make_unique<ParameterStore>(shared_specs(config_), config_.seed);
    experts_ =
        std::make_unique<ParameterStore>(expert_specs(config_, 0, config_.experts), config_.seed);
    model_ = std::make_unique<Model>(config_, *shared_, *experts_, *compute_, *group_);
    tokens_.reserve(config_.rows());
    targets_.reserve(config_.rows());
    metrics_.reserve(2);
    Random random(9, "text");
    for (Index i = 0; i < config_.rows(); ++i) {
      tokens_[i] = static_cast<std::int32_t>(random.below(kVocabulary));
      targets_[i] = static_cast<std::int32_t>(random.below(kVocabulary));
    }
  }

  double loss() {
    metrics_[0] = metrics_[1] = 0;
    model_->forward(tokens_.get(), targets_.get());
    model_->add_metrics(metrics_.get());
    group_->synchronize();
    const double balance = static_cast<double>(metrics_[1]) * static_cast<double>(config_.layers);
    return static_cast<double>(metrics_[0]) + static_cast<double>(config_.balance_weight) * balance;
  }

  void expect_along_gradient(const ParameterStore& store) {
    for (const ParameterSpec& spec : store.specs()) {
      const Tensor tensor = store.tensor(spec.name);
      const std::vector<float> at(tensor.value, tensor.value + spec.size);
      const double length = std::sqrt(
          std::inner_product(tensor.gradient, tensor.gradient + spec.size, tensor.gradient, 0.0));
      ASSERT_GT(length, 0) << spec.name;
      // Far enough to show in a float, and short of a token that changes its experts.
      const double step = std::min(0.05 / length, 0.004);
      const auto loss_at = [&](double distance) {
        for (Index i = 0; i < spec.size; ++i) {
          const double along = static_cast<double>(tensor.gradient[i]) / length;
          tensor.value[i] = static_cast<float>(
              static_cast<double>(at[static_cast<std::size_t>(i)]) + distance * along);
        }
        const double value = loss();
        std::copy(at.begin(), at.end(), tensor.value);
        return value;
      };
      const double numeric = (loss_at(step) - loss_at(-step)) / (2 * step);
      // Rounding of the loss to a float, and the curve, limit how close this comes.
      EXPECT_NEAR(numeric, length, 0.02 * length + 2e-6 / step) << spec.name;
    }
  }

  static ModelConfig smooth() {
    ModelConfig config = tiny();
    config.seed = 9;  // no token is about to change its experts, where the loss would jump
    return config;
  }

  const ModelConfig config_ = smooth();
  std::unique_ptr<ParameterStore> shared_, experts_;
  std::unique_ptr<Model> model_;
  Buffer<std::int32_t> tokens_, targets_;
  Buffer<float> metrics_;
};

TEST_F(Gradients, OfEveryTensorFollowTheLoss) {
  shared_->zero_gradients(*compute_);
  experts_->zero_gradients(*compute_);
  model_->forward(tokens_.get(), targets_.get());
  model_->backward();
  group_->synchronize();
  expect_along_gradient(*shared_);
  expect_along_gradient(*experts_);
}

std::vector<std::uint8_t> sample_text() {
  std::vector<std::uint8_t> text;
  const std::string line = "the cars wait in the yard until the engine comes along the rail. ";
  while (text.size() < 20000) text.insert(text.end(), line.begin(), line.end());
  return text;
}

struct Trained {
  std::vector<float> losses;
  float validation = 0;
  std::string sha256;
};

Trained train(const ModelConfig& config, int steps, Compute& compute, Group& group) {
  const TextSampler text(sample_text(), config.length, config.seed);
  Trainer trainer(config, 1e-2F, text, compute, group);
  Trained trained;
  for (int i = 1; i <= steps; ++i) {
    const StepRecord record = trainer.step(i);
    EXPECT_EQ(record.step, i);
    EXPECT_GE(record.exchange_ms, 0);
    EXPECT_GE(record.step_ms, record.exchange_ms);
    EXPECT_GT(record.balance, 0.5F);
    trained.losses.push_back(record.loss);
  }
  trained.validation = trainer.validate();
  trained.sha256 = trainer.parameters_sha256();
  return trained;
}

TEST_F(OneRank, LossFallsFromAnEvenGuess) {
  const Trained trained = train(tiny(), 100, *compute_, *group_);
  EXPECT_NEAR(trained.losses.front(), std::log(256.0), 0.1);
  EXPECT_LT(trained.losses.back(), 2.0F);
  EXPECT_LT(trained.validation, 2.0F);
}

TEST_F(OneRank, SameSeedSameParametersOtherSeedOthers) {
  ModelConfig config = tiny();
  const Trained first = train(config, 5, *compute_, *group_);
  const Trained second = train(config, 5, *compute_, *group_);
  EXPECT_EQ(first.sha256, second.sha256);
  EXPECT_EQ(first.losses, second.losses);
  config.seed = 2;
  EXPECT_NE(train(config, 5, *compute_, *group_).sha256, first.sha256);
}

// An expert that one rank initialises has the same first values wherever it lives.
TEST_F(OneRank, FirstValuesDependOnNamesOnly) {
  const ModelConfig config = tiny();
  const ParameterStore all(expert_specs(config, 0, 4), 7);
  const ParameterStore last(expert_specs(config, 3, 1), 7);
  for (const ParameterSpec& spec : last.specs()) {
    EXPECT_TRUE(std::equal(last.tensor(spec.name).value, last.tensor(spec.name).value + spec.size,
                           all.tensor(spec.name).value))
        << spec.name;
  }
}

}  // namespace
}  // namespace moe
