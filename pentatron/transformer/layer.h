// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "pentatron/parallel_layers/norm.h"
#include "pentatron/parallel_layers/residual_dropout.h"
#include "pentatron/transformer/attention.h"
#include "pentatron/transformer/mlp.h"

namespace pentatron::transformer {

// The weights of a TransformerLayer, named from the layer on ("self_attention.linear_qkv").
[[nodiscard]] std::vector<parallel_layers::LeafRule> layer_rules(const config::ModelConfig& config,
                                                                 const LayerSpec& spec);

// A pre-norm transformer layer: x + drop(attention(norm x)), then the same with the mlp. [local
// rows, hidden] -> the same shape.
class TransformerLayer final : public nn::Module {
 public:
  TransformerLayer(const parallel_layers::LeafContext& context, const nn::ParameterPlan& plan,
                   const std::string& name, const config::ModelConfig& config,
                   const LayerSpec& spec, RotaryTablePtr rotary, std::int64_t cache_layer);
  [[nodiscard]] Tensor forward(const Tensor& x_th, nn::StepContext& step);

 private:
  bool recompute_mlp_;
  parallel_layers::Norm& input_norm_;
  SelfAttention& attention_;
  parallel_layers::ResidualDropout& attention_dropout_;
  parallel_layers::Norm& pre_mlp_norm_;
  Mlp& mlp_;
  parallel_layers::ResidualDropout& mlp_dropout_;
};

}  // namespace pentatron::transformer
