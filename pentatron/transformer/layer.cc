// SPDX-License-Identifier: Apache-2.0
#include "pentatron/transformer/layer.h"

#include <utility>

#include "pentatron/nn/recompute.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/transformer/recompute_plan.h"

namespace pentatron::transformer {

using parallel_layers::LeafContext;
using parallel_layers::LeafRule;
using parallel_layers::Norm;
using parallel_layers::ResidualDropout;

namespace {

constexpr const char* kInputNorm = "input_layernorm";
constexpr const char* kPostAttentionNorm = "post_self_attn_layernorm";
constexpr const char* kPreMlpNorm = "pre_mlp_layernorm";
constexpr const char* kPostMlpNorm = "post_mlp_layernorm";

bool norms_mlp_input(const LayerSpec& spec) { return spec.norms_inputs && !spec.shared_norm; }

// In the compute dtype, whatever the residual stream has; without a norm the values as they are.
Tensor normalised(Norm* norm, const Tensor& x_th, nn::StepContext& step) {
  return norm != nullptr ? norm->forward(x_th, step) : tensor::cast(x_th, step.policy.compute);
}

}  // namespace

std::vector<LeafRule> layer_rules(const config::ModelConfig& config, const LayerSpec& spec) {
  std::vector<LeafRule> rules;
  const parallel_layers::AdapterForm adapters = adapter_form(config);
  const auto add = [&](const std::string& prefix, std::vector<LeafRule> more) {
    for (LeafRule& rule : more) {
      rule.name = prefix + rule.name;
      rule.adapter = adapters;
      rules.push_back(std::move(rule));
    }
  };
  const auto add_norm = [&](bool wanted, const char* name) {
    if (!wanted) return;
    add("", {parallel_layers::norm_rule(name, config.hidden_size, norm_form(config))});
  };
  add_norm(spec.norms_inputs, kInputNorm);
  add("self_attention.", attention_rules(config));
  add_norm(spec.norms_outputs, kPostAttentionNorm);
  add_norm(norms_mlp_input(spec), kPreMlpNorm);
  add("mlp.", mlp_rules(config, spec.ffn));
  add_norm(spec.norms_outputs, kPostMlpNorm);
  return rules;
}

Norm* TransformerLayer::add_norm(bool wanted, const LeafContext& context,
                                 const nn::ParameterPlan& plan, const std::string& name,
                                 const config::ModelConfig& config) {
  if (!wanted) return nullptr;
  return &add_child(std::make_unique<Norm>(context, plan, name, norm_form(config)));
}

TransformerLayer::TransformerLayer(const LeafContext& context, const nn::ParameterPlan& plan,
                                   const std::string& name, const config::ModelConfig& config,
                                   const LayerSpec& spec, RotaryTablePtr rotary,
                                   std::int64_t cache_layer)
    : recompute_mlp_(RecomputePlan::recomputes(config, RecomputedModule::kMlp)),
      parallel_(spec.parallel),
      shared_norm_(spec.shared_norm),
      residual_after_norm_(spec.residual_after_norm),
      input_norm_(add_norm(spec.norms_inputs, context, plan, name + "." + kInputNorm, config)),
      attention_(
          add_child(std::make_unique<SelfAttention>(context, plan, name + ".self_attention", config,
                                                    spec.mixer, std::move(rotary), cache_layer))),
      post_attention_norm_(
          add_norm(spec.norms_outputs, context, plan, name + "." + kPostAttentionNorm, config)),
      attention_dropout_(add_child(std::make_unique<ResidualDropout>(context, config.hidden_dropout,
                                                                     name + ".hidden_dropout.1"))),
      pre_mlp_norm_(
          add_norm(norms_mlp_input(spec), context, plan, name + "." + kPreMlpNorm, config)),
      mlp_(add_child(
          std::make_unique<Mlp>(context, plan, name + ".mlp", spec.ffn, adapter_form(config)))),
      post_mlp_norm_(
          add_norm(spec.norms_outputs, context, plan, name + "." + kPostMlpNorm, config)),
      mlp_dropout_(add_child(std::make_unique<ResidualDropout>(context, config.hidden_dropout,
                                                               name + ".hidden_dropout.2"))) {}

Tensor TransformerLayer::forward(const Tensor& x_th, nn::StepContext& step) {
  const auto residual = [&](const Tensor& before_th, const Tensor& normalised_th) {
    return residual_after_norm_ ? tensor::cast(normalised_th, x_th.scalar_type()) : before_th;
  };
  const Tensor in_th = normalised(input_norm_, x_th, step);
  const Tensor attended_th =
      normalised(post_attention_norm_, attention_.forward(in_th, step), step);
  const Tensor middle_th = attention_dropout_.forward(attended_th, residual(x_th, in_th), step);
  const Tensor mlp_in_th =
      shared_norm_ ? in_th : normalised(pre_mlp_norm_, parallel_ ? x_th : middle_th, step);
  const Tensor mixed_th = nn::recomputed(
      recompute_mlp_, mlp_in_th, step,
      [this](const Tensor& in, nn::StepContext& inner) { return mlp_.forward(in, inner); });
  return mlp_dropout_.forward(normalised(post_mlp_norm_, mixed_th, step),
                              residual(middle_th, mlp_in_th), step);
}

}  // namespace pentatron::transformer
