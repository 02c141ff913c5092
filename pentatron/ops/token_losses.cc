// SPDX-License-Identifier: Apache-2.0
// Shapes: t tokens, h hidden, v local vocabulary rows (padding included).
#include "pentatron/ops/token_losses.h"

#include <algorithm>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/ops/projection_backward.h"
#include "pentatron/ops/token_loss_parts.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::ops {
namespace {

constexpr std::string_view kName = "TokenLosses", kSeededName = "SeededTokenLoss";

using token_loss_parts::losses_of;
using token_loss_parts::Statistics;
using token_loss_parts::statistics_of;

class TokenLossesBackward final : public ProjectionBackward {
 public:
  TokenLossesBackward(const Tensor& x_th, std::unique_ptr<Projection> projection, Tensor logits_tv,
                      Tensor labels_t, Tensor log_sum_exp_t, const TokenLossOptions& options)
      : ProjectionBackward(x_th, std::move(projection), kName),
        logits_tv_(std::move(logits_tv)),
        labels_t_(std::move(labels_t)),
        log_sum_exp_t_(std::move(log_sum_exp_t)),
        options_(options) {
    options_.vocabulary_ranks = nullptr;  // it lives for the forward alone
  }

  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    const Tensor d_logits_tv = std::move(logits_tv_);  // overwritten in place
    const Tensor coefficient_t =
        output_grads[0].defined()
            ? output_grads[0].contiguous()
            : tensor::zeros(log_sum_exp_t_.sizes(), log_sum_exp_t_.scalar_type(),
                            log_sum_exp_t_.device());
    token_loss_parts::logits_gradient_(d_logits_tv, labels_t_, log_sum_exp_t_, coefficient_t,
                                       options_);
    return {input_gradient(d_logits_tv)};
  }
  void release() override {
    ProjectionBackward::release();
    logits_tv_ = labels_t_ = log_sum_exp_t_ = Tensor();
  }

 private:
  Tensor logits_tv_;
  Tensor labels_t_;
  Tensor log_sum_exp_t_;
  TokenLossOptions options_;
};

class SeededLossBackward final : public ProjectionBackward {
 public:
  SeededLossBackward(const Tensor& x_th, std::unique_ptr<Projection> projection,
                     Tensor logits_gradient_tv, Tensor seed)
      : ProjectionBackward(x_th, std::move(projection), kSeededName),
        gradient_tv_(std::move(logits_gradient_tv)),
        seed_(std::move(seed)) {}

  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    const Tensor& came = output_grads[0];
    PENTATRON_CHECK(came.defined() && came.const_data_ptr() == seed_.const_data_ptr() &&
                        came.scalar_type() == seed_.scalar_type(),
                    kInternal, "a loss of known gradient got another one, {}",
                    came.defined() ? tensor::describe(came) : "none");
    const Tensor gradient_tv = std::move(gradient_tv_);
    return {input_gradient(gradient_tv)};
  }
  void release() override {
    ProjectionBackward::release();
    gradient_tv_ = seed_ = Tensor();
  }

 private:
  Tensor gradient_tv_;
  Tensor seed_;
};

class WeightedSumBackward final : public Backward {
 public:
  explicit WeightedSumBackward(Tensor weights_t) : weights_t_(std::move(weights_t)) {}
  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    if (!output_grads[0].defined()) return {Tensor()};
    return {weights_t_.mul(tensor::cast(output_grads[0], weights_t_.scalar_type()))};
  }
  void release() override { weights_t_ = Tensor(); }
  std::string_view name() const override { return "WeightedSum"; }

 private:
  Tensor weights_t_;
};

}  // namespace

Statistics token_loss_parts::statistics_of(const Tensor& logits_tv, const Tensor& labels_t,
                                           const TokenLossOptions& options) {
  RowReducer* ranks = options.vocabulary_ranks;
  const bool smoothed = options.label_smoothing != 0.0;
  PENTATRON_CHECK(!smoothed || (options.label_smoothing < 1.0 && options.vocabulary > 1), kInternal,
                  "a label smoothing of {} over {} ids", options.label_smoothing,
                  options.vocabulary);
  const SoftmaxPieces pieces =
      softmax_pieces(logits_tv, labels_t, options.column_begin, options.valid_columns,
                     options.statistics, /*logit_sum=*/smoothed);
  const Tensor& logit_sum_t = pieces.logit_sum_t;
  if (ranks == nullptr) {
    return {pieces.max_t.add(pieces.sum_exp_t.log()), pieces.target_logit_t, logit_sum_t};
  }
  Tensor max_t = pieces.max_t.clone();
  ranks->max(max_t);
  std::vector<Tensor> rows{sum_exp_below(pieces, max_t), pieces.target_logit_t};
  if (logit_sum_t.defined()) rows.push_back(logit_sum_t);
  Tensor sums = tensor::stack(rows, 0);
  ranks->sum(sums);
  return {max_t.add(sums.select(0, 0).log()), sums.select(0, 1),
          logit_sum_t.defined() ? sums.select(0, 2) : Tensor()};
}

Tensor token_loss_parts::losses_of(const Statistics& statistics, const TokenLossOptions& options) {
  const Tensor& lse_t = statistics.log_sum_exp_t;
  if (options.label_smoothing == 0.0) return lse_t.sub(statistics.target_logit_t);
  return lse_t.sub(statistics.target_logit_t.mul(1.0 - options.smoothing()))
      .sub(statistics.logit_sum_t.mul(options.smoothed_share()));
}

