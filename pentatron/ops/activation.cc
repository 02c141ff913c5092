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

class GeluBackward final : public Backward {
 public:
  explicit GeluBackward(const Tensor& x) : x_(x) {}
  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    if (!output_grads[0].defined()) return {Tensor()};
    const Tensor dy = output_grads[0].contiguous(), x = x_.get().contiguous();
    return {op_table(x.device()).gelu_backward(x, dy)};
  }
  void release() override { x_.release(); }
  std::string_view name() const override { return "Gelu"; }

 private:
  Saved x_;
};

class SwigluBackward final : public Backward {
 public:
  explicit SwigluBackward(const Tensor& x_t2f) : x_(x_t2f) {}
  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    if (!output_grads[0].defined()) return {Tensor()};
    const Tensor dy = output_grads[0].contiguous(), x = x_.get().contiguous();
    return {op_table(x.device()).swiglu_backward(x, dy)};
  }
  void release() override { x_.release(); }
  std::string_view name() const override { return "Swiglu"; }

 private:
  Saved x_;
};

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

Tensor gelu_tanh(const Tensor& x) {
  Tensor y;
  {
    const tensor::NoGrad no_grad;
    y = op_table(x.device()).gelu_forward(x.contiguous());
  }
  if (!needs_backward({x})) return y;
  return attach(std::move(y), {x}, std::make_unique<GeluBackward>(x));
}

Tensor swiglu(const Tensor& x_t2f) {
  PENTATRON_CHECK(x_t2f.dim() >= 1 && x_t2f.size(-1) % 2 == 0, kInternal,
                  "swiglu wants [gate | up] along an even last dimension, got {}",
                  tensor::describe(x_t2f));
  Tensor y_tf;
  {
    const tensor::NoGrad no_grad;
    y_tf = op_table(x_t2f.device()).swiglu_forward(x_t2f.contiguous());
  }
  if (!needs_backward({x_t2f})) return y_tf;
  return attach(std::move(y_tf), {x_t2f}, std::make_unique<SwigluBackward>(x_t2f));
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
