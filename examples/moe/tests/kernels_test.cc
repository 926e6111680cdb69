// SPDX-License-Identifier: Apache-2.0
// Every CPU kernel's gradient against central differences of its forward function, and Adam and
// the router against plain references. The loss is always the output weighted with fixed numbers.
#include <algorithm>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "cpu/attention.h"
#include "cpu/dense.h"
#include "cpu/routing.h"
#include "gradient.h"

namespace moe {
namespace {

std::size_t size_of(Index size) { return static_cast<std::size_t>(size); }

TEST(Gradient, Linear) {
  const Index rows = 5, in = 4, out = 3;
  Values x = random_values(size_of(rows * in), 1), w = random_values(size_of(in * out), 2),
         bias = random_values(size_of(out), 3);
  const Values d_y = random_values(size_of(rows * out), 4);
  const auto loss = [&] {
    Values y(d_y.size());
    cpu::linear(x.data(), w.data(), bias.data(), y.data(), rows, in, out);
    return dot(y, d_y);
  };
  Values d_x(x.size()), d_w(w.size(), 0), d_bias(bias.size(), 0);
  cpu::linear_backward(x.data(), w.data(), d_y.data(), d_x.data(), d_w.data(), d_bias.data(), rows,
                       in, out);
  expect_gradient("x", x, d_x, loss);
  expect_gradient("w", w, d_w, loss);
  expect_gradient("bias", bias, d_bias, loss);
}

TEST(Gradient, LinearAddsToParametersAndTakesNoRows) {
  const Index in = 4, out = 3;
  const Values w = random_values(size_of(in * out), 2);
  Values d_w(w.size(), 7), d_bias(size_of(out), 7);
  const double none = 0;
  double unused = 0;
  cpu::linear_backward(&none, w.data(), &none, &unused, d_w.data(), d_bias.data(), 0, in, out);
  EXPECT_EQ(d_w, Values(w.size(), 7));
  EXPECT_EQ(d_bias, Values(size_of(out), 7));
}

TEST(Gradient, LayerNorm) {
  const Index rows = 3, width = 6;
  Values x = random_values(size_of(rows * width), 1), gain = random_values(size_of(width), 2),
         bias = random_values(size_of(width), 3);
  const Values d_y = random_values(x.size(), 4);
  Values y(x.size()), stats(size_of(rows * 2));
  const auto loss = [&] {
    cpu::layer_norm(x.data(), gain.data(), bias.data(), y.data(), stats.data(), rows, width);
    return dot(y, d_y);
  };
  loss();
  Values d_x(x.size(), 0), d_gain(gain.size(), 0), d_bias(bias.size(), 0);
  cpu::layer_norm_backward(x.data(), gain.data(), stats.data(), d_y.data(), d_x.data(),
                           d_gain.data(), d_bias.data(), rows, width);
  expect_gradient("x", x, d_x, loss);
  expect_gradient("gain", gain, d_gain, loss);
  expect_gradient("bias", bias, d_bias, loss);
}

TEST(Gradient, Silu) {
  Values x = random_values(9, 1, 4);
  const Values d_y = random_values(x.size(), 2);
  const auto loss = [&] {
    Values y(x.size());
    cpu::silu(x.data(), y.data(), static_cast<Index>(x.size()));
    return dot(y, d_y);
  };
  Values d_x = d_y;
  cpu::silu_backward(x.data(), d_x.data(), static_cast<Index>(x.size()));
  expect_gradient("x", x, d_x, loss);
}

TEST(Gradient, Embedding) {
  const Index length = 3, width = 2;
  const std::vector<std::int32_t> tokens = {1, 0, 1, 3, 1, 0};
  const Index rows = static_cast<Index>(tokens.size());
  Values table = random_values(size_of(4 * width), 1),
         positions = random_values(size_of(length * width), 2);
  const Values d_y = random_values(size_of(rows * width), 3);
  const auto loss = [&] {
    Values y(d_y.size());
    cpu::embed(tokens.data(), table.data(), positions.data(), y.data(), rows, length, width);
    return dot(y, d_y);
  };
  Values d_table(table.size(), 0), d_positions(positions.size(), 0);
  cpu::embed_backward(tokens.data(), d_y.data(), d_table.data(), d_positions.data(), rows, length,
                      width);
  expect_gradient("table", table, d_table, loss);
  expect_gradient("positions", positions, d_positions, loss);
}

TEST(Gradient, Attention) {
  const AttentionShape shape{2, 5, 2, 6};
  Values qkv = random_values(size_of(shape.batch * shape.length * 3 * shape.width), 1);
  const Values d_y = random_values(size_of(shape.batch * shape.length * shape.width), 2);
  Values probs(size_of(shape.batch * shape.heads * shape.length * shape.length));
  const auto loss = [&] {
    Values y(d_y.size());
    cpu::attention(qkv.data(), y.data(), probs.data(), shape);
    return dot(y, d_y);
  };
  loss();
  Values d_qkv(qkv.size());
  const Values kept = probs;
  cpu::attention_backward(qkv.data(), kept.data(), d_y.data(), d_qkv.data(), shape);
  expect_gradient("qkv", qkv, d_qkv, loss);
}

TEST(Attention, SeesNothingLater) {
  const AttentionShape shape{1, 4, 1, 2};
  Values qkv = random_values(size_of(shape.length * 3 * shape.width), 1);
  Values probs(size_of(shape.length * shape.length));
  Values before(size_of(shape.length * shape.width)), after(before.size());
  cpu::attention(qkv.data(), before.data(), probs.data(), shape);
  for (Index i = 3 * 3 * shape.width; i < 4 * 3 * shape.width; ++i) qkv[size_of(i)] += 1;
  cpu::attention(qkv.data(), after.data(), probs.data(), shape);
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + 3 * shape.width, after.begin()));
  EXPECT_FALSE(std::equal(before.begin(), before.end(), after.begin()));
}

