// SPDX-License-Identifier: Apache-2.0
#include "pentatron/transformer/layer.h"

#include <utility>

#include "pentatron/nn/recompute.h"
#include "pentatron/transformer/recompute_plan.h"

namespace pentatron::transformer {

using parallel_layers::LeafRule;
using parallel_layers::Norm;
using parallel_layers::ResidualDropout;

std::vector<LeafRule> layer_rules(const config::ModelConfig& config, const LayerSpec& spec) {
  std::vector<LeafRule> rules;
  const auto add = [&rules](const std::string& prefix, std::vector<LeafRule> more) {
    for (LeafRule& rule : more) {
      rule.name = prefix + rule.name;
      rules.push_back(std::move(rule));
    }
  };
  const auto norm = [&config](const char* name) {
    return parallel_layers::norm_rule(name, config.hidden_size, norm_form(config));
  };
  add("", {norm("input_layernorm")});
  add("self_attention.", attention_rules(config));
  add("", {norm("pre_mlp_layernorm")});
  add("mlp.", mlp_rules(config, spec.ffn));
  return rules;
}

TransformerLayer::TransformerLayer(const parallel_layers::LeafContext& context,
                                   const nn::ParameterPlan& plan, const std::string& name,
                                   const config::ModelConfig& config, const LayerSpec& spec,
                                   RotaryTablePtr rotary, std::int64_t cache_layer)
    : recompute_mlp_(RecomputePlan::recomputes(config, RecomputedModule::kMlp)),
      input_norm_(add_child(
          std::make_unique<Norm>(context, plan, name + ".input_layernorm", norm_form(config)))),
      attention_(
          add_child(std::make_unique<SelfAttention>(context, plan, name + ".self_attention", config,
                                                    spec.mixer, std::move(rotary), cache_layer))),
      attention_dropout_(add_child(std::make_unique<ResidualDropout>(context, config.hidden_dropout,
                                                                     name + ".hidden_dropout.1"))),
      pre_mlp_norm_(add_child(
          std::make_unique<Norm>(context, plan, name + ".pre_mlp_layernorm", norm_form(config)))),
      mlp_(add_child(std::make_unique<Mlp>(context, plan, name + ".mlp", spec.ffn))),
      mlp_dropout_(add_child(std::make_unique<ResidualDropout>(context, config.hidden_dropout,
                                                               name + ".hidden_dropout.2"))) {}

Tensor TransformerLayer::forward(const Tensor& x_th, nn::StepContext& step) {
  const Tensor attended_th = attention_.forward(input_norm_.forward(x_th, step), step);
  const Tensor middle_th = attention_dropout_.forward(attended_th, x_th, step);
  const Tensor mixed_th = nn::recomputed(
      recompute_mlp_, pre_mlp_norm_.forward(middle_th, step), step,
      [this](const Tensor& in, nn::StepContext& inner) { return mlp_.forward(in, inner); });
  return mlp_dropout_.forward(mixed_th, middle_th, step);
}

}  // namespace pentatron::transformer
