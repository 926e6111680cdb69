// SPDX-License-Identifier: Apache-2.0
// Queues the CPU kernels on a stream.
#include "cpu/cpu_compute.h"

#include <utility>

#include "cpu/attention.h"
#include "cpu/dense.h"
#include "cpu/routing.h"
#include "cuda_check.h"

namespace moe {
namespace {

class CpuCompute final : public Compute {
 public:
  explicit CpuCompute(cudaStream_t stream) : stream_(stream) {}

  void zero(float* x, Index size) override {
    enqueue([=] { cpu::Row<float>(x, size).setZero(); });
  }
  void add_scaled(const float* x, float factor, float* y, Index size) override {
    enqueue([=] { cpu::Row<float>(y, size) += factor * cpu::ConstRow<float>(x, size); });
  }
  void embed(const std::int32_t* tokens, const float* table, const float* positions, float* y,
             Index rows, Index length, Index width) override {
    enqueue([=] { cpu::embed(tokens, table, positions, y, rows, length, width); });
  }
  void embed_backward(const std::int32_t* tokens, const float* d_y, float* d_table,
                      float* d_positions, Index rows, Index length, Index width) override {
    enqueue([=] { cpu::embed_backward(tokens, d_y, d_table, d_positions, rows, length, width); });
  }
  void layer_norm(const float* x, const float* gain, const float* bias, float* y, float* stats,
                  Index rows, Index width) override {
    enqueue([=] { cpu::layer_norm(x, gain, bias, y, stats, rows, width); });
  }
  void layer_norm_backward(const float* x, const float* gain, const float* stats, const float* d_y,
                           float* d_x, float* d_gain, float* d_bias, Index rows,
                           Index width) override {
    enqueue(
        [=] { cpu::layer_norm_backward(x, gain, stats, d_y, d_x, d_gain, d_bias, rows, width); });
  }
  void linear(const float* x, const float* w, const float* bias, float* y, Index rows, Index in,
              Index out) override {
    enqueue([=] { cpu::linear(x, w, bias, y, rows, in, out); });
  }
  void linear_backward(const float* x, const float* w, const float* d_y, float* d_x, float* d_w,
                       float* d_bias, Index rows, Index in, Index out) override {
    enqueue([=] { cpu::linear_backward(x, w, d_y, d_x, d_w, d_bias, rows, in, out); });
  }
  void silu(const float* x, float* y, Index size) override {
    enqueue([=] { cpu::silu(x, y, size); });
  }
  void silu_backward(const float* x, float* d_y, Index size) override {
    enqueue([=] { cpu::silu_backward(x, d_y, size); });
  }
  void attention(const float* qkv, float* y, float* probs, const AttentionShape& shape) override {
    enqueue([=] { cpu::attention(qkv, y, probs, shape); });
  }
  void attention_backward(const float* qkv, const float* probs, const float* d_y, float* d_qkv,
                          const AttentionShape& shape) override {
    enqueue([=] { cpu::attention_backward(qkv, probs, d_y, d_qkv, shape); });
  }
  void route(float* probs, const Routing& r, Index rows, Index experts) override {
    enqueue([=] { cpu::route(probs, r, r.weight, r.balance, rows, experts); });
  }
  void route_backward(const float* probs, const Routing& r, const float* d_weight,
                      float balance_weight, float* d_logits, Index rows, Index experts) override {
    enqueue(
        [=] { cpu::route_backward(probs, r, d_weight, balance_weight, d_logits, rows, experts); });
  }
  void scatter(const float* x, const Routing& r, float* copies, Index rows, Index width) override {
    enqueue([=] { cpu::scatter(x, r.slot, copies, rows, width); });
  }
  void scatter_backward(const float* d_copies, const Routing& r, float* d_x, Index rows,
                        Index width) override {
    enqueue([=] { cpu::scatter_backward(d_copies, r.slot, d_x, rows, width); });
  }
  void combine(const float* x, const float* copies, const Routing& r, float* y, Index rows,
               Index width) override {
    enqueue([=] { cpu::combine(x, copies, r.slot, r.weight, y, rows, width); });
  }
  void combine_backward(const float* d_y, const float* copies, const Routing& r, float* d_copies,
                        float* d_weight, Index rows, Index width) override {
    enqueue([=] {
      cpu::combine_backward(d_y, copies, r.slot, r.weight, d_copies, d_weight, rows, width);
    });
  }
  void cross_entropy(const float* logits, const std::int32_t* targets, float* loss, float* d_logits,
                     Index rows, Index classes) override {
    enqueue([=] { cpu::cross_entropy(logits, targets, loss, d_logits, rows, classes); });
  }
  void adam(float* value, const float* gradient, float* mean, float* variance, Index size,
            const AdamSettings& settings) override {
    enqueue([=] { cpu::adam(value, gradient, mean, variance, size, settings); });
  }

 private:
  template <typename Work>
  void enqueue(Work work) {
    auto owned = std::make_unique<Work>(std::move(work));
    check(cudaLaunchHostFunc(
              stream_,
              [](void* data) {
                const std::unique_ptr<Work> mine(static_cast<Work*>(data));
                (*mine)();
              },
              owned.get()),
          "cudaLaunchHostFunc");
    static_cast<void>(owned.release());  // the host function deletes it
  }

  cudaStream_t stream_;
};

}  // namespace

std::unique_ptr<Compute> make_cpu_compute(cudaStream_t stream) {
  return std::make_unique<CpuCompute>(stream);
}

}  // namespace moe
