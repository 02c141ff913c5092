// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/distillation.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/ops/op_table.h"
#include "pentatron/ops/projection_backward.h"
#include "pentatron/ops/token_loss_parts.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::ops {
namespace {

constexpr std::string_view kName = "DistilledLosses";
constexpr double kSquareEpsilon = 1e-12;  // the library's in its cosine loss

void check_logits(const Tensor& logits_tv, std::int64_t valid_columns) {
  PENTATRON_CHECK(logits_tv.dim() == 2 && logits_tv.is_contiguous() && valid_columns >= 0 &&
                      valid_columns <= logits_tv.size(1),
                  kInternal, "distillation: {} valid columns of contiguous logits {}",
                  valid_columns, tensor::describe(logits_tv));
}

void check_pair(const LogitPair& logits, const LogitNormalisers& lse) {
  check_logits(logits.student_tv, logits.valid_columns);
  check_logits(logits.teacher_tv, logits.valid_columns);
  PENTATRON_CHECK(logits.student_tv.sizes() == logits.teacher_tv.sizes() &&
                      logits.student_tv.scalar_type() == logits.teacher_tv.scalar_type() &&
                      logits.temperature > 0,
                  kInternal, "distillation: student's logits {}, teacher's {}, temperature {}",
                  tensor::describe(logits.student_tv), tensor::describe(logits.teacher_tv),
                  logits.temperature);
  for (const Tensor* t : {&lse.student_t, &lse.teacher_t}) {
    PENTATRON_CHECK(t->dim() == 1 && t->size(0) == logits.student_tv.size(0), kInternal,
                    "distillation: log-sum-exps {} of logits {}", tensor::describe(*t),
                    tensor::describe(logits.student_tv));
  }
}

// Log-sum-exps of both models' rows, over all ranks of the vocabulary; `student` where it is known
// already.
LogitNormalisers normalisers(const LogitPair& logits, const Tensor& student,
                             const TokenLossOptions& options) {
  std::vector<SoftmaxPieces> pieces{tempered_pieces(logits.teacher_tv, logits.valid_columns,
                                                    logits.temperature, options.statistics)};
  if (!student.defined()) {
    pieces.push_back(tempered_pieces(logits.student_tv, logits.valid_columns, logits.temperature,
                                     options.statistics));
  }
  std::vector<Tensor> maxima, sums;
  for (const SoftmaxPieces& p : pieces) maxima.push_back(p.max_t);
  const Tensor max = tensor::stack(maxima, 0);
  if (options.vocabulary_ranks != nullptr) options.vocabulary_ranks->max(max);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    sums.push_back(sum_exp_below(pieces[i], max.select(0, static_cast<std::int64_t>(i))));
  }
  const Tensor sum = tensor::stack(sums, 0);
  if (options.vocabulary_ranks != nullptr) options.vocabulary_ranks->sum(sum);
  const Tensor lse = max.add(sum.log());
  return {.student_t = student.defined() ? student : lse.select(0, 1),
          .teacher_t = lse.select(0, 0)};
}

