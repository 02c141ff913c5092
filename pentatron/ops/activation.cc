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

constexpr std::string_view kGelu = "Gelu", kSwiglu = "Swiglu";

class GeluBackward final : public Backward {
 public:
  GeluBackward(const Tensor& x, const Scope& scope) : x_(scope.save(x, kGelu)) {}
  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    if (!output_grads[0].defined()) return {Tensor()};
    const Tensor dy = output_grads[0].contiguous(), x = x_.get().contiguous();
    return {op_table(x.device()).gelu_backward(x, dy)};
  }
  void release() override { x_.release(); }
  std::string_view name() const override { return kGelu; }

 private:
  Saved x_;
};

class SwigluBackward final : public Backward {
 public:
  SwigluBackward(const Tensor& x_t2f, const Scope& scope) : x_(scope.save(x_t2f, kSwiglu)) {}
  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    if (!output_grads[0].defined()) return {Tensor()};
    const Tensor dy = output_grads[0].contiguous(), x = x_.get().contiguous();
    return {op_table(x.device()).swiglu_backward(x, dy)};
  }
  void release() override { x_.release(); }
  std::string_view name() const override { return kSwiglu; }

 private:
  Saved x_;
};

Tensor gelu_forward(const Tensor& x) {
  const tensor::NoGrad no_grad;
  return op_table(x.device()).gelu_forward(x.contiguous());
}

Tensor swiglu_forward(const Tensor& x_t2f) {
  const tensor::NoGrad no_grad;
  return op_table(x_t2f.device()).swiglu_forward(x_t2f.contiguous());
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

Tensor gelu_tanh(const Tensor& x, const Scope& scope) {
  Tensor y = gelu_forward(x);
  if (!needs_backward({x})) return y;
  auto backward = std::make_unique<GeluBackward>(x, scope);
  scope.offer_rebuild(y, kGelu, x, gelu_forward);
  return attach(std::move(y), {x}, std::move(backward));
}

Tensor swiglu(const Tensor& x_t2f, const Scope& scope) {
  PENTATRON_CHECK(x_t2f.dim() >= 1 && x_t2f.size(-1) % 2 == 0, kInternal,
                  "swiglu wants [gate | up] along an even last dimension, got {}",
                  tensor::describe(x_t2f));
  Tensor y_tf = swiglu_forward(x_t2f);
  if (!needs_backward({x_t2f})) return y_tf;
  auto backward = std::make_unique<SwigluBackward>(x_t2f, scope);
  scope.offer_rebuild(y_tf, kSwiglu, x_t2f, swiglu_forward);
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
