// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pentatron/config/config.h"
#include "pentatron/parallel_layers/core_attention.h"
#include "pentatron/parallel_layers/leaf_rule.h"
#include "pentatron/parallel_layers/norm.h"
#include "pentatron/parallel_layers/row_linear.h"
#include "pentatron/transformer/latent_heads.h"
#include "pentatron/transformer/layer_saves.h"
#include "pentatron/transformer/layer_spec.h"
#include "pentatron/transformer/rotary_tables.h"

namespace pentatron::transformer {

// The weights of a SelfAttention.
[[nodiscard]] std::vector<parallel_layers::LeafRule> attention_rules(
    const config::ModelConfig& config, const AttentionSpec& spec);

// The part of a SelfAttention that --qk-clip scales.
struct ClippedWeight {
  const nn::ShardPart* q = nullptr;  // [heads * head_dim, hidden]
  const nn::ShardPart* k = nullptr;  // [groups * head_dim, hidden]
  std::int64_t heads = 0;            // of the whole model
  std::int64_t groups = 0;
  std::string max_logits;  // in the step's ledger: one of each head
};
// None: `weight` is no projection to queries and keys.
[[nodiscard]] std::optional<ClippedWeight> clipped_weight(const nn::Parameter& weight,
                                                          const config::ModelConfig& config);

// Multi-head (or grouped-query) causal self-attention with its projections: [local rows, hidden] ->
// the same shape, in the compute dtype. With --attention-output-gate the output of each head's
// channel is multiplied by the sigmoid of one more projection (Z. Qiu et al., "Gated attention for
// large language models", 2025). With --multi-latent-attention queries, keys and values come from
// LatentHeads.
class SelfAttention final : public nn::Module {
 public:
  // `saves`: of the layer, which outlives this. `cache_layer`: its place in the step's cache.
  SelfAttention(const parallel_layers::LeafContext& context, const nn::ParameterPlan& plan,
                const std::string& name, const config::ModelConfig& config,
                const AttentionSpec& spec, LayerPositions positions, const LayerSaves& saves,
                std::int64_t cache_layer);
  [[nodiscard]] Tensor forward(const Tensor& x_th, nn::StepContext& step);

 private:
  // What the core reads; `gate_tnd`: undefined without one.
  [[nodiscard]] AttentionHeads heads(const Tensor& x_th, Tensor& gate_tnd, nn::StepContext& step);
  // The core, kept or recomputed: [rows, local heads * head_dim].
  [[nodiscard]] Tensor mixed(const Tensor& q_tnd, const Tensor& k_tgd, const Tensor& v_tgd,
                             nn::StepContext& step);

  // Of each head by itself, or of all heads together.
  [[nodiscard]] Tensor normalised(parallel_layers::Norm& norm, const Tensor& x_tnd,
                                  nn::StepContext& step) const;

  std::int64_t head_dim_;
  bool gated_;  // by one more part of qkv_
  bool norm_all_heads_;
  bool recompute_core_;
  const LayerSaves& saves_;
  LayerPositions positions_;
  LatentHeads* latent_ = nullptr;                 // null: heads come from qkv_
  parallel_layers::ColumnLinear* qkv_ = nullptr;  // null: from latent_
  parallel_layers::Norm* q_norm_ = nullptr;       // null: queries and keys go on as they are
  parallel_layers::Norm* k_norm_ = nullptr;
  parallel_layers::CoreAttention* core_;
  parallel_layers::RowLinear* projection_;
};

}  // namespace pentatron::transformer