TEST(Gradient, CrossEntropy) {
  const Index rows = 4, classes = 5;
  Values logits = random_values(size_of(rows * classes), 1, 3);
  const std::vector<std::int32_t> targets = {0, 4, 2, 2};
  Values d_logits(logits.size());
  const auto loss = [&] {
    double value = 0;
    cpu::cross_entropy(logits.data(), targets.data(), &value, d_logits.data(), rows, classes);
    return value;
  };
  loss();
  const Values gradient = d_logits;
  expect_gradient("logits", logits, gradient, loss);
}

TEST(Loss, OfEvenGuessIsLogOfClasses) {
  const Values logits(8, 0.5);
  const std::int32_t target = 3;
  Values d_logits(8);
  double loss = 0;
  cpu::cross_entropy(logits.data(), &target, &loss, d_logits.data(), 1, 8);
  EXPECT_NEAR(loss, std::log(8.0), 1e-12);
}

// The router with what it decided, in double precision.
struct Router {
  Router(Index rows_, Index experts_, std::uint64_t seed)
      : rows(rows_),
        experts(experts_),
        logits(random_values(size_of(rows_ * experts_), seed, 2)),
        weight(size_of(rows_ * kChoices)),
        expert(weight.size()),
        slot(weight.size()),
        counts(size_of(experts_)) {
    run();
  }
  Routing routing() { return {nullptr, expert.data(), slot.data(), counts.data(), nullptr}; }
  void run() {
    probs = logits;
    cpu::route(probs.data(), routing(), weight.data(), &balance, rows, experts);
  }

  Index rows, experts;
  Values logits, probs, weight;
  std::vector<std::int32_t> expert, slot, counts;
  double balance = 0;
};

TEST(Gradient, Router) {
  Router router(7, 5, 3);
  const Values d_weight = random_values(router.weight.size(), 4);
  const double balance_weight = 0.7;
  const std::vector<std::int32_t> chosen = router.expert;
  Values d_logits(router.logits.size());
  cpu::route_backward(router.probs.data(), router.routing(), d_weight.data(), balance_weight,
                      d_logits.data(), router.rows, router.experts);
  expect_gradient("logits", router.logits, d_logits, [&] {
    router.run();
    EXPECT_EQ(router.expert, chosen) << "the seed puts a token on the edge between two experts";
    return dot(router.weight, d_weight) + balance_weight * router.balance;
  });
}

