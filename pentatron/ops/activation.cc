// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/activation.h"

#include <memory>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/ops/backward.h"
#include "pentatron/ops/op_table.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/saved.h"

namespace pentatron::ops {
namespace {

constexpr std::string_view kActivation = "Activation", kGated = "Gated";

class ActivationBackward final : public Backward {
 public:
  ActivationBackward(Activation kind, const Tensor& x, const Scope& scope)
      : kind_(kind), x_(scope.save(x, kActivation)) {}
  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    if (!output_grads[0].defined()) return {Tensor()};
    const Tensor dy = output_grads[0].contiguous(), x = x_.get().contiguous();
    return {op_table(x.device()).activation_backward(kind_, x, dy)};
  }
  void release() override { x_.release(); }
  std::string_view name() const override { return kActivation; }

 private:
  Activation kind_;
  Saved x_;
};

class GatedBackward final : public Backward {
 public:
  GatedBackward(const Gate& gate, const Tensor& x_t2f, const Scope& scope)
      : gate_(gate), x_(scope.save(x_t2f, kGated)), largest_(wants_largest(scope.recipe)) {}
  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    if (!output_grads[0].defined()) return {Tensor()};
    const Tensor dy = output_grads[0].contiguous(), x = x_.get().contiguous();
    return {op_table(x.device()).gated_backward(gate_, x, dy, largest_)};
  }
  void release() override { x_.release(); }
  std::string_view name() const override { return kGated; }

 private:
  Gate gate_;
  Saved x_;
  bool largest_;
};

Tensor activation_forward(Activation kind, const Tensor& x) {
  const tensor::NoGrad no_grad;
  return op_table(x.device()).activation_forward(kind, x.contiguous());
}

Tensor gated_forward(const Gate& gate, const Tensor& x_t2f, bool largest) {
  const tensor::NoGrad no_grad;
  return op_table(x_t2f.device()).gated_forward(gate, x_t2f.contiguous(), largest);
}

// Dropout and its gradient are the same function of the same key.
Tensor dropped(const Tensor& x_th, const DropoutKey& key, const Tensor& sample_ids_t,
               const Tensor& token_index_t) {
  const tensor::NoGrad no_grad;
  return op_table(x_th.device()).dropout(x_th.contiguous(), key, sample_ids_t, token_index_t);
}

class DropoutBackward final : public Backward {
 public:
  DropoutBackward(const DropoutKey& key, const Tensor& sample_ids_t, const Tensor& token_index_t)
      : key_(key), sample_ids_(sample_ids_t), token_index_(token_index_t) {}
  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    if (!output_grads[0].defined()) return {Tensor()};
    return {dropped(output_grads[0], key_, sample_ids_.get(), token_index_.get())};
  }
  void release() override {
    sample_ids_.release();
    token_index_.release();
  }
  std::string_view name() const override { return "Dropout"; }

 private:
  DropoutKey key_;
  Saved sample_ids_;
  Saved token_index_;
};

}  // namespace

Tensor activation(Activation kind, const Tensor& x, const Scope& scope) {
  Tensor y = activation_forward(kind, x);
  if (!needs_backward({x})) return y;
  auto backward = std::make_unique<ActivationBackward>(kind, x, scope);
  scope.offer_rebuild(y, kActivation, x,
                      [kind](const Tensor& in) { return activation_forward(kind, in); });
  return attach(std::move(y), {x}, std::move(backward));
}

Tensor gated(const Gate& gate, const Tensor& x_t2f, const Scope& scope) {
  PENTATRON_CHECK(x_t2f.dim() >= 1 && x_t2f.size(-1) % 2 == 0, kInternal,
                  "a gated activation wants [gate | up] along an even last dimension, got {}",
                  tensor::describe(x_t2f));
  const bool largest = wants_largest(scope.recipe);
  Tensor y_tf = gated_forward(gate, x_t2f, largest);
  if (!needs_backward({x_t2f})) return y_tf;
  auto backward = std::make_unique<GatedBackward>(gate, x_t2f, scope);
  scope.offer_rebuild(y_tf, kGated, x_t2f, [gate, largest](const Tensor& in) {
    return gated_forward(gate, in, largest);
  });
  return attach(std::move(y_tf), {x_t2f}, std::move(backward));
}

Tensor dropout(const Tensor& x_th, double p, RngSite site, const Tensor& sample_ids_t,
               const Tensor& token_index_t, std::int64_t channel_begin) {
  if (p == 0.0) return x_th;
  PENTATRON_CHECK(x_th.dim() == 2 && sample_ids_t.numel() == x_th.size(0), kInternal,
                  "dropout: {} with {} sample ids", tensor::describe(x_th),
                  tensor::describe(sample_ids_t));
  const DropoutKey key{.p = p, .site = site, .channel_begin = channel_begin};
  Tensor y_th = dropped(x_th, key, sample_ids_t, token_index_t);
  if (!needs_backward({x_th})) return y_th;
  return attach(std::move(y_th), {x_th},
                std::make_unique<DropoutBackward>(key, sample_ids_t, token_index_t));
}

}  // namespace pentatron::ops
