// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "pentatron/nn/module.h"
#include "pentatron/ops/relative_bias.h"
#include "pentatron/parallel_layers/leaf_context.h"

namespace pentatron::nn {
class ParameterPlan;
}

namespace pentatron::parallel_layers {

// Learned biases of attention by distance (ops/relative_bias.h), a table [buckets, heads] that all
// layers share and whose heads are cut over the tensor-parallel ranks as theirs are.
class RelativePosition final : public nn::Module {
 public:
  // `name`: local name without ".weight".
  RelativePosition(const LeafContext& context, const nn::ParameterPlan& plan,
                   const std::string& name, const ops::RelativeForm& form);

  // AttentionOptions::bias_nd of this rank's heads, in the graph.
  [[nodiscard]] Tensor biases() const;

 private:
  DType statistics_;
  nn::Parameter* table_bn_;
  Tensor choice_db_;
};

}  // namespace pentatron::parallel_layers
