// SPDX-License-Identifier: Apache-2.0
#include "pentatron/transformer/layer.h"

#include <utility>

#include "pentatron/nn/recompute.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/transformer/recompute_plan.h"

namespace pentatron::transformer {

using parallel_layers::GatheredLinear;
using parallel_layers::LeafContext;
using parallel_layers::LeafRule;
using parallel_layers::Norm;
using parallel_layers::ResidualDropout;

namespace {

constexpr const char* kMixer = "self_attention";
constexpr const char* kFeedForward = "mlp";
constexpr const char* kInputNorm = "input_layernorm";
constexpr const char* kPostAttentionNorm = "post_self_attn_layernorm";
constexpr const char* kPreMlpNorm = "pre_mlp_layernorm";
constexpr const char* kPostMlpNorm = "post_mlp_layernorm";

bool norms_mixer_input(const LayerSpec& spec) { return spec.norms_inputs && spec.has_mixer(); }
bool norms_mixer_output(const LayerSpec& spec) { return spec.norms_outputs && spec.has_mixer(); }
bool norms_mlp_input(const LayerSpec& spec) {
  return spec.norms_inputs && !spec.shared_norm && spec.has_ffn();
}
bool norms_mlp_output(const LayerSpec& spec) { return spec.norms_outputs && spec.has_ffn(); }

// What stands for a half that is replaced, under the half's own name.
LeafRule linear_rule(const config::ModelConfig& c, const char* name) {
  return {.name = name,
          .parts = {{.rows = c.hidden_size,
                     .cut = {.axis = "tp", .units = c.hidden_size, .option = "--hidden-size"}}},
          .columns = c.hidden_size,
          .bias = c.add_bias_linear,
          .std = hidden_init_std(c),
          .xavier = c.init_method_xavier_uniform};
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
  add_norm(norms_mixer_input(spec), kInputNorm);
  if (spec.mixer.form == SublayerForm::kUsual) {
    add(std::string(kMixer) + ".", attention_rules(config, spec.mixer));
  } else if (spec.mixer.form == SublayerForm::kLinear) {
    add("", {linear_rule(config, kMixer)});
  }
  add_norm(norms_mixer_output(spec), kPostAttentionNorm);
  add_norm(norms_mlp_input(spec), kPreMlpNorm);
  if (spec.ffn.form == SublayerForm::kUsual) {
    add(std::string(kFeedForward) + ".", mlp_rules(config, spec.ffn));
  } else if (spec.ffn.form == SublayerForm::kLinear) {
    add("", {linear_rule(config, kFeedForward)});
  }
  add_norm(norms_mlp_output(spec), kPostMlpNorm);
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
                                   const LayerSpec& spec, LayerPositions positions,
                                   std::unique_ptr<LayerSaves> saves, std::int64_t cache_layer)
    : name_(name),
      recompute_mlp_(RecomputePlan::recomputes(config, RecomputedModule::kMlp)),
      saves_(std::move(saves)),
      parallel_(spec.parallel),
      shared_norm_(spec.shared_norm),
      residual_after_norm_(spec.residual_after_norm),
      input_norm_(
          add_norm(norms_mixer_input(spec), context, plan, name + "." + kInputNorm, config)) {
  // Children stand in the order of the rules.
  const auto add_linear = [&](const std::string& of) {
    return &add_child(std::make_unique<GatheredLinear>(context, plan, of));
  };
  const auto add_dropout = [&](const char* site) {
    return &add_child(
        std::make_unique<ResidualDropout>(context, config.hidden_dropout, name + site));
  };
  const std::string mixer = name + "." + kMixer, ffn = name + "." + kFeedForward;
  if (spec.mixer.form == SublayerForm::kUsual) {
    attention_ = &add_child(std::make_unique<SelfAttention>(
        context, plan, mixer, config, spec.mixer, std::move(positions), *saves_, cache_layer));
  } else if (spec.mixer.form == SublayerForm::kLinear) {
    linear_attention_ = add_linear(mixer);
  }
  post_attention_norm_ =
      add_norm(norms_mixer_output(spec), context, plan, name + "." + kPostAttentionNorm, config);
  attention_dropout_ = add_dropout(".hidden_dropout.1");
  pre_mlp_norm_ = add_norm(norms_mlp_input(spec), context, plan, name + "." + kPreMlpNorm, config);
  if (spec.ffn.form == SublayerForm::kUsual) {
    mlp_ = &add_child(std::make_unique<Mlp>(context, plan, ffn, spec.ffn, adapter_form(config)));
  } else if (spec.ffn.form == SublayerForm::kLinear) {
    linear_mlp_ = add_linear(ffn);
  }
  post_mlp_norm_ =
      add_norm(norms_mlp_output(spec), context, plan, name + "." + kPostMlpNorm, config);
  mlp_dropout_ = add_dropout(".hidden_dropout.2");
}

Tensor TransformerLayer::normalised(Norm* norm, OffloadedModule part, const Tensor& x_th,
                                    nn::StepContext& step) const {
  if (norm == nullptr) return tensor::cast(x_th, step.policy.compute);
  const LayerSaves::Scope saves = saves_->around(step, part);
  return norm->forward(x_th, step);
}

Norm::Added TransformerLayer::add_and_norm(Norm& norm, const ResidualStream& in,
                                           nn::StepContext& step) const {
  const LayerSaves::Scope saves = saves_->around(
      step, &norm == input_norm_ ? OffloadedModule::kAttnNorm : OffloadedModule::kMlpNorm);
  return norm.add_and_norm(in.x_th, in.delta_th, step);
}

void TransformerLayer::offer(const char* norm, const Tensor& x_th,
                             const nn::StepContext& step) const {
  if (step.hidden != nullptr) step.offer(name_ + "." + norm, x_th);
}

Tensor TransformerLayer::attended(const Tensor& in_th, nn::StepContext& step) {
  return normalised(post_attention_norm_, OffloadedModule::kAttnNorm,
                    attention_ != nullptr ? attention_->forward(in_th, step)
                                          : linear_attention_->forward(in_th, step),
                    step);
}

Tensor TransformerLayer::fed_forward(const Tensor& in_th, nn::StepContext& step) {
  constexpr auto kPart = OffloadedModule::kMlpNorm;
  if (mlp_ == nullptr) {
    return normalised(post_mlp_norm_, kPart, linear_mlp_->forward(in_th, step), step);
  }
  const Tensor mixed_th =
      nn::recomputed(recompute_mlp_, in_th, step, [this](const Tensor& in, nn::StepContext& inner) {
        const LayerSaves::Scope saves = saves_->around(inner);
        return mlp_->forward(in, inner);
      });
  return normalised(post_mlp_norm_, kPart, mixed_th, step);
}

Tensor TransformerLayer::forward(const Tensor& x_th, nn::StepContext& step) {
  return forward(ResidualStream{.x_th = x_th}, step).sum();
}

ResidualStream TransformerLayer::forward(const ResidualStream& in, nn::StepContext& step) {
  const LayerSaves::Scope saves = saves_->around(step);
  return forward_layer(in, step);
}

ResidualStream TransformerLayer::forward_layer(const ResidualStream& in, nn::StepContext& step) {
  const bool mixes = attention_ != nullptr || linear_attention_ != nullptr;
  const bool feeds = mlp_ != nullptr || linear_mlp_ != nullptr;
  Tensor x_th, in_th;
  if (mixes && input_norm_ != nullptr) {
    const Norm::Added added = add_and_norm(*input_norm_, in, step);
    x_th = added.sum;
    in_th = added.normalised;
  } else {
    x_th = in.sum();
    if (mixes) in_th = normalised(input_norm_, OffloadedModule::kAttnNorm, x_th, step);
  }
  offer(kInputNorm, in_th, step);
  const auto residual = [&](const Tensor& before_th, const Tensor& normalised_th) {
    return residual_after_norm_ ? tensor::cast(normalised_th, x_th.scalar_type()) : before_th;
  };
  // The feed-forward reads the norm of what attention leaves: one pass adds and normalises.
  const bool one_pass = feeds && pre_mlp_norm_ != nullptr && !shared_norm_ && !parallel_;
  Tensor middle_th = x_th, mlp_in_th;
  if (mixes) {
    const ResidualStream mixed{.x_th = residual(x_th, in_th),
                               .delta_th = attention_dropout_->drop(attended(in_th, step), step)};
    if (!feeds) return mixed;
    if (one_pass) {
      const Norm::Added added = add_and_norm(*pre_mlp_norm_, mixed, step);
      middle_th = added.sum;
      mlp_in_th = added.normalised;
    } else {
      middle_th = mixed.sum();
    }
  }
  if (!feeds) return {.x_th = middle_th};
  if (shared_norm_) {
    mlp_in_th = in_th;
  } else if (!mlp_in_th.defined()) {
    mlp_in_th =
        normalised(pre_mlp_norm_, OffloadedModule::kMlpNorm, parallel_ ? x_th : middle_th, step);
  }
  offer(kPreMlpNorm, mlp_in_th, step);
  return {.x_th = residual(middle_th, mlp_in_th),
          .delta_th = mlp_dropout_->drop(fed_forward(mlp_in_th, step), step)};
}

}  // namespace pentatron::transformer
