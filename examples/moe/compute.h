// SPDX-License-Identifier: Apache-2.0
// The operations the model is built from. Each call queues work on the stream the implementation
// was made for and returns at once; all pointers must stay valid until that work is done.
//
// Matrices are row-major and dense. `rows` counts tokens. In the backward functions `d_x` is the
// gradient of the loss with respect to `x`; parameter gradients are added to, others are
// overwritten unless the comment says so. The result of every operation depends on its inputs
// alone, never on time or on the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moe {

using Index = std::ptrdiff_t;

constexpr int kChoices = 2;  // experts a token goes to

// Where attention finds its sequences: `batch` of them, `length` tokens each, one after the other.
struct AttentionShape {
  Index batch;
  Index length;
  Index heads;
  Index width;
};

// What the router decided for each token. Tokens are numbered in the order of their choices'
// experts: all copies for expert 0 first, each expert's in token order. `slot` is that number.
struct Routing {
  float* weight;         // [rows][kChoices] share of each chosen expert, summing to 1
  std::int32_t* expert;  // [rows][kChoices] the likeliest first
  std::int32_t* slot;    // [rows][kChoices]
  std::int32_t* counts;  // [experts] copies for each
  float* balance;        // [1] load-balancing loss: 1 when even, up to `experts`
};

struct AdamSettings {
  float learning_rate;
  float beta1;
  float beta2;
  float epsilon;
  float gradient_scale;  // multiplies each gradient first
  int step;              // from 1
};

class Compute {
 public:
  virtual ~Compute() = default;

  virtual void zero(float* x, Index size) = 0;
  // y += factor x
  virtual void add_scaled(const float* x, float factor, float* y, Index size) = 0;

  // y[i] = table[token[i]] + positions[i mod length]
  virtual void embed(const std::int32_t* tokens, const float* table, const float* positions,
                     float* y, Index rows, Index length, Index width) = 0;
  virtual void embed_backward(const std::int32_t* tokens, const float* d_y, float* d_table,
                              float* d_positions, Index rows, Index length, Index width) = 0;

  // Normalises each row; `stats` keeps [rows][2] mean and reciprocal deviation for the way back.
  virtual void layer_norm(const float* x, const float* gain, const float* bias, float* y,
                          float* stats, Index rows, Index width) = 0;
  // Adds to d_x, for layer norm sits at the foot of every residual branch.
  virtual void layer_norm_backward(const float* x, const float* gain, const float* stats,
                                   const float* d_y, float* d_x, float* d_gain, float* d_bias,
                                   Index rows, Index width) = 0;

  // y = x w + bias, with w [in][out]; bias may be null.
  virtual void linear(const float* x, const float* w, const float* bias, float* y, Index rows,
                      Index in, Index out) = 0;
  virtual void linear_backward(const float* x, const float* w, const float* d_y, float* d_x,
                               float* d_w, float* d_bias, Index rows, Index in, Index out) = 0;

  // y = x sigmoid(x)
  virtual void silu(const float* x, float* y, Index size) = 0;
  // d_y becomes d_x in place.
  virtual void silu_backward(const float* x, float* d_y, Index size) = 0;

  // Causal attention over qkv [rows][3 width]; keeps the weights in probs
  // [batch][heads][length][length].
  virtual void attention(const float* qkv, float* y, float* probs, const AttentionShape& shape) = 0;
  virtual void attention_backward(const float* qkv, const float* probs, const float* d_y,
                                  float* d_qkv, const AttentionShape& shape) = 0;

  // Turns router logits [rows][experts] into probabilities in place and chooses.
  virtual void route(float* probs, const Routing& routing, Index rows, Index experts) = 0;
  // d_weight [rows][kChoices] and the balance loss, which enters the loss with `balance_weight`.
  virtual void route_backward(const float* probs, const Routing& routing, const float* d_weight,
                              float balance_weight, float* d_logits, Index rows, Index experts) = 0;

  // copies[slot] = x[row] for each choice of each row
  virtual void scatter(const float* x, const Routing& routing, float* copies, Index rows,
                       Index width) = 0;
  // Adds to d_x.
  virtual void scatter_backward(const float* d_copies, const Routing& routing, float* d_x,
                                Index rows, Index width) = 0;

  // y[row] = x[row] + sum over choices of weight * copies[slot]
  virtual void combine(const float* x, const float* copies, const Routing& routing, float* y,
                       Index rows, Index width) = 0;
  virtual void combine_backward(const float* d_y, const float* copies, const Routing& routing,
                                float* d_copies, float* d_weight, Index rows, Index width) = 0;

  // Mean cross-entropy of logits [rows][classes] into loss[0], and its gradient.
  virtual void cross_entropy(const float* logits, const std::int32_t* targets, float* loss,
                             float* d_logits, Index rows, Index classes) = 0;

  virtual void adam(float* value, const float* gradient, float* mean, float* variance, Index size,
                    const AdamSettings& settings) = 0;
};

}  // namespace moe
