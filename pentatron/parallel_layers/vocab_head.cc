// SPDX-License-Identifier: Apache-2.0
#include "pentatron/parallel_layers/vocab_head.h"

#include <algorithm>

#include "pentatron/ops/token_losses.h"
#include "pentatron/parallel_layers/make_parameter.h"
#include "pentatron/parallel_layers/split_linear.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::parallel_layers {

VocabHead::VocabHead(const LeafContext& context, const nn::ParameterPlan& plan,
                     const std::string& name, double logit_softcap)
    : context_(context),
      weight_(&add_parameter(make_parameter(context, plan, name + ".weight"))),
      logit_softcap_(logit_softcap) {}

VocabHead::VocabHead(const LeafContext& context, nn::Parameter& tied_weight, int owner,
                     double logit_softcap)
    : context_(context), weight_(&tied_weight), owner_(owner), logit_softcap_(logit_softcap) {}

std::unique_ptr<ops::Projection> VocabHead::projection(const nn::StepContext& step) const {
  const int unit = owner_ ? step.first_unit + *owner_ : step.scope.unit;
  return split_outputs(context_, *weight_, nullptr, in_unit(step.scope, unit));
}

std::int64_t LogitMemory::rows_at_once(std::int64_t rows, std::int64_t tokens, std::int64_t columns,
                                       DType dtype) const {
  const std::int64_t bytes = tokens * columns * tensor::item_bytes(dtype);
  if (bytes <= most) return rows;
  const std::int64_t pieces = (bytes + piece - 1) / piece;
  return std::max<std::int64_t>(1, rows / pieces);
}

ops::TokenLossOptions VocabHead::loss_options(std::int64_t rows, const nn::StepContext& step,
                                              ops::RowReducer* ranks) const {
  const nn::ShardPart& part = weight_->spec().parts.at(0);
  // fp8 products read all rows at once.
  const std::int64_t rows_at_once =
      step.scope.recipe.numbers == Numbers::kFp8
          ? 0
          : logit_memory_.rows_at_once(rows, step.batch.labels().numel(),
                                       weight_->spec().local_shape[0], step.policy.logits);
  return {.logits = step.policy.logits,
          .statistics = step.policy.statistics,
          .column_begin = part.box.offset[0],
          .valid_columns = part.box.size[0],
          .vocabulary_ranks = ranks,
          .logit_softcap = logit_softcap_,
          .label_smoothing = step.phase == nn::Phase::kEvaluate ? 0.0 : label_smoothing_,
          .vocabulary = part.logical_shape[0],
          .rows_at_once = rows_at_once};
}

Tensor VocabHead::token_losses(const Tensor& x_th, nn::StepContext& step) {
  const std::unique_ptr<ops::RowReducer> ranks = vocabulary_reducer(context_);
  return ops::token_losses(x_th, projection(step), step.batch.labels(),
                           loss_options(x_th.size(0), step, ranks.get()));
}

Tensor VocabHead::loss(const Tensor& x_th, nn::StepContext& step, const Tensor& seed) {
  const Tensor weights_t = tensor::cast(step.batch.loss_mask(), step.policy.statistics);
  const std::unique_ptr<ops::RowReducer> ranks = vocabulary_reducer(context_);
  const ops::TokenLossOptions options = loss_options(x_th.size(0), step, ranks.get());
  if (seed.defined() && ops::takes_seed(options, x_th.size(0))) {
    return ops::seeded_token_loss(x_th, projection(step), step.batch.labels(), weights_t, options,
                                  seed);
  }
  return ops::weighted_sum(token_losses(x_th, step), weights_t, step.policy.loss);
}

ops::DistilledLosses VocabHead::distilled_losses(const Tensor& x_th, nn::StepContext& step,
                                                 const Tensor& teacher_tv, double temperature) {
  const std::unique_ptr<ops::RowReducer> ranks = vocabulary_reducer(context_);
  return ops::distilled_losses(x_th, projection(step), teacher_tv, step.batch.labels(), temperature,
                               loss_options(x_th.size(0), step, ranks.get()));
}

Tensor VocabHead::teacher_logits(const Tensor& x_th, nn::StepContext& step) {
  const tensor::NoGrad no_grad;
  const Tensor logits_tv = projection(step)->forward(x_th, step.policy.logits);
  ops::cap_logits_(logits_tv, logit_softcap_);
  return logits_tv;
}

Tensor VocabHead::logits(const Tensor& x_th, nn::StepContext& step) {
  const tensor::NoGrad no_grad;
  const Tensor logits_tv = projection(step)->forward(x_th, step.policy.statistics);
  ops::cap_logits_(logits_tv, logit_softcap_);
  return logits_tv.narrow(1, 0, weight_->spec().parts.at(0).box.size[0]);
}

}  // namespace pentatron::parallel_layers
