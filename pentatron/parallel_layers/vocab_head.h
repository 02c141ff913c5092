// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "pentatron/nn/module.h"
#include "pentatron/nn/parameter_plan.h"
#include "pentatron/ops/projection.h"
#include "pentatron/parallel_layers/leaf_context.h"

namespace pentatron::parallel_layers {

// The output layer with the vocabulary-parallel loss: logits = x W^T with W's vocabulary rows split
// over the tensor-parallel ranks, and cross entropy whose maximum, sum of exponentials and target
// logit are reduced over them. Padding rows never enter. With a softcap c > 0 the logits are c
// tanh(x W^T / c), everywhere.
class VocabHead final : public nn::Module {
 public:
  // With a weight of its own, name + ".weight" in the plan.
  VocabHead(const LeafContext& context, const nn::ParameterPlan& plan, const std::string& name,
            double logit_softcap = 0.0);
  // Losses are smoothed from now on (ops::TokenLossOptions::label_smoothing, from 0 to below 1).
  void set_label_smoothing(double smoothing) { label_smoothing_ = smoothing; }
  // With the embedding's weight, which must outlive the head; `owner`: position in the stage of the
  // unit that holds it, where its postponed weight gradients are queued.
  VocabHead(const LeafContext& context, nn::Parameter& tied_weight, int owner,
            double logit_softcap = 0.0);

  // The negative log-likelihood of each token's label: [tokens] in the statistics dtype, equal on
  // all tensor-parallel ranks. x [local rows, hidden]. The softmax's gradient replaces the logits
  // in place: the loss needs under 1.2 times the logits' bytes.
  [[nodiscard]] Tensor token_losses(const Tensor& x_th, nn::StepContext& step);
  // Their sum weighted by the batch's loss_mask: a scalar in the loss dtype.
  [[nodiscard]] Tensor loss(const Tensor& x_th, nn::StepContext& step);
  // [tokens, this rank's true vocabulary rows] in the logits dtype.
  [[nodiscard]] Tensor logits(const Tensor& x_th, nn::StepContext& step);

 private:
  [[nodiscard]] std::unique_ptr<ops::Projection> projection(const nn::StepContext& step) const;

  LeafContext context_;
  nn::Parameter* weight_;
  std::optional<int> owner_;  // of a tied weight
  double logit_softcap_;      // 0: none
  double label_smoothing_ = 0.0;
};

}  // namespace pentatron::parallel_layers
