// SPDX-License-Identifier: Apache-2.0
// Shapes: t tokens, r rows of this rank, b samples, h hidden.
#include "pentatron/parallel_layers/distilled_loss.h"

#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/ops/distillation.h"
#include "pentatron/ops/token_losses.h"
#include "pentatron/parallel_layers/regions.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::parallel_layers {
namespace {

constexpr const char* kPlainLoss = "lm loss";

// Of each token, equal on all ranks; undefined: there is none.
struct TokenValues {
  Tensor plain_t;
  Tensor logits_t;
  Tensor hidden_t;
};

// The mean distance of the pairs' hidden states.
Tensor hidden_distances(const LeafContext& context, const Distillation& distillation,
                        const nn::StepContext& step) {
  const std::vector<config::DistillationForm::Pair>& pairs = distillation.form.pairs;
  Tensor sum_r;
  for (const config::DistillationForm::Pair& pair : pairs) {
    const Tensor student_rh = distillation.student.at(pair.student);
    const Tensor teacher_rh = distillation.teacher.at(pair.teacher);
    PENTATRON_CHECK(student_rh.defined() && teacher_rh.defined(), kConfig,
                    "intermediate_layer_pairs: {} of the student or {} of the teacher makes no "
                    "hidden states in this model: name another module",
                    pair.student, pair.teacher);
    const Tensor loss_r = ops::hidden_losses(
        student_rh, teacher_rh,
        pair.mean_squares ? ops::HiddenLoss::kMeanSquares : ops::HiddenLoss::kCosine,
        step.policy.statistics);
    sum_r = sum_r.defined() ? sum_r.add(loss_r) : loss_r;
  }
  if (!sum_r.defined()) return {};
  return gather_row_values(context, sum_r.mul(1.0 / static_cast<double>(pairs.size())));
}

// Where the samples of a micro-batch begin and end.
class Samples final {
 public:
  explicit Samples(const Batch& batch) : bounds_(batch.text().rows().samples) {}
  // Of values [t] the sums of each sample, fp64 [b].
  [[nodiscard]] Tensor sums(const Tensor& values_t) const {
    std::vector<Tensor> sums;
    each([&](std::int64_t begin, std::int64_t count) {
      sums.push_back(values_t.narrow(0, begin, count).sum(kAccumulationDType));
    });
    return tensor::stack(sums, 0);
  }
  // mask_t times its sample's factor.
  [[nodiscard]] Tensor scaled(const Tensor& mask_t, const Tensor& factors_b) const {
    const Tensor scaled_t = mask_t.clone();
    const Tensor factors = tensor::cast(factors_b, mask_t.scalar_type());
    std::int64_t sample = 0;
    each([&](std::int64_t begin, std::int64_t count) {
      scaled_t.narrow(0, begin, count).mul_(factors.select(0, sample++));
    });
    return scaled_t;
  }

 private:
  template <typename Body>
  void each(const Body& body) const {
    for (std::size_t i = 0; i + 1 < bounds_.size(); ++i) {
      body(bounds_[i], bounds_[i + 1] - bounds_[i]);
    }
  }
  const std::vector<std::int64_t>& bounds_;
};

// a / b, 0 where either is not above 0: what has no size of its own is not scaled to one.
Tensor ratio(const Tensor& a, const Tensor& b) {
  return a.div(b).masked_fill(a.gt(0.0).logical_and(b.gt(0.0)).logical_not(), 0.0);
}

// What the values of a sample's tokens are multiplied with, fp64 [b].
struct Factors {
  Tensor plain_b;  // undefined: it is not trained on
  Tensor logits_b;
  Tensor hidden_b;
};

Factors balanced(const config::DistillationForm& form, const TokenValues& sums) {
  const Tensor ones_b =
      tensor::ones(sums.logits_t.sizes(), kAccumulationDType, sums.logits_t.device());
  Factors factors{.plain_b = {}, .logits_b = ones_b, .hidden_b = {}};
  if (sums.hidden_t.defined()) factors.hidden_b = ratio(sums.logits_t, sums.hidden_t);
  if (!form.lm_loss) return factors;
  Tensor share_b;
  if (form.alpha) {
    factors.plain_b = ones_b.mul(1.0 - *form.alpha);
    share_b = ones_b.mul(*form.alpha);
  } else {
    Tensor learnt_b = sums.logits_t;
    if (factors.hidden_b.defined()) learnt_b = learnt_b.add(sums.hidden_t.mul(factors.hidden_b));
    factors.plain_b = ones_b;
    share_b = ratio(sums.plain_t, learnt_b).mul(form.scale);
  }
  factors.logits_b = factors.logits_b.mul(share_b);
  if (factors.hidden_b.defined()) factors.hidden_b = factors.hidden_b.mul(share_b);
  return factors;
}

}  // namespace

std::vector<nn::LedgerEntry> distillation_losses(const config::DistillationForm& form) {
  std::vector<nn::LedgerEntry> entries{nn::token_loss(kTotalLoss), nn::token_loss(kLogitsLoss)};
  if (!form.pairs.empty()) entries.push_back(nn::token_loss(kHiddenLoss));
  // What is trained on is the total alone.
  for (std::size_t i = 1; i < entries.size(); ++i) entries[i].coefficient = 0.0;
  return entries;
}

Tensor distilled_loss(const LeafContext& context, VocabHead& head, const Tensor& x_th,
                      nn::StepContext& step) {
  const Distillation& distillation = *step.distillation;
  const ops::DistilledLosses losses = head.distilled_losses(
      x_th, step, distillation.teacher_logits_tv, distillation.form.temperature);
  const TokenValues values{.plain_t = losses.nll_t,
                           .logits_t = losses.divergence_t,
                           .hidden_t = hidden_distances(context, distillation, step)};
  const Tensor mask_t = tensor::cast(step.batch.loss_mask(), step.policy.statistics);
  const Samples samples(step.batch);
  Factors factors;
  {
    const tensor::NoGrad no_grad;
    const auto record = [&](const char* name, const Tensor& values_t) {
      if (!values_t.defined()) return Tensor();
      const Tensor sums_b = samples.sums(values_t.detach().mul(mask_t));
      step.add_sum(name, sums_b.sum(), nn::Share::kTensorCopy);
      return sums_b;
    };
    factors = balanced(distillation.form, {.plain_t = record(kPlainLoss, values.plain_t),
                                           .logits_t = record(kLogitsLoss, values.logits_t),
                                           .hidden_t = record(kHiddenLoss, values.hidden_t)});
  }
  Tensor total;
  const auto add = [&](const Tensor& values_t, const Tensor& factors_b) {
    if (!values_t.defined() || !factors_b.defined()) return;
    const Tensor part =
        ops::weighted_sum(values_t, samples.scaled(mask_t, factors_b), step.policy.loss);
    total = total.defined() ? total.add(part) : part;
  };
  add(values.plain_t, factors.plain_b);
  add(values.logits_t, factors.logits_b);
  add(values.hidden_t, factors.hidden_b);
  return total;
}

}  // namespace pentatron::parallel_layers
