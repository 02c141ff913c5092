// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "pentatron/transformer/layer.h"

namespace pentatron::transformer {

// Layers [first_layer, end_layer) of a model in order, each bracketed by layer events: [local rows,
// hidden] -> the same shape, in the compute dtype.
class TransformerBlock final : public nn::Module {
 public:
  // Layers are named `name`.layers.<global number>.
  TransformerBlock(const parallel_layers::LeafContext& context, const nn::ParameterPlan& plan,
                   const std::string& name, const config::ModelConfig& config, int first_layer,
                   int end_layer);
  [[nodiscard]] Tensor forward(const Tensor& x_th, nn::StepContext& step);

 private:
  int first_layer_;
  std::vector<TransformerLayer*> layers_;
};

// The identity nodes that tell the step's sink of a layer's four moments; x itself without a sink.
[[nodiscard]] Tensor begin_layer(const Tensor& x, int layer, nn::StepContext& step);
[[nodiscard]] Tensor end_layer(const Tensor& x, int layer, nn::StepContext& step);

}  // namespace pentatron::transformer
