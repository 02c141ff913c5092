// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "pentatron/nn/module.h"
#include "pentatron/nn/parameter_plan.h"
#include "pentatron/parallel_layers/leaf_context.h"

namespace pentatron::parallel_layers {

// Token embeddings with vocabulary rows split over the tensor-parallel ranks: [tokens] ids of the
// batch -> [local rows, hidden] in the compute dtype. An id outside the true vocabulary is a data
// error (checked where the ids are in host memory).
class VocabEmbedding final : public nn::Module {
 public:
  VocabEmbedding(const LeafContext& context, const nn::ParameterPlan& plan,
                 const std::string& name);
  [[nodiscard]] Tensor forward(nn::StepContext& step);
  [[nodiscard]] nn::Parameter& weight() { return *weight_; }

 private:
  LeafContext context_;
  nn::Parameter* weight_;
};

}  // namespace pentatron::parallel_layers
