// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/attention.h"

#include <memory>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/ops/attention_kernel.h"
#include "pentatron/ops/backward.h"
#include "pentatron/ops/dispatch.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/saved.h"

namespace pentatron::ops {
namespace {

// In the computing dtype, channels side by side; strides of tokens and heads may be any (a part of
// a fused qkv is not copied).
Tensor prepared(const Tensor& x_tnd, DType computed) {
  const Tensor x = x_tnd.to(computed);
  const bool rows_apart = x.size(0) <= 1 || x.stride(0) >= x.size(2);  // not so after expand()
  return rows_apart && (x.size(2) <= 1 || x.stride(2) == 1) ? x : x.contiguous();
}

struct ForwardResult {
  Tensor out_tnd;  // in q's dtype
  Tensor lse_nt;   // in the computing dtype
};

ForwardResult run_forward(const AttentionPlan& plan, const Tensor& q_tnd, const Tensor& k_tgd,
                          const Tensor& v_tgd) {
  const tensor::NoGrad no_grad;
  const DType computed = compute_dtype(q_tnd.scalar_type(), plan.options.statistics);
  Tensor out = tensor::empty(q_tnd.sizes(), computed);
  Tensor lse = tensor::empty({q_tnd.size(1), q_tnd.size(0)}, computed);
  attention_forward(plan, prepared(q_tnd, computed), prepared(k_tgd, computed),
                    prepared(v_tgd, computed), out, lse);
  return {.out_tnd = out.to(q_tnd.scalar_type()), .lse_nt = lse};
}

class AttentionBackward final : public Backward {
 public:
  AttentionBackward(AttentionPlan plan, const Tensor& q_tnd, const Tensor& k_tgd,
                    const Tensor& v_tgd, const ForwardResult& result)
      : plan_(std::move(plan)),
        q_(q_tnd),
        k_(k_tgd),
        v_(v_tgd),
        out_(result.out_tnd),
        lse_(result.lse_nt) {}

  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    if (!output_grads[0].defined()) return {Tensor(), Tensor(), Tensor()};
    const Tensor lse = lse_.get();
    const DType computed = lse.scalar_type(), dtype = q_.get().scalar_type();
    const Tensor q = prepared(q_.get(), computed), k = prepared(k_.get(), computed);
    const Tensor v = prepared(v_.get(), computed);
    Tensor dq = tensor::zeros(q.sizes(), computed);
    Tensor dk = tensor::zeros(k.sizes(), computed);
    Tensor dv = tensor::zeros(v.sizes(), computed);
    attention_backward(plan_, q, k, v, prepared(out_.get(), computed), lse,
                       prepared(output_grads[0], computed), dq, dk, dv);
    return {dq.to(dtype), dk.to(dtype), dv.to(dtype)};
  }
  void release() override {
    for (Saved* saved : {&q_, &k_, &v_, &out_, &lse_}) saved->release();
    plan_ = {};
  }
  std::string_view name() const override { return "Attention"; }

 private:
  AttentionPlan plan_;
  Saved q_;
  Saved k_;
  Saved v_;
  Saved out_;
  Saved lse_;
};

void check_heads(const Tensor& q_tnd, const Tensor& k_tgd, const Tensor& v_tgd) {
  PENTATRON_CHECK(
      q_tnd.dim() == 3 && k_tgd.dim() == 3 && k_tgd.sizes() == v_tgd.sizes() &&
          q_tnd.size(2) == k_tgd.size(2) && k_tgd.size(1) > 0 &&
          q_tnd.size(1) % k_tgd.size(1) == 0 && q_tnd.scalar_type() == k_tgd.scalar_type() &&
          q_tnd.scalar_type() == v_tgd.scalar_type(),
      kInternal, "attention: q {}, k {} and v {} do not fit (query heads divide by kv heads)",
      tensor::describe(q_tnd), tensor::describe(k_tgd), tensor::describe(v_tgd));
}

AttentionPlan make_plan(const Tensor& q_tnd, const Tensor& k_tgd, const BatchMeta& meta,
                        const AttentionOptions& options) {
  const std::int64_t num_tokens = q_tnd.size(0);
  PENTATRON_CHECK(!meta.cu_seqlens.empty() && meta.cu_seqlens.front() == 0 &&
                      meta.cu_seqlens.back() == num_tokens && k_tgd.size(0) == num_tokens,
                  kInternal, "attention: segments do not cover the {} tokens of q (k has {})",
                  num_tokens, k_tgd.size(0));
  AttentionPlan plan{.segments = {}, .options = options, .sample_ids = {}, .token_index = {}};
  for (std::size_t i = 0; i + 1 < meta.cu_seqlens.size(); ++i) {
    const std::int64_t begin = meta.cu_seqlens[i], length = meta.cu_seqlens[i + 1] - begin;
    PENTATRON_CHECK(length >= 0, kInternal, "attention: segment {} has the length {}", i, length);
    plan.segments.push_back({begin, length, begin, length});
  }
  if (options.dropout.p > 0.0) {
    PENTATRON_CHECK(meta.host_sample_ids.size() == static_cast<std::size_t>(num_tokens) &&
                        meta.host_token_index.size() == static_cast<std::size_t>(num_tokens),
                    kInternal, "attention dropout needs sample ids and token indices of {} tokens",
                    num_tokens);
    plan.sample_ids = meta.host_sample_ids;
    plan.token_index = meta.host_token_index;
  }
  return plan;
}

}  // namespace

Tensor attention(const Tensor& q_tnd, const Tensor& k_tgd, const Tensor& v_tgd,
                 const BatchMeta& meta, const AttentionOptions& options) {
  check_heads(q_tnd, k_tgd, v_tgd);
  AttentionPlan plan = make_plan(q_tnd, k_tgd, meta, options);
  ForwardResult result = run_forward(plan, q_tnd, k_tgd, v_tgd);
  if (!needs_backward({q_tnd, k_tgd, v_tgd})) return result.out_tnd;
  auto backward = std::make_unique<AttentionBackward>(std::move(plan), q_tnd, k_tgd, v_tgd, result);
  return attach(std::move(result.out_tnd), {q_tnd, k_tgd, v_tgd}, std::move(backward));
}

Tensor attention_with_cache(const Tensor& q_tnd, const Tensor& k_sgd, const Tensor& v_sgd,
                            const AttentionOptions& options) {
  check_heads(q_tnd, k_sgd, v_sgd);
  const std::int64_t q_len = q_tnd.size(0), k_len = k_sgd.size(0);
  PENTATRON_CHECK(q_len <= k_len && options.dropout.p == 0.0, kInternal,
                  "attention with cache: {} queries over {} keys, dropout {}", q_len, k_len,
                  options.dropout.p);
  const AttentionPlan plan{
      .segments = {{0, q_len, 0, k_len}}, .options = options, .sample_ids = {}, .token_index = {}};
  return run_forward(plan, q_tnd, k_sgd, v_sgd).out_tnd;
}

}  // namespace pentatron::ops