class DistilledLossesBackward final : public ProjectionBackward {
 public:
  DistilledLossesBackward(const Tensor& x_th, std::unique_ptr<Projection> projection,
                          LogitPair logits, LogitNormalisers lse, CrossEntropyGradient plain,
                          double softcap)
      : ProjectionBackward(x_th, std::move(projection), kName),
        logits_(std::move(logits)),
        lse_(std::move(lse)),
        plain_(std::move(plain)),
        softcap_(softcap) {}

  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    const auto coefficient = [&](const Tensor& came) {
      return came.defined() ? came.contiguous()
                            : tensor::zeros(lse_.teacher_t.sizes(), lse_.teacher_t.scalar_type(),
                                            lse_.teacher_t.device());
    };
    plain_.coefficient_t = coefficient(output_grads[0]);
    const Tensor coefficient_t = coefficient(output_grads[1]);
    const Tensor d_logits_tv = logits_.student_tv;  // overwritten in place
    if (softcap_ == 0.0) {
      divergence_gradient_(logits_, lse_, coefficient_t, plain_);
    } else {
      // The slope of the cap is read from the logits: some rows at a time.
      constexpr std::int64_t kPieces = 32;
      const std::int64_t rows = d_logits_tv.size(0);
      const std::int64_t at_once = std::max<std::int64_t>(1, rows / kPieces);
      for (std::int64_t begin = 0; begin < rows; begin += at_once) {
        capped_gradient_(begin, std::min(at_once, rows - begin), coefficient_t);
      }
    }
    logits_ = {};
    return {input_gradient(d_logits_tv)};
  }
  void release() override {
    ProjectionBackward::release();
    logits_ = {};
    lse_ = {};
    plain_ = {};
  }

 private:
  void capped_gradient_(std::int64_t begin, std::int64_t count, const Tensor& coefficient_t) {
    const auto of = [&](const Tensor& t) { return t.narrow(0, begin, count); };
    const LogitPair logits{of(logits_.student_tv), of(logits_.teacher_tv), logits_.valid_columns,
                           logits_.temperature};
    const Tensor slope_tv = logits.student_tv.div(softcap_);
    slope_tv.mul_(slope_tv).neg_().add_(1.0);
    divergence_gradient_(logits, {of(lse_.student_t), of(lse_.teacher_t)}, of(coefficient_t),
                         {.labels_t = of(plain_.labels_t),
                          .log_sum_exp_t = of(plain_.log_sum_exp_t),
                          .coefficient_t = of(plain_.coefficient_t),
                          .column_begin = plain_.column_begin,
                          .target = plain_.target});
    logits.student_tv.mul_(slope_tv);
  }

  LogitPair logits_;
  LogitNormalisers lse_;
  CrossEntropyGradient plain_;
  double softcap_;
};

class HiddenLossesBackward final : public Backward {
 public:
  HiddenLossesBackward(Tensor gradient_th, DType dtype)
      : gradient_th_(std::move(gradient_th)), dtype_(dtype) {}
  std::vector<Tensor> apply(std::vector<Tensor> output_grads) override {
    if (!output_grads[0].defined()) return {Tensor()};
    return {tensor::cast(gradient_th_.mul_(output_grads[0].unsqueeze(1)), dtype_)};
  }
  void release() override { gradient_th_ = Tensor(); }
  std::string_view name() const override { return "HiddenLosses"; }

 private:
  Tensor gradient_th_;  // of each row's loss
  DType dtype_;
};

struct RowLoss {
  Tensor loss_t;
  Tensor gradient_th;  // undefined unless asked for
};

RowLoss cosine(const Tensor& x_th, const Tensor& target_th, bool with_gradient) {
  const std::vector<std::int64_t> last{1};
  const Tensor dot = x_th.mul(target_th).sum(last, /*keepdim=*/true);
  const Tensor squares = x_th.mul(x_th).sum(last, true).add(kSquareEpsilon);
  const Tensor lengths =
      squares.mul(target_th.mul(target_th).sum(last, true).add(kSquareEpsilon)).sqrt();
  const Tensor cosine = dot.div(lengths);
  RowLoss result{.loss_t = cosine.squeeze(1).neg().add(1.0), .gradient_th = {}};
  if (with_gradient) {
    result.gradient_th = x_th.mul(cosine.div(squares)).sub(target_th.div(lengths));
  }
  return result;
}

RowLoss mean_squares(const Tensor& x_th, const Tensor& target_th, bool with_gradient) {
  const Tensor difference = x_th.sub(target_th);
  const double width = static_cast<double>(std::max<std::int64_t>(1, x_th.size(1)));
  RowLoss result{.loss_t = difference.mul(difference).sum(std::vector<std::int64_t>{1}).div(width),
                 .gradient_th = {}};
  if (with_gradient) result.gradient_th = difference.mul(2.0 / width);
  return result;
}

}  // namespace

