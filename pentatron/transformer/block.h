// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pentatron/nn/unit.h"
#include "pentatron/parallel_layers/relative_position.h"
#include "pentatron/tensor/offload_activations.h"
#include "pentatron/tensor/saved.h"
#include "pentatron/transformer/layer.h"
#include "pentatron/transformer/offload_plan.h"
#include "pentatron/transformer/recompute_plan.h"

namespace pentatron::transformer {

// The table of learned biases of a model with --position-embedding-type relative, for
// the layers of the block `name`.
[[nodiscard]] parallel_layers::LeafRule relative_position_rule(const config::ModelConfig& config,
                                                               const std::string& name);

// Layers [first_layer, end_layer) of a model in order, each a unit of the stage: [local rows,
// hidden] -> the same shape, in the compute dtype.
class TransformerBlock final : public nn::Module {
 public:
  // `specs`: of all layers of the model. Layers are named `name`.layers.<global number>; the first
  // stands at `first_unit` among the stage's units. A planned table of biases is named
  // `name`_relative_pos_emb.
  TransformerBlock(const parallel_layers::LeafContext& context, const nn::ParameterPlan& plan,
                   const std::string& name, const config::ModelConfig& config,
                   std::span<const LayerSpec> specs, int first_layer, int end_layer,
                   int first_unit);
  [[nodiscard]] Tensor forward(const Tensor& x_th, nn::StepContext& step);
  // One a layer, for Stage::units(). What all layers share belongs to the first, whose backward is
  // the last.
  [[nodiscard]] std::vector<nn::Unit> units();

 private:
  // `number`: place in the block.
  [[nodiscard]] ResidualStream forward_layer(int number, const ResidualStream& in,
                                             nn::StepContext& step);

  // What a layer leaves, to whoever takes hidden states; it is one tensor then.
  void offer(int number, ResidualStream& stream, const nn::StepContext& step) const;

  std::string name_;
  int first_layer_;
  int first_unit_;
  RecomputePlan recompute_;
  std::unique_ptr<SavePolicy> saves_;  // of inputs of recomputed layers; null: whole on each rank
  OffloadPlan offload_;
  std::unique_ptr<tensor::OffloadActivations> host_;       // null: no activations wait there
  parallel_layers::RelativePosition* relative_ = nullptr;  // null: none
  std::vector<TransformerLayer*> layers_;
  std::vector<ops::Recipe> recipes_;  // of the layers
};

}  // namespace pentatron::transformer