TEST(Gradient, ScatterAndCombine) {
  const Index width = 3;
  Router router(6, 4, 5);
  Values x = random_values(size_of(router.rows * width), 6),
         copies = random_values(size_of(router.rows * kChoices * width), 7);
  const Values d_copies = random_values(copies.size(), 8), d_y = random_values(x.size(), 9);
  const std::int32_t* slot = router.slot.data();

  Values d_x(x.size(), 0);
  cpu::scatter_backward(d_copies.data(), slot, d_x.data(), router.rows, width);
  expect_gradient("scatter x", x, d_x, [&] {
    Values out(copies.size());
    cpu::scatter(x.data(), slot, out.data(), router.rows, width);
    return dot(out, d_copies);
  });

  const auto loss = [&] {
    Values y(x.size());
    cpu::combine(x.data(), copies.data(), slot, router.weight.data(), y.data(), router.rows, width);
    return dot(y, d_y);
  };
  Values d_returned(copies.size()), d_weight(router.weight.size());
  cpu::combine_backward(d_y.data(), copies.data(), slot, router.weight.data(), d_returned.data(),
                        d_weight.data(), router.rows, width);
  expect_gradient("combine x", x, d_y, loss);
  expect_gradient("combine copies", copies, d_returned, loss);
  expect_gradient("combine weight", router.weight, d_weight, loss);
}

// Against sorting: the two largest, the lower number first where they tie, shares of their sum,
// copies stably sorted by expert.
TEST(Router, MatchesPlainReference) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    Router router(1 + static_cast<Index>(seed % 9), 2 + static_cast<Index>(seed % 6), seed);
    for (double& logit : router.logits) logit = std::round(logit);  // makes ties
    router.run();
    std::vector<std::size_t> copies(router.expert.size());
    for (Index i = 0; i < router.rows; ++i) {
      const double* p = router.probs.data() + i * router.experts;
      EXPECT_NEAR(std::accumulate(p, p + router.experts, 0.0), 1, 1e-12);
      std::vector<std::int32_t> order(size_of(router.experts));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return p[a] > p[b]; });
      for (Index k = 0; k < kChoices; ++k) {
        EXPECT_EQ(router.expert[size_of(i * kChoices + k)], order[size_of(k)]);
        EXPECT_NEAR(router.weight[size_of(i * kChoices + k)],
                    p[order[size_of(k)]] / (p[order[0]] + p[order[1]]), 1e-12);
      }
    }
    std::iota(copies.begin(), copies.end(), std::size_t{0});
    std::stable_sort(copies.begin(), copies.end(),
                     [&](auto a, auto b) { return router.expert[a] < router.expert[b]; });
    for (std::size_t i = 0; i < copies.size(); ++i) EXPECT_EQ(router.slot[copies[i]], i);
    for (std::int32_t e = 0; e < router.experts; ++e) {
      EXPECT_EQ(router.counts[static_cast<std::size_t>(e)],
                std::count(router.expert.begin(), router.expert.end(), e));
    }
  }
}

TEST(Router, BalanceIsOneWhenEvenAndGrowsWhenNot) {
  Router router(4, 4, 1);
  std::fill(router.logits.begin(), router.logits.end(), 0.0);
  router.run();  // all tie, so all go to experts 0 and 1, though the probabilities are even
  EXPECT_NEAR(router.balance, 1, 1e-12);
  for (Index i = 0; i < 4; ++i)
    router.logits[size_of(i * 4)] = router.logits[size_of(i * 4 + 1)] = 9;
  router.run();
  EXPECT_GT(router.balance, 1.9);
}

TEST(Adam, MatchesPlainReference) {
  const AdamSettings settings{0.1F, 0.9F, 0.99F, 1e-8F, 0.25F, 1};
  Values value = random_values(3, 1), expected = value, mean(3, 0), variance(3, 0), m(3, 0),
         v(3, 0);
  for (int step = 1; step <= 4; ++step) {
    const Values gradient = random_values(3, static_cast<std::uint64_t>(step) + 10);
    AdamSettings now = settings;
    now.step = step;
    cpu::adam(value.data(), gradient.data(), mean.data(), variance.data(), 3, now);
    for (std::size_t i = 0; i < 3; ++i) {
      const double g = gradient[i] * 0.25;
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.99 * v[i] + 0.01 * g * g;
      expected[i] -= 0.1 * (m[i] / (1 - std::pow(0.9, step))) /
                     (std::sqrt(v[i] / (1 - std::pow(0.99, step))) + 1e-8);
      EXPECT_NEAR(value[i], expected[i], 1e-5) << "step " << step;
    }
  }
}

}  // namespace
}  // namespace moe
