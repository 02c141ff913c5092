// SPDX-License-Identifier: Apache-2.0
#include "pentatron/parallel_layers/vocab_head.h"

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

Tensor VocabHead::token_losses(const Tensor& x_th, nn::StepContext& step) {
  const nn::ShardPart& part = weight_->spec().parts.at(0);
  const std::unique_ptr<ops::RowReducer> ranks = vocabulary_reducer(context_);
  return ops::token_losses(x_th, projection(step), step.batch.labels(),
                           {.logits = step.policy.logits,
                            .statistics = step.policy.statistics,
                            .column_begin = part.box.offset[0],
                            .valid_columns = part.box.size[0],
                            .vocabulary_ranks = ranks.get(),
                            .logit_softcap = logit_softcap_,
                            .label_smoothing = label_smoothing_,
                            .vocabulary = part.logical_shape[0]});
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
