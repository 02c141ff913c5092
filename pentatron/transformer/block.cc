// SPDX-License-Identifier: Apache-2.0
#include "pentatron/transformer/block.h"

#include <algorithm>

#include "pentatron/base/error.h"
#include "pentatron/nn/recipe_scope.h"
#include "pentatron/nn/recompute.h"

namespace pentatron::transformer {

TransformerBlock::TransformerBlock(const parallel_layers::LeafContext& context,
                                   const nn::ParameterPlan& plan, const std::string& name,
                                   const config::ModelConfig& config,
                                   std::span<const LayerSpec> specs, int first_layer, int end_layer,
                                   int first_unit)
    : name_(name),
      first_layer_(first_layer),
      first_unit_(first_unit),
      recompute_(config, end_layer - first_layer) {
  PENTATRON_CHECK(static_cast<std::size_t>(end_layer) <= specs.size(), kInternal,
                  "{} layer specs for layers up to {}", specs.size(), end_layer);
  const RotaryTables rotary = make_rotary(config, context.policy(), context.device());
  for (int layer = first_layer; layer < end_layer; ++layer) {
    const LayerSpec& spec = specs[static_cast<std::size_t>(layer)];
    recipes_.push_back(spec.recipe);
    layers_.push_back(&add_child(std::make_unique<TransformerLayer>(
        context.with(spec.delayed_scaling), plan, name + ".layers." + std::to_string(layer), config,
        spec, rotary.of(spec.mixer), layer - first_layer)));
  }
}

Tensor TransformerBlock::forward_layer(int number, const Tensor& x_th, nn::StepContext& step) {
  const auto place = static_cast<std::size_t>(number);
  return nn::run_unit(first_unit_ + number, x_th, step,
                      [layer = layers_[place], &recipe = recipes_[place]](const Tensor& in,
                                                                          nn::StepContext& inner) {
                        const nn::RecipeScope products(inner, recipe);
                        return layer->forward(in, inner);
                      });
}

Tensor TransformerBlock::forward(const Tensor& x_th, nn::StepContext& step) {
  Tensor hidden_th = x_th;
  const auto num_layers = static_cast<int>(layers_.size());
  for (int begin = 0, end = 0; begin < num_layers; begin = end) {
    const int run = recompute_.run_at(begin);
    end = begin + std::max(1, run);
    hidden_th = nn::recomputed(run > 0, hidden_th, step,
                               [=, this](const Tensor& in, nn::StepContext& inner) {
                                 Tensor out = in;
                                 for (int layer = begin; layer < end; ++layer) {
                                   out = forward_layer(layer, out, inner);
                                 }
                                 return out;
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
