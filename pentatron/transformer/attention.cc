// SPDX-License-Identifier: Apache-2.0
#include "pentatron/transformer/attention.h"

#include <utility>

#include "pentatron/config/choices.h"
#include "pentatron/config/latent_attention.h"
#include "pentatron/nn/recompute.h"
#include "pentatron/ops/sigmoid_gate.h"
#include "pentatron/transformer/layer_spec.h"
#include "pentatron/transformer/recompute_plan.h"

namespace pentatron::transformer {

using parallel_layers::ColumnLinear;
using parallel_layers::CoreAttention;
using parallel_layers::Cut;
using parallel_layers::FewerUnits;
using parallel_layers::LeafPart;
using parallel_layers::LeafRule;
using parallel_layers::Norm;
using parallel_layers::RowLinear;
using parallel_layers::Sink;

namespace {

constexpr const char* kLinearQkv = ".linear_qkv";
constexpr std::string_view kQkvWeight = ".linear_qkv.weight";
constexpr const char* kCoreAttention = "core_attention";

Sink sink_of(const config::ModelConfig& c) {
  switch (config::softmax_kind(c)) {
    case config::SoftmaxKind::kVanilla:
      return Sink::kNone;
    case config::SoftmaxKind::kOffByOne:
      return Sink::kZero;
    case config::SoftmaxKind::kLearnable:
      return Sink::kLearned;
  }
  return Sink::kNone;
}

CoreAttention::Options core_options(const config::ModelConfig& c, const AttentionSpec& spec,
                                    const parallel_layers::RelativePosition* relative,
                                    std::string site, std::int64_t cache_layer) {
  return {.head_dim = c.kv_channels,
          .alibi = config::position_kind(c) == config::PositionKind::kAlibi,
          .alibi_scale = c.alibi_scale,
          .alibi_in_bf16 = c.alibi_in_bf16,
          .relative = relative,
          .scale = c.softmax_scale.value_or(
              c.multi_latent_attention ? config::latent_softmax_scale(c) : 0.0),
          .window = spec.window,
          .softcap = c.attn_logit_softcapping.value_or(0.0),
          .sink = sink_of(c),
          .tells_each_head = c.qk_clip,
          .dropout = c.attention_dropout,
          .site = std::move(site),
          .cache_layer = cache_layer,
          .context_comm = spec.context_comm};
}

// The norm of queries and keys.
parallel_layers::NormForm qk_norm_form(const config::ModelConfig& c) {
  parallel_layers::NormForm form = norm_form(c);
  if (c.qk_l2_norm) form.kind = parallel_layers::NormKind::kL2Norm;
  return form;
}

// Of `channels` in all heads, which stand on the ranks as `heads` says.
LeafRule qk_norm_rule(const config::ModelConfig& c, const char* name, std::int64_t channels,
                      const Cut& heads) {
  const bool all_heads = config::qk_norm_scope(c) == config::QkNormScope::kAllHeads;
  LeafRule rule =
      parallel_layers::norm_rule(name, all_heads ? channels : c.kv_channels, qk_norm_form(c));
  if (all_heads) {
    rule.parts.at(0).cut = heads;
  } else {
    rule.of_cut_rows = true;  // all heads of all ranks share the weights
  }
  return rule;
}

}  // namespace

std::optional<ClippedWeight> clipped_weight(const nn::Parameter& weight,
                                            const config::ModelConfig& config) {
  const std::string& name = weight.local_name();
  if (!name.ends_with(kQkvWeight)) return std::nullopt;
  const std::vector<nn::ShardPart>& parts = weight.spec().parts;
  const auto heads = [&](std::size_t part) {
    return parts.at(part).logical_shape.at(0) / config.kv_channels;
  };
  const std::string attention = name.substr(0, name.size() - kQkvWeight.size());
  return ClippedWeight{
      .q = &parts.at(0),
      .k = &parts.at(1),
      .heads = heads(0),
      .groups = heads(1),
      .max_logits = parallel_layers::max_logits_of(attention + "." + kCoreAttention)};
}

namespace {

// Of one projection to queries, keys and values, with the norms of heads.
std::vector<LeafRule> qkv_rules(const config::ModelConfig& c, const AttentionSpec& spec,
                                const Cut& heads) {
  const std::int64_t q = c.num_attention_heads * c.kv_channels;
  const std::int64_t kv = spec.num_query_groups * c.kv_channels;
  const Cut groups{.axis = "tp",
                   .units = spec.num_query_groups,
                   .option = "--num-query-groups",
                   .fewer = FewerUnits::kCopy};
  std::vector<LeafPart> qkv = {{.suffix = "q", .rows = q, .cut = heads, .module = "q"},
                               {.suffix = "k", .rows = kv, .cut = groups, .module = "k"},
                               {.suffix = "v", .rows = kv, .cut = groups, .module = "v"}};
  if (c.attention_output_gate) {
    qkv.push_back({.suffix = "gate", .rows = q, .cut = heads, .module = "attention_gate"});
  }
  std::vector<LeafRule> rules = {{.name = "linear_qkv",
                                  .parts = std::move(qkv),
                                  .columns = c.hidden_size,
                                  .bias = c.add_bias_linear || c.add_qkv_bias,
                                  .std = hidden_init_std(c),
                                  .xavier = c.init_method_xavier_uniform,
                                  .role = nn::ShardRole::kQkv}};
  if (c.qk_layernorm) {
    rules.push_back(qk_norm_rule(c, "q_layernorm", q, heads));
    rules.push_back(qk_norm_rule(c, "k_layernorm", kv, groups));
  }
  return rules;
}

}  // namespace

std::vector<LeafRule> attention_rules(const config::ModelConfig& c, const AttentionSpec& spec) {
  const Cut heads{.axis = "tp", .units = c.num_attention_heads, .option = "--num-attention-heads"};
  std::vector<LeafRule> rules =
      c.multi_latent_attention ? latent_rules(c) : qkv_rules(c, spec, heads);
  if (sink_of(c) == Sink::kLearned) {
    rules.push_back({.name = std::string(kCoreAttention) + ".softmax_offset",
                     .kind = parallel_layers::LeafKind::kVector,
                     .parts = {{.rows = c.num_attention_heads, .cut = heads}},
                     .std = hidden_init_std(c)});
  }
  rules.push_back(
      {.name = "linear_proj",
       .parts = {{.rows = c.hidden_size, .cut = heads, .cut_columns = true, .module = "o"}},
       .columns = c.num_attention_heads * config::value_channels(c),
       .bias = c.add_bias_linear || c.add_attention_output_bias,
       .std = output_init_std(c),
       .xavier = c.init_method_xavier_uniform});
  return rules;
}

SelfAttention::SelfAttention(const parallel_layers::LeafContext& context,
                             const nn::ParameterPlan& plan, const std::string& name,
                             const config::ModelConfig& config, const AttentionSpec& spec,
                             LayerPositions positions, const LayerSaves& saves,
                             std::int64_t cache_layer)
    : head_dim_(config.kv_channels),
      gated_(config.attention_output_gate),
      norm_all_heads_(config.qk_layernorm &&
                      config::qk_norm_scope(config) == config::QkNormScope::kAllHeads),
      recompute_core_(RecomputePlan::recomputes(config, RecomputedModule::kCoreAttention)),
      saves_(saves),
      positions_(std::move(positions)) {
  if (config.multi_latent_attention) {
    latent_ = &add_child(std::make_unique<LatentHeads>(context, plan, name, config, positions_));
  } else {
    qkv_ = &add_child(
        std::make_unique<ColumnLinear>(context, plan, name + kLinearQkv, adapter_form(config)));
  }
  const std::string core = name + "." + kCoreAttention;
  core_ = &add_child(std::make_unique<CoreAttention>(
      context, plan, core, latent_ != nullptr ? latent_->queries() : *qkv_,
      core_options(config, spec, positions_.relative, core, cache_layer)));
  projection_ = &add_child(
      std::make_unique<RowLinear>(context, plan, name + ".linear_proj", adapter_form(config)));
  if (latent_ != nullptr || (!config.qk_layernorm && !config.qk_l2_norm)) return;
  const auto add_norm = [&](const char* leaf) {
    return &add_child(std::make_unique<Norm>(context, plan, name + leaf, qk_norm_form(config)));
  };
  q_norm_ = add_norm(".q_layernorm");
  k_norm_ = add_norm(".k_layernorm");
}

Tensor SelfAttention::normalised(parallel_layers::Norm& norm, const Tensor& x_tnd,
                                 nn::StepContext& step) const {
  if (!norm_all_heads_) return norm.forward(x_tnd, step);
  const Tensor x_tc = x_tnd.reshape({x_tnd.size(0), x_tnd.size(1) * head_dim_});
  return norm.forward(x_tc, step).reshape(x_tnd.sizes());
}

AttentionHeads SelfAttention::heads(const Tensor& x_th, Tensor& gate_tnd, nn::StepContext& step) {
  std::vector<Tensor> qkv;
  {
    const LayerSaves::Scope saves = saves_.around(step, OffloadedModule::kQkvLinear);
    if (latent_ != nullptr) return latent_->forward(x_th, step);
    qkv = qkv_->forward_heads(x_th, head_dim_, step);
  }
  if (gated_) gate_tnd = std::move(qkv[3]);
  AttentionHeads heads{
      .q_tnd = std::move(qkv[0]), .k_tgd = std::move(qkv[1]), .v_tgd = std::move(qkv[2])};
  if (q_norm_ != nullptr) {
    heads.q_tnd = normalised(*q_norm_, heads.q_tnd, step);
    heads.k_tgd = normalised(*k_norm_, heads.k_tgd, step);
  }
  positions_.rotate(heads.q_tnd, heads.k_tgd, step);
  return heads;
}

Tensor SelfAttention::forward(const Tensor& x_th, nn::StepContext& step) {
  Tensor gate_tnd, mixed_th;
  {
    const AttentionHeads read = heads(x_th, gate_tnd, step);
    mixed_th = mixed(read.q_tnd, read.k_tgd, read.v_tgd, step);
  }
  if (gated_) mixed_th = ops::sigmoid_gate(mixed_th, gate_tnd.flatten(1), step.scope);
  const LayerSaves::Scope saves = saves_.around(step, OffloadedModule::kAttnProj);
  return projection_->forward(mixed_th, step);
}

Tensor SelfAttention::mixed(const Tensor& q_tnd, const Tensor& k_tgd, const Tensor& v_tgd,
                            nn::StepContext& step) {
  const LayerSaves::Scope saves = saves_.around(step, OffloadedModule::kCoreAttn);
  if (!recompute_core_) return core_->forward(q_tnd, k_tgd, v_tgd, step);
  const nn::UnitBody core = [this](const std::vector<Tensor>& qkv, nn::StepContext& inner) {
    const LayerSaves::Scope of_core = saves_.around(inner, OffloadedModule::kCoreAttn);
    return std::vector<Tensor>{core_->forward(qkv[0], qkv[1], qkv[2], inner)};
  };
  return nn::recomputed({q_tnd, k_tgd, v_tgd}, step, core).at(0);
}

}  // namespace pentatron::transformer
