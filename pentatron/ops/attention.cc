// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/attention.h"

#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/ops/attention_plan.h"
#include "pentatron/ops/attention_sink.h"
#include "pentatron/ops/attention_window.h"
#include "pentatron/ops/backward.h"
#include "pentatron/ops/dispatch.h"
#include "pentatron/ops/op_table.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/saved.h"
#include "pentatron/tensor/sequence_cut.h"

namespace pentatron::ops {
namespace {

constexpr std::string_view kName = "Attention";

class AttentionBackward final : public Backward {
 public:
  AttentionBackward(AttentionPlan plan, const Tensor& q_tnd, const Tensor& k_tgd,
                    const Tensor& v_tgd, const AttentionOutput& output, const Scope& scope)
      : plan_(std::move(plan)),
        q_(scope.save(q_tnd, kName)),
        k_(scope.save(k_tgd, kName)),
        v_(scope.save(v_tgd, kName)),
        out_(scope.save(output.out_tnd, kName)),
        lse_(output.lse_nt) {
    for (const Tensor& t : output.library) library_.emplace_back(t);
  }

  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    if (!output_grads[0].defined()) return std::vector<Tensor>(5);
    AttentionOutput output{.out_tnd = out_.get(), .lse_nt = lse_.get(), .library = {}};
    for (const Saved& saved : library_) output.library.push_back(saved.get());
    const AttentionGradients grads =
        attention_backward(plan_, q_.get(), k_.get(), v_.get(), output, output_grads[0]);
    return {grads.dq_tnd, grads.dk_tgd, grads.dv_tgd, grads.dsink_n, grads.dbias_nd};
  }
  void release() override {
    for (Saved* saved : {&q_, &k_, &v_, &out_, &lse_}) saved->release();
    library_.clear();
    plan_ = {};
  }
  std::string_view name() const override { return kName; }

