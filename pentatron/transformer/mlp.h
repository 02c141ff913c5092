// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "pentatron/parallel_layers/column_linear.h"
#include "pentatron/parallel_layers/leaf_rule.h"
#include "pentatron/parallel_layers/row_linear.h"
#include "pentatron/transformer/layer_spec.h"

namespace pentatron::transformer {

// The weights of an Mlp.
[[nodiscard]] std::vector<parallel_layers::LeafRule> mlp_rules(const config::ModelConfig& config,
                                                               const MlpSpec& spec);

// fc2(f(fc1 x)), or fc2(f(gate x) * up x), as the spec says: [local rows, hidden] -> the same
// shape, in the compute dtype.
class Mlp final : public nn::Module {
 public:
  Mlp(const parallel_layers::LeafContext& context, const nn::ParameterPlan& plan,
      const std::string& name, const MlpSpec& spec,
      const parallel_layers::AdapterForm& adapters = {});
  [[nodiscard]] Tensor forward(const Tensor& x_th, nn::StepContext& step);

 private:
  ops::Activation activation_;
  std::optional<ops::Gate> gate_;
  parallel_layers::ColumnLinear& fc1_;
  parallel_layers::RowLinear& fc2_;
};

}  // namespace pentatron::transformer
