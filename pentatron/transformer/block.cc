// SPDX-License-Identifier: Apache-2.0
#include "pentatron/transformer/block.h"

namespace pentatron::transformer {

using parallel_layers::Norm;
using parallel_layers::ResidualDropout;

TransformerLayer::TransformerLayer(const parallel_layers::LeafContext& context,
                                   const nn::ParameterPlan& plan, const std::string& name,
                                   const config::ModelConfig& config, RotaryTablePtr rotary,
                                   std::int64_t cache_layer)
    : input_norm_(
          add_child(std::make_unique<Norm>(context, plan, name + ".input_layernorm",
                                           config.normalization, config.layernorm_epsilon))),
      attention_(add_child(std::make_unique<SelfAttention>(
          context, plan, name + ".self_attention", config, std::move(rotary), cache_layer))),
      attention_dropout_(add_child(std::make_unique<ResidualDropout>(context, config.hidden_dropout,
                                                                     name + ".hidden_dropout.1"))),
      pre_mlp_norm_(
          add_child(std::make_unique<Norm>(context, plan, name + ".pre_mlp_layernorm",
                                           config.normalization, config.layernorm_epsilon))),
      mlp_(add_child(std::make_unique<Mlp>(context, plan, name + ".mlp", config))),
      mlp_dropout_(add_child(std::make_unique<ResidualDropout>(context, config.hidden_dropout,
                                                               name + ".hidden_dropout.2"))) {}

Tensor TransformerLayer::forward(const Tensor& x_th, nn::StepContext& step) {
  const Tensor attended_th = attention_.forward(input_norm_.forward(x_th, step), step);
  const Tensor middle_th = attention_dropout_.forward(attended_th, x_th, step);
  const Tensor mixed_th = mlp_.forward(pre_mlp_norm_.forward(middle_th, step), step);
  return mlp_dropout_.forward(mixed_th, middle_th, step);
}

TransformerBlock::TransformerBlock(const parallel_layers::LeafContext& context,
                                   const nn::ParameterPlan& plan, const std::string& name,
                                   const config::ModelConfig& config, int first_layer,
                                   int end_layer, int first_unit)
    : name_(name), first_layer_(first_layer), first_unit_(first_unit) {
  const RotaryTablePtr rotary = make_rotary(config, context.policy(), context.device());
  for (int layer = first_layer; layer < end_layer; ++layer) {
    layers_.push_back(&add_child(
        std::make_unique<TransformerLayer>(context, plan, name + ".layers." + std::to_string(layer),
                                           config, rotary, layer - first_layer)));
  }
}

Tensor TransformerBlock::forward(const Tensor& x_th, nn::StepContext& step) {
  Tensor hidden_th = x_th;
  int unit = first_unit_;
  for (TransformerLayer* layer : layers_) {
    hidden_th = nn::run_unit(unit++, hidden_th, step, [layer](const Tensor& x, nn::StepContext& s) {
      return layer->forward(x, s);
    });
  }
  return hidden_th;
}

std::vector<nn::Unit> TransformerBlock::units() {
  std::vector<nn::Unit> units;
  int number = first_layer_;
  for (TransformerLayer* layer : layers_) {
    units.push_back({name_ + ".layers." + std::to_string(number++), layer->parameters()});
  }
  return units;
}

}  // namespace pentatron::transformer
