// SPDX-License-Identifier: Apache-2.0
#include "pentatron/transformer/block.h"

#include <algorithm>

#include "pentatron/base/error.h"
#include "pentatron/config/choices.h"
#include "pentatron/nn/recipe_scope.h"
#include "pentatron/nn/recompute.h"
#include "pentatron/parallel_layers/distributed_saves.h"

namespace pentatron::transformer {

namespace {
constexpr const char* kRelativePositions = "_relative_pos_emb";
constexpr const char* kRelativeTable = ".relative_attention_bias";
}  // namespace

parallel_layers::LeafRule relative_position_rule(const config::ModelConfig& c,
                                                 const std::string& name) {
  return {.name = name + kRelativePositions + kRelativeTable,
          .parts = {{.rows = c.relative_attention_num_buckets,
                     .cut = {.axis = "tp",
                             .units = c.num_attention_heads,
                             .option = "--num-attention-heads"},
                     .cut_columns = true}},
          .columns = c.num_attention_heads,
          .std = c.init_method_std,
          .xavier = c.init_method_xavier_uniform,
          .role = nn::ShardRole::kPositionTable};
}

TransformerBlock::TransformerBlock(const parallel_layers::LeafContext& context,
                                   const nn::ParameterPlan& plan, const std::string& name,
                                   const config::ModelConfig& config,
                                   std::span<const LayerSpec> specs, int first_layer, int end_layer,
                                   int first_unit)
    : name_(name),
      first_layer_(first_layer),
      first_unit_(first_unit),
      recompute_(config, end_layer - first_layer),
      offload_(config, end_layer - first_layer) {
  PENTATRON_CHECK(static_cast<std::size_t>(end_layer) <= specs.size(), kInternal,
                  "{} layer specs for layers up to {}", specs.size(), end_layer);
  if (config::position_kind(config) == config::PositionKind::kRelative && end_layer > first_layer) {
    relative_ = &add_child(std::make_unique<parallel_layers::RelativePosition>(
        context, plan, name + kRelativePositions + kRelativeTable,
        ops::RelativeForm{.num_buckets = config.relative_attention_num_buckets,
                          .max_distance = config.relative_attention_max_distance}));
  }
  if (config.distribute_saved_activations) {
    saves_ = std::make_unique<parallel_layers::DistributedSaves>(context);
  }
  if (offload_.offloads()) {
    host_ = std::make_unique<tensor::OffloadActivations>(context.device(),
                                                         config.min_offloaded_tensor_size);
  }
  const RotaryTables rotary = make_rotary(config, context.policy(), context.device());
  for (int layer = first_layer; layer < end_layer; ++layer) {
    const LayerSpec& spec = specs[static_cast<std::size_t>(layer)];
    recipes_.push_back(spec.recipe);
    LayerPositions positions = rotary.of(spec.mixer);
    positions.relative = relative_;
    layers_.push_back(&add_child(std::make_unique<TransformerLayer>(
        context.with(spec.delayed_scaling), plan, name + ".layers." + std::to_string(layer), config,
        spec, positions,
        std::make_unique<LayerSaves>(config, host_.get(), offload_, layer - first_layer),
        layer - first_layer)));
  }
}

ResidualStream TransformerBlock::forward_layer(int number, const ResidualStream& in,
                                               nn::StepContext& step) {
  const auto place = static_cast<std::size_t>(number);
  const auto tensors = [](const ResidualStream& stream) {
    return stream.delta_th.defined() ? std::vector<Tensor>{stream.x_th, stream.delta_th}
                                     : std::vector<Tensor>{stream.x_th};
  };
  const auto stream = [](const std::vector<Tensor>& t) {
    return ResidualStream{.x_th = t[0], .delta_th = t.size() > 1 ? t[1] : Tensor()};
  };
  return stream(nn::run_unit(first_unit_ + number, tensors(in), step,
                             [layer = layers_[place], &recipe = recipes_[place], tensors, stream](
                                 const std::vector<Tensor>& inputs, nn::StepContext& inner) {
                               const nn::RecipeScope products(inner, recipe);
                               return tensors(layer->forward(stream(inputs), inner));
                             }));
}

void TransformerBlock::offer(int number, ResidualStream& stream,
                             const nn::StepContext& step) const {
  if (step.hidden == nullptr) return;
  const std::string name = name_ + ".layers." + std::to_string(first_layer_ + number);
  if (!step.takes(name)) return;
  stream = {.x_th = stream.sum()};
  step.offer(name, stream.x_th);
}

Tensor TransformerBlock::forward(const Tensor& x_th, nn::StepContext& step) {
  ResidualStream hidden{.x_th = x_th};
  const auto num_layers = static_cast<int>(layers_.size());
  const bool offloads = host_ != nullptr && step.phase == nn::Phase::kTrain;
  for (int begin = 0, end = 0; begin < num_layers; begin = end) {
    const int run = recompute_.run_at(begin);
    end = begin + std::max(1, run);
    if (run == 0) {
      if (offloads) {
        host_->begin_unit(step.first_unit + first_unit_ + begin, step.scope.micro_batch);
      }
      hidden = forward_layer(begin, hidden, step);
      offer(begin, hidden, step);
      continue;
    }
    // One tensor stays of a run that is made again.
    hidden = {.x_th = nn::recomputed(
                  true, hidden.sum(), step,
                  [=, this](const Tensor& in, nn::StepContext& inner) {
                    ResidualStream out{.x_th = in};
                    for (int layer = begin; layer < end; ++layer) {
                      out = forward_layer(layer, out, inner);
                    }
                    return out.sum();
                  },
                  saves_.get())};
    offer(end - 1, hidden, step);
  }
  if (offloads) host_->end_units();
  return hidden.sum();
}

std::vector<nn::Unit> TransformerBlock::units() {
  std::vector<nn::Unit> units;
  int number = first_layer_;
  for (TransformerLayer* layer : layers_) {
    nn::Unit& unit = units.emplace_back();
    unit.name = name_ + ".layers." + std::to_string(number++);
    if (units.size() == 1 && relative_ != nullptr) unit.parameters = relative_->parameters();
    const std::vector<nn::Parameter*> own = layer->parameters();
    unit.parameters.insert(unit.parameters.end(), own.begin(), own.end());
  }
  return units;
}

}  // namespace pentatron::transformer