void token_loss_parts::logits_gradient_(const Tensor& logits_tv, const Tensor& labels_t,
                                        const Tensor& log_sum_exp_t, const Tensor& coefficient_t,
                                        const TokenLossOptions& options) {
  const double cap = options.logit_softcap;
  const std::int64_t rows = logits_tv.size(0);
  constexpr std::int64_t kPieces = 32;
  const std::int64_t at_once = cap > 0.0 ? std::max<std::int64_t>(1, rows / kPieces) : rows;
  for (std::int64_t begin = 0; begin < rows; begin += at_once) {
    const std::int64_t count = std::min(at_once, rows - begin);
    Tensor piece_tv = logits_tv.narrow(0, begin, count);
    Tensor slope_tv;
    if (cap > 0.0) {
      slope_tv = piece_tv.div(cap);
      slope_tv.mul_(slope_tv).neg_().add_(1.0);
    }
    const Tensor piece_labels_t = labels_t.narrow(0, begin, count);
    const Tensor piece_coefficient_t = coefficient_t.narrow(0, begin, count);
    softmax_gradient_(piece_tv, piece_labels_t, log_sum_exp_t.narrow(0, begin, count),
                      piece_coefficient_t, options.column_begin, options.valid_columns,
                      options.target());
    if (slope_tv.defined()) piece_tv.mul_(slope_tv);
  }
}

void cap_logits_(Tensor logits, double cap) {
  if (cap == 0.0) return;
  const tensor::NoGrad no_grad;
  logits.div_(cap).tanh_().mul_(cap);
}

Tensor token_losses(const Tensor& x_th, std::unique_ptr<Projection> projection,
                    const Tensor& labels_t, const TokenLossOptions& options) {
  if (options.rows_at_once > 0 && options.rows_at_once < x_th.size(0)) {
    return token_loss_parts::in_pieces(x_th, std::move(projection), labels_t, options);
  }
  const bool learns = projection->learns();
  const bool keep = needs_backward({x_th}, learns);
  Tensor losses_t;
  Tensor logits_tv;
  Statistics statistics;
  {
    const tensor::NoGrad no_grad;
    logits_tv = projection->forward(x_th, options.logits);
    cap_logits_(logits_tv, options.logit_softcap);
    PENTATRON_CHECK(labels_t.numel() == logits_tv.size(0), kInternal,
                    "token losses: {} labels for {} rows of logits", labels_t.numel(),
                    logits_tv.size(0));
    statistics = statistics_of(logits_tv, labels_t, options);
    losses_t = losses_of(statistics, options);
  }
  if (!keep) return losses_t;
  auto backward =
      std::make_unique<TokenLossesBackward>(x_th, std::move(projection), std::move(logits_tv),
                                            labels_t, std::move(statistics.log_sum_exp_t), options);
  return attach(std::move(losses_t), {x_th}, std::move(backward), learns);
}

bool takes_seed(const TokenLossOptions& options, std::int64_t rows) {
  const bool in_pieces = options.rows_at_once > 0 && options.rows_at_once < rows;
  return options.vocabulary_ranks == nullptr && options.logit_softcap == 0.0 &&
         options.label_smoothing == 0.0 && !in_pieces;
}

Tensor seeded_token_loss(const Tensor& x_th, std::unique_ptr<Projection> projection,
                         const Tensor& labels_t, const Tensor& weights_t,
                         const TokenLossOptions& options, const Tensor& seed) {
  PENTATRON_CHECK(takes_seed(options, x_th.size(0)) && seed.dim() == 0, kInternal,
                  "a loss of known gradient {} with {} rows", tensor::describe(seed), x_th.size(0));
  const bool learns = projection->learns();
  const bool keep = needs_backward({x_th}, learns);
  Tensor sum, logits_tv;
  {
    const tensor::NoGrad no_grad;
    logits_tv = projection->forward(x_th, options.logits);
    const Tensor coefficient_t = weights_t.mul(tensor::cast(seed, weights_t.scalar_type()));
    const SoftmaxPieces pieces =
        keep ? softmax_with_gradient_(logits_tv, labels_t, coefficient_t, options.column_begin,
                                      options.valid_columns, options.statistics)
             : softmax_pieces(logits_tv, labels_t, options.column_begin, options.valid_columns,
                              options.statistics);
    const Tensor losses_t = pieces.max_t.add(pieces.sum_exp_t.log()).sub(pieces.target_logit_t);
    sum = tensor::cast(losses_t.mul(weights_t), seed.scalar_type()).sum();
  }
  if (!keep) return sum;
  auto backward =
      std::make_unique<SeededLossBackward>(x_th, std::move(projection), std::move(logits_tv), seed);
  return attach(std::move(sum), {x_th}, std::move(backward), learns);
}

Tensor weighted_sum(const Tensor& values_t, const Tensor& weights_t, DType out) {
  PENTATRON_CHECK(values_t.dim() == 1 && values_t.sizes() == weights_t.sizes() &&
                      values_t.scalar_type() == weights_t.scalar_type(),
                  kInternal, "a weighted sum of {} with the weights {}", tensor::describe(values_t),
                  tensor::describe(weights_t));
  Tensor sum;
  {
    const tensor::NoGrad no_grad;
    sum = tensor::cast(values_t.mul(weights_t), out).sum();
  }
  if (!needs_backward({values_t})) return sum;
  return attach(std::move(sum), {values_t}, std::make_unique<WeightedSumBackward>(weights_t));
}

}  // namespace pentatron::ops
