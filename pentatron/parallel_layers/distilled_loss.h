// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "pentatron/config/distillation.h"
#include "pentatron/nn/hidden_states.h"
#include "pentatron/nn/step_context.h"
#include "pentatron/nn/step_ledger.h"
#include "pentatron/parallel_layers/leaf_context.h"
#include "pentatron/parallel_layers/vocab_head.h"

namespace pentatron::parallel_layers {

// What a student's head needs of one micro-batch besides its own numbers.
struct Distillation {
  const config::DistillationForm& form;
  Tensor teacher_logits_tv;         // as VocabHead::teacher_logits() gives them
  const nn::HiddenStates& teacher;  // form.teacher_layers()
  const nn::HiddenStates& student;  // form.student_layers(), with their graph
};

// Their names in the ledger, Megatron-LM's. The first is trained on.
inline constexpr const char* kTotalLoss = "total loss";
inline constexpr const char* kLogitsLoss = "logits distillation loss";
inline constexpr const char* kHiddenLoss = "intermediate distillation loss";
// Their entries; each is a sum over tokens by the loss mask.
[[nodiscard]] std::vector<nn::LedgerEntry> distillation_losses(
    const config::DistillationForm& form);

// What a student is trained on in place of its own loss, a scalar in the loss dtype, equal on all
// tensor-parallel ranks: the sum over tokens of the divergence from the teacher's distribution, of
// the mean distance of the pairs' hidden states and, if that is asked for, of the label's negative
// log-likelihood, each weighted by the loss mask and balanced. As in Megatron-LM the hidden states'
// share is scaled to the size of the divergence, and without kd_loss_alpha both together to that of
// the label's loss times kd_loss_scale; sizes are those of the sequence (Megatron-LM: of the
// micro-batch and rank), so that no layout changes the result. Records the parts, unbalanced.
[[nodiscard]] Tensor distilled_loss(const LeafContext& context, VocabHead& head, const Tensor& x_th,
                                    nn::StepContext& step);

}  // namespace pentatron::parallel_layers