 private:
  AttentionPlan plan_;
  Saved q_;
  Saved k_;
  Saved v_;
  Saved out_;
  Saved lse_;
  std::vector<Saved> library_;
};

void check_heads(const Tensor& q_tnd, const Tensor& k_tgd, const Tensor& v_tgd) {
  PENTATRON_CHECK(
      q_tnd.dim() == 3 && k_tgd.dim() == 3 && v_tgd.dim() == 3 && k_tgd.size(0) == v_tgd.size(0) &&
          k_tgd.size(1) == v_tgd.size(1) && q_tnd.size(2) == k_tgd.size(2) && k_tgd.size(1) > 0 &&
          q_tnd.size(1) % k_tgd.size(1) == 0 && q_tnd.scalar_type() == k_tgd.scalar_type() &&
          q_tnd.scalar_type() == v_tgd.scalar_type(),
      kInternal, "attention: q {}, k {} and v {} do not fit (query heads divide by kv heads)",
      tensor::describe(q_tnd), tensor::describe(k_tgd), tensor::describe(v_tgd));
}

void check_alibi(const Tensor& q_tnd, const Tensor& alibi_n) {
  PENTATRON_CHECK(!alibi_n.defined() || (alibi_n.dim() == 1 && alibi_n.size(0) == q_tnd.size(1) &&
                                         alibi_n.scalar_type() == kAccumulationDType &&
                                         alibi_n.device() == q_tnd.device()),
                  kInternal, "attention: slopes {} do not fit the queries {}",
                  tensor::describe(alibi_n), tensor::describe(q_tnd));
}

void check_bias(const Tensor& q_tnd, const AttentionOptions& options) {
  const Tensor& bias_nd = options.bias_nd;
  PENTATRON_CHECK(
      !bias_nd.defined() ||
          (bias_nd.dim() == 2 && bias_nd.size(0) == q_tnd.size(1) && bias_nd.size(1) % 2 == 1 &&
           bias_nd.device() == q_tnd.device() &&
           bias_nd.scalar_type() == compute_dtype(q_tnd.scalar_type(), options.statistics)),
      kInternal, "attention: biases {} do not fit the queries {}", tensor::describe(bias_nd),
      tensor::describe(q_tnd));
}

void check_forms(const Tensor& q_tnd, const AttentionOptions& options) {
  PENTATRON_CHECK(options.window >= -1 && options.softcap >= 0.0, kInternal,
                  "attention: a window of {} keys, scores capped at {}", options.window,
                  options.softcap);
  const Tensor& sink_n = options.sink_n;
  PENTATRON_CHECK(!sink_n.defined() || (sink_n.dim() == 1 && sink_n.size(0) == q_tnd.size(1) &&
                                        sink_n.device() == q_tnd.device()),
                  kInternal, "attention: sinks {} do not fit the queries {}",
                  tensor::describe(sink_n), tensor::describe(q_tnd));
}

// What only a GPU's kernels read.
void check_boundaries(const AttentionSegments& rows, Device device) {
  for (const Tensor* boundaries : {&rows.q_boundaries, &rows.k_boundaries}) {
    PENTATRON_CHECK(boundaries->defined() && boundaries->device() == device, kInternal,
                    "attention on {}: the batch's segment boundaries are {}: move the batch there "
                    "(to_device)",
                    device.str(), tensor::describe(*boundaries));
  }
}

void check_plan(const Tensor& q_tnd, const Tensor& k_tgd, const AttentionPlan& plan) {
  const AttentionSegments& rows = *plan.rows;
  PENTATRON_CHECK(rows.num_q_rows == q_tnd.size(0) && rows.num_k_rows == k_tgd.size(0), kInternal,
                  "attention: {} queries and {} keys, the batch's segments have {} and {}",
                  q_tnd.size(0), k_tgd.size(0), rows.num_q_rows, rows.num_k_rows);
  if (!q_tnd.is_cpu()) check_boundaries(rows, q_tnd.device());
  const Tensor& max_logit = plan.options.max_logit;
  PENTATRON_CHECK(
      !max_logit.defined() ||
          ((max_logit.dim() == 0 || (max_logit.dim() == 1 && max_logit.size(0) == q_tnd.size(1))) &&
           max_logit.scalar_type() == kAccumulationDType && max_logit.device() == q_tnd.device()),
      kInternal, "attention on {} with {} heads: max_logit is {}", q_tnd.device().str(),
      q_tnd.size(1), tensor::describe(max_logit));
}

bool has_sink(const AttentionOptions& options) {
  return options.sink_n.defined() && !options.partial;
}

AttentionOutput run_forward(const AttentionPlan& plan, const Tensor& q_tnd, const Tensor& k_tgd,
                            const Tensor& v_tgd) {
  const tensor::NoGrad no_grad;
  const auto forward = op_table(q_tnd.device()).attention_forward;
  if (!has_sink(plan.options)) return forward(plan, q_tnd, k_tgd, v_tgd);
  AttentionPlan keys = plan;
  keys.options.partial = true;  // not rounded before the sink has taken its share
  AttentionOutput output = forward(keys, q_tnd, k_tgd, v_tgd);
  output.out_tnd = tensor::cast(output.out_tnd, output.lse_nt.scalar_type());
  add_sink(output, plan.options.sink_n);
  output.out_tnd = tensor::cast(output.out_tnd, q_tnd.scalar_type());
  return output;
}

}  // namespace

std::vector<double> alibi_slopes(std::int64_t num_heads) {
  std::int64_t whole = 1;
  while (whole * 2 <= num_heads) whole *= 2;
  const auto slope = [](std::int64_t i, std::int64_t heads) {
    return std::exp2(-8.0 * static_cast<double>(i) / static_cast<double>(heads));
  };
  std::vector<double> slopes;
  for (std::int64_t i = 1; i <= whole; ++i) slopes.push_back(slope(i, whole));
  for (std::int64_t i = 1; i <= num_heads - whole; ++i) {
    slopes.push_back(slope(2 * i - 1, 2 * whole));
  }
  return slopes;
}

AttentionOptions without_graph(AttentionOptions options) {
  if (options.sink_n.defined()) options.sink_n = options.sink_n.detach();
  if (options.bias_nd.defined()) options.bias_nd = options.bias_nd.detach();
  return options;
}

AttentionOutput attention_forward(const AttentionPlan& plan, const Tensor& q_tnd,
                                  const Tensor& k_tgd, const Tensor& v_tgd) {
  check_heads(q_tnd, k_tgd, v_tgd);
  check_alibi(q_tnd, plan.options.alibi_n);
  check_bias(q_tnd, plan.options);
  check_forms(q_tnd, plan.options);
  check_plan(q_tnd, k_tgd, plan);
  return run_forward(plan, q_tnd, k_tgd, v_tgd);
}

