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

Tensor VocabHead::token_losses(const Tensor& x_th, nn::StepContext& step) {
  const nn::ShardPart& part = weight_->spec().parts.at(0);
  const std::unique_ptr<ops::RowReducer> ranks = vocabulary_reducer(context_);
  const Tensor& labels_t = step.batch.labels();
  // fp8 products read all rows at once.
  const std::int64_t rows_at_once =
      step.scope.recipe.numbers == Numbers::kFp8
          ? 0
          : logit_memory_.rows_at_once(x_th.size(0), labels_t.numel(),
                                       weight_->spec().local_shape[0], step.policy.logits);
  return ops::token_losses(
      x_th, projection(step), labels_t,
      {.logits = step.policy.logits,
       .statistics = step.policy.statistics,
       .column_begin = part.box.offset[0],
       .valid_columns = part.box.size[0],
       .vocabulary_ranks = ranks.get(),
       .logit_softcap = logit_softcap_,
       .label_smoothing = step.phase == nn::Phase::kEvaluate ? 0.0 : label_smoothing_,
       .vocabulary = part.logical_shape[0],
       .rows_at_once = rows_at_once});
}

Tensor VocabHead::loss(const Tensor& x_th, nn::StepContext& step) {
  return ops::weighted_sum(token_losses(x_th, step),
                           tensor::cast(step.batch.loss_mask(), step.policy.statistics),
                           step.policy.loss);
}

Tensor VocabHead::logits(const Tensor& x_th, nn::StepContext& step) {
  const tensor::NoGrad no_grad;
  const Tensor logits_tv = projection(step)->forward(x_th, step.policy.statistics);
  ops::cap_logits_(logits_tv, logit_softcap_);
  return logits_tv.narrow(1, 0, weight_->spec().parts.at(0).box.size[0]);
}

}  // namespace pentatron::parallel_layers
