// SPDX-License-Identifier: Apache-2.0
#include "pentatron/transformer/attention.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/nn/recompute.h"
#include "pentatron/transformer/recompute_plan.h"

namespace pentatron::transformer {

using parallel_layers::ColumnLinear;
using parallel_layers::CoreAttention;
using parallel_layers::RowLinear;

SelfAttention::SelfAttention(const parallel_layers::LeafContext& context,
                             const nn::ParameterPlan& plan, const std::string& name,
                             const config::ModelConfig& config, RotaryTablePtr rotary,
                             std::int64_t cache_layer)
    : head_dim_(config.kv_channels),
      recompute_core_(RecomputePlan::recomputes(config, RecomputedModule::kCoreAttention)),
      rotary_(std::move(rotary)),
      qkv_(add_child(std::make_unique<ColumnLinear>(context, plan, name + ".linear_qkv"))),
      core_(add_child(std::make_unique<CoreAttention>(
          context, qkv_,
          CoreAttention::Options{.head_dim = config.kv_channels,
                                 .dropout = config.attention_dropout,
                                 .site = name + ".core_attention",
                                 .cache_layer = cache_layer}))),
      projection_(add_child(std::make_unique<RowLinear>(context, plan, name + ".linear_proj"))) {}

Tensor SelfAttention::forward(const Tensor& x_th, nn::StepContext& step) {
  std::vector<Tensor> qkv = qkv_.forward_heads(x_th, head_dim_, step);
  Tensor q_tnd = std::move(qkv[0]), k_tgd = std::move(qkv[1]);
  const Tensor v_tgd = std::move(qkv[2]);
  if (rotary_ != nullptr) {
    q_tnd = ops::rotary(q_tnd, *rotary_, step.batch.text());
    k_tgd = ops::rotary(k_tgd, *rotary_, step.batch.text());
  }
  if (!recompute_core_) {
    return projection_.forward(core_.forward(q_tnd, k_tgd, v_tgd, step), step);
  }
  const std::vector<Tensor> mixed = nn::recomputed(
      {q_tnd, k_tgd, v_tgd}, step, [this](const std::vector<Tensor>& qkv, nn::StepContext& inner) {
        return std::vector<Tensor>{core_.forward(qkv[0], qkv[1], qkv[2], inner)};
      });
  return projection_.forward(mixed.at(0), step);
}

RotaryTablePtr make_rotary(const config::ModelConfig& config, const PrecisionPolicy& policy,
                           Device device) {
  if (config.position_embedding_type != "rope") return nullptr;
  const auto rotary_dim = static_cast<std::int64_t>(
      std::llround(static_cast<double>(config.kv_channels) * config.rotary_percent));
  PENTATRON_CHECK(
      rotary_dim > 0 && rotary_dim % 2 == 0 && rotary_dim <= config.kv_channels, kConfig,
      "--kv-channels {} times --rotary-percent {} must be an even number of channels to "
      "rotate",
      config.kv_channels, config.rotary_percent);
  const std::int64_t positions = std::max(config.max_position_embeddings, config.seq_length);
  return std::make_shared<const ops::RotaryTable>(ops::make_rotary_table(
      positions, rotary_dim, static_cast<double>(config.rotary_base), policy.statistics, device));
}

}  // namespace pentatron::transformer