SoftmaxPieces tempered_pieces(const Tensor& logits_tv, std::int64_t valid_columns,
                              double temperature, DType statistics) {
  check_logits(logits_tv, valid_columns);
  const tensor::NoGrad no_grad;
  const SoftmaxPieces computed =
      op_table(logits_tv.device())
          .tempered_pieces(logits_tv, valid_columns, temperature, statistics);
  return {.max_t = tensor::cast(computed.max_t.clamp_min(std::numeric_limits<float>::lowest()),
                                statistics),
          .sum_exp_t = tensor::cast(computed.sum_exp_t, statistics),
          .target_logit_t = {},
          .logit_sum_t = {}};
}

Tensor divergence_terms(const LogitPair& logits, const LogitNormalisers& lse) {
  check_pair(logits, lse);
  const tensor::NoGrad no_grad;
  return tensor::cast(op_table(logits.student_tv.device()).divergence_terms(logits, lse),
                      lse.student_t.scalar_type());
}

void divergence_gradient_(const LogitPair& logits, const LogitNormalisers& lse,
                          const Tensor& coefficient_t, const CrossEntropyGradient& plain) {
  check_pair(logits, lse);
  const tensor::NoGrad no_grad;
  op_table(logits.student_tv.device()).divergence_gradient_(logits, lse, coefficient_t, plain);
}

DistilledLosses distilled_losses(const Tensor& x_th, std::unique_ptr<Projection> projection,
                                 const Tensor& teacher_tv, const Tensor& labels_t,
                                 double temperature, const TokenLossOptions& options) {
  const bool learns = projection->learns();
  const bool keep = needs_backward({x_th}, learns);
  std::vector<Tensor> losses;
  LogitPair logits{.student_tv = {},
                   .teacher_tv = teacher_tv,
                   .valid_columns = options.valid_columns,
                   .temperature = temperature};
  LogitNormalisers lse;
  CrossEntropyGradient plain{.labels_t = labels_t,
                             .log_sum_exp_t = {},
                             .coefficient_t = {},
                             .column_begin = options.column_begin,
                             .target = options.target()};
  {
    const tensor::NoGrad no_grad;
    logits.student_tv = projection->forward(x_th, options.logits);
    cap_logits_(logits.student_tv, options.logit_softcap);
    PENTATRON_CHECK(labels_t.numel() == logits.student_tv.size(0), kInternal,
                    "distillation: {} labels for {} rows of logits", labels_t.numel(),
                    logits.student_tv.size(0));
    const auto statistics = token_loss_parts::statistics_of(logits.student_tv, labels_t, options);
    plain.log_sum_exp_t = statistics.log_sum_exp_t;
    lse = normalisers(logits, temperature == 1.0 ? statistics.log_sum_exp_t : Tensor(), options);
    Tensor divergence_t = divergence_terms(logits, lse);
    if (options.vocabulary_ranks != nullptr) options.vocabulary_ranks->sum(divergence_t);
    losses = {token_loss_parts::losses_of(statistics, options), divergence_t};
  }
  if (keep) {
    attach(losses, {x_th},
           std::make_unique<DistilledLossesBackward>(x_th, std::move(projection), std::move(logits),
                                                     std::move(lse), std::move(plain),
                                                     options.logit_softcap),
           learns);
  }
  return {.nll_t = losses[0], .divergence_t = losses[1]};
}

Tensor hidden_losses(const Tensor& x_th, const Tensor& target_th, HiddenLoss kind,
                     DType statistics) {
  PENTATRON_CHECK(x_th.dim() == 2 && x_th.sizes() == target_th.sizes(), kInternal,
                  "distillation: hidden states {} and {}", tensor::describe(x_th),
                  tensor::describe(target_th));
  const bool keep = needs_backward({x_th});
  RowLoss result;
  {
    const tensor::NoGrad no_grad;
    const Tensor x = tensor::cast(x_th.variable_data(), statistics);
    const Tensor target = tensor::cast(target_th, statistics);
    result = kind == HiddenLoss::kCosine ? cosine(x, target, keep) : mean_squares(x, target, keep);
  }
  if (!keep) return result.loss_t;
  return attach(
      std::move(result.loss_t), {x_th},
      std::make_unique<HiddenLossesBackward>(std::move(result.gradient_th), x_th.scalar_type()));
}

}  // namespace pentatron::ops
