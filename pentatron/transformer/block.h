// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "pentatron/nn/unit.h"
#include "pentatron/transformer/layer.h"

namespace pentatron::transformer {

// Layers [first_layer, end_layer) of a model in order, each a unit of the stage: [local rows,
// hidden] -> the same shape, in the compute dtype.
class TransformerBlock final : public nn::Module {
 public:
  // Layers are named `name`.layers.<global number>; the first stands at `first_unit` among the
  // stage's units.
  TransformerBlock(const parallel_layers::LeafContext& context, const nn::ParameterPlan& plan,
                   const std::string& name, const config::ModelConfig& config, int first_layer,
                   int end_layer, int first_unit);
  [[nodiscard]] Tensor forward(const Tensor& x_th, nn::StepContext& step);
  // One a layer, for Stage::units().
  [[nodiscard]] std::vector<nn::Unit> units();

 private:
  std::string name_;
  int first_layer_;
  int first_unit_;
  std::vector<TransformerLayer*> layers_;
};

}  // namespace pentatron::transformer
