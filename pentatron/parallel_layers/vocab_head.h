// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "pentatron/nn/module.h"
#include "pentatron/nn/parameter_plan.h"
#include "pentatron/ops/distillation.h"
#include "pentatron/ops/projection.h"
#include "pentatron/ops/token_losses.h"
#include "pentatron/parallel_layers/leaf_context.h"

namespace pentatron::parallel_layers {

// Logits of a micro-batch on a rank that would take more bytes than `most` are made in pieces of
// about `piece`, and once more in backward: a third more work in the head, for micro-batches of
// long sequences that could not run at all.
struct LogitMemory {
  std::int64_t most = std::int64_t{8} << 30;
  std::int64_t piece = std::int64_t{1} << 30;

  // How many of `rows` rows of x are worked on at once, for logits [tokens, columns] of `dtype`;
  // all where they may lie whole in memory.
  [[nodiscard]] std::int64_t rows_at_once(std::int64_t rows, std::int64_t tokens,
                                          std::int64_t columns, DType dtype) const;
};

// The output layer with the vocabulary-parallel loss: logits = x W^T with W's vocabulary rows split
// over the tensor-parallel ranks, and cross entropy whose maximum, sum of exponentials and target
// logit are reduced over them. Padding rows never enter. With a softcap c > 0 the logits are c
// tanh(x W^T / c), everywhere.
class VocabHead final : public nn::Module {
 public:
  // With a weight of its own, name + ".weight" in the plan.
  VocabHead(const LeafContext& context, const nn::ParameterPlan& plan, const std::string& name,
            double logit_softcap = 0.0);
  // Losses of training are smoothed from now on (ops::TokenLossOptions::label_smoothing, from 0 to
  // below 1); those of evaluations, which runs are compared by, are not.
  void set_label_smoothing(double smoothing) { label_smoothing_ = smoothing; }
  // With the embedding's weight, which must outlive the head; `owner`: position in the stage of the
  // unit that holds it, where its postponed weight gradients are queued.
  VocabHead(const LeafContext& context, nn::Parameter& tied_weight, int owner,
            double logit_softcap = 0.0);

  // The negative log-likelihood of each token's label: [tokens] in the statistics dtype, equal on
  // all tensor-parallel ranks. x [local rows, hidden]. The softmax's gradient replaces the logits
  // in place: the loss needs under 1.2 times the logits' bytes, or, in pieces, those of a piece.
  [[nodiscard]] Tensor token_losses(const Tensor& x_th, nn::StepContext& step);
  // Their sum weighted by the batch's loss_mask: a scalar in the loss dtype. `seed`, if it is
  // known: the gradient that will come for it (ops::seeded_token_loss).
  [[nodiscard]] Tensor loss(const Tensor& x_th, nn::StepContext& step, const Tensor& seed = {});
  // The same losses, and beside them each token's divergence from a teacher's distribution
  // (ops::distilled_losses): `teacher_tv` as teacher_logits() of a head of this layout gave it.
  // Logits are whole in memory, those of both models.
  [[nodiscard]] ops::DistilledLosses distilled_losses(const Tensor& x_th, nn::StepContext& step,
                                                      const Tensor& teacher_tv, double temperature);
  // [tokens, this rank's vocabulary rows with padding] in the dtype that losses are made of.
  [[nodiscard]] Tensor teacher_logits(const Tensor& x_th, nn::StepContext& step);
  // [tokens, this rank's true vocabulary rows] in the logits dtype.
  [[nodiscard]] Tensor logits(const Tensor& x_th, nn::StepContext& step);

  // Other bounds than the usual ones for what the loss holds.
  void set_logit_memory(const LogitMemory& memory) { logit_memory_ = memory; }

 private:
  [[nodiscard]] std::unique_ptr<ops::Projection> projection(const nn::StepContext& step) const;
  [[nodiscard]] ops::TokenLossOptions loss_options(std::int64_t rows, const nn::StepContext& step,
                                                   ops::RowReducer* ranks) const;

  LeafContext context_;
  nn::Parameter* weight_;
  std::optional<int> owner_;  // of a tied weight
  double logit_softcap_;      // 0: none
  double label_smoothing_ = 0.0;
  LogitMemory logit_memory_;
};

}  // namespace pentatron::parallel_layers