AttentionGradients attention_backward(const AttentionPlan& plan, const Tensor& q_tnd,
                                      const Tensor& k_tgd, const Tensor& v_tgd,
                                      const AttentionOutput& output, const Tensor& dout_tnd) {
  const tensor::NoGrad no_grad;
  AttentionGradients grads =
      op_table(q_tnd.device()).attention_backward(plan, q_tnd, k_tgd, v_tgd, output, dout_tnd);
  if (has_sink(plan.options)) {
    grads.dsink_n = sink_gradient(output, plan.options.sink_n, dout_tnd);
  }
  return grads;
}

void merge_attention(AttentionOutput& sum, const AttentionOutput& part) {
  const tensor::NoGrad no_grad;
  const DType dtype = part.lse_nt.scalar_type();
  if (!sum.out_tnd.defined()) {
    sum = {.out_tnd = tensor::cast(part.out_tnd, dtype), .lse_nt = part.lse_nt, .library = {}};
    return;
  }
  const Tensor lse = sum.lse_nt.logaddexp(part.lse_nt);
  const Tensor finite = lse.masked_fill(lse.eq(-std::numeric_limits<double>::infinity()), 0.0);
  const auto share_of = [&](const Tensor& lse_nt) {
    return lse_nt.sub(finite).exp().t().unsqueeze(2);
  };
  sum.out_tnd = sum.out_tnd.mul(share_of(sum.lse_nt))
                    .add(tensor::cast(part.out_tnd, dtype).mul(share_of(part.lse_nt)));
  sum.lse_nt = lse;
}

Tensor attention(const Tensor& q_tnd, const Tensor& k_tgd, const Tensor& v_tgd,
                 const SequenceLayout& layout, const AttentionOptions& options,
                 const Scope& scope) {
  PENTATRON_CHECK(layout.cut() == nullptr, kInternal,
                  "attention of {} rows that are a context-parallel rank's share of {}",
                  layout.num_rows(), layout.cut()->whole.layout.num_rows());
  const Tensor sink_n = options.sink_n, bias_nd = options.bias_nd;
  AttentionPlan plan{.rows = layout.attention(), .options = without_graph(options)};
  AttentionOutput output = attention_forward(plan, q_tnd, k_tgd, v_tgd);
  if (!needs_backward({q_tnd, k_tgd, v_tgd, sink_n, bias_nd})) return output.out_tnd;
  auto backward =
      std::make_unique<AttentionBackward>(std::move(plan), q_tnd, k_tgd, v_tgd, output, scope);
  return attach(std::move(output.out_tnd), {q_tnd, k_tgd, v_tgd, sink_n, bias_nd},
                std::move(backward));
}

Tensor attention_with_cache(const Tensor& q_tnd, const Tensor& k_sgd, const Tensor& v_sgd,
                            const AttentionOptions& options) {
  check_heads(q_tnd, k_sgd, v_sgd);
  check_alibi(q_tnd, options.alibi_n);
  check_bias(q_tnd, options);
  check_forms(q_tnd, options);
  const std::int64_t q_len = q_tnd.size(0), cached = k_sgd.size(0);
  PENTATRON_CHECK(q_len <= cached && options.dropout.p == 0.0, kInternal,
                  "attention with cache: {} queries over {} keys, dropout {}", q_len, cached,
                  options.dropout.p);
  // The keys that no window reaches are left away.
  const KeyRange seen = seen_keys({0, q_len, 0, cached}, 0, q_len, options);
  const std::int64_t k_len = cached - seen.begin;
  auto rows = std::make_shared<AttentionSegments>();
  rows->segments = {{0, q_len, 0, k_len, /*apart=*/0, /*before=*/seen.begin}};
  rows->num_q_rows = rows->max_q_len = q_len;
  rows->num_k_rows = rows->max_k_len = k_len;
  const AttentionPlan plan{.rows = std::move(rows), .options = without_graph(options)};
  return run_forward(plan, q_tnd, k_sgd.narrow(0, seen.begin, k_len),
                     v_sgd.narrow(0, seen.begin, k_len))
      .out_tnd;
}

}  // namespace pentatron::ops
