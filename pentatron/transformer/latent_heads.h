// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "pentatron/config/config.h"
#include "pentatron/parallel_layers/column_linear.h"
#include "pentatron/parallel_layers/leaf_rule.h"
#include "pentatron/parallel_layers/norm.h"
#include "pentatron/parallel_layers/whole_linear.h"
#include "pentatron/transformer/rotary_tables.h"

namespace pentatron::transformer {

// What core attention reads: [rows, local heads, channels].
struct AttentionHeads {
  Tensor q_tnd, k_tgd, v_tgd;
};

// The weights of LatentHeads, named from the attention on. Of a head of linear_q_proj and
// linear_q_up_proj the channels that are rotated stand last, of one of linear_kv_up_proj the value.
[[nodiscard]] std::vector<parallel_layers::LeafRule> latent_rules(
    const config::ModelConfig& config);

// Queries, keys and values of multi-latent attention (config/latent_attention.h). Latents and the
// rotated channels of keys are made of this rank's rows by weights that are whole on every
// tensor-parallel rank, and heads from them by weights that are split. With --qk-layernorm each
// latent goes through a norm.
class LatentHeads final : public nn::Module {
 public:
  LatentHeads(const parallel_layers::LeafContext& context, const nn::ParameterPlan& plan,
              const std::string& name, const config::ModelConfig& config, LayerPositions positions);
  // Of [local rows, hidden].
  [[nodiscard]] AttentionHeads forward(const Tensor& x_th, nn::StepContext& step);

  // The projection to queries, which tells which heads stand on this rank.
  [[nodiscard]] const parallel_layers::ColumnLinear& queries() const { return *q_; }

 private:
  parallel_layers::Norm* add_norm(const parallel_layers::LeafContext& context,
                                  const nn::ParameterPlan& plan, const std::string& name,
                                  const config::ModelConfig& config);

  LayerPositions positions_;
  std::int64_t rank_;
  std::int64_t plain_, rotated_, value_;            // channels of a head
  parallel_layers::WholeLinear* q_down_ = nullptr;  // null: queries have no latent
  parallel_layers::Norm* q_norm_ = nullptr;         // null: none, as kv_norm_
  parallel_layers::ColumnLinear* q_ = nullptr;
  parallel_layers::WholeLinear* kv_down_ = nullptr;
  parallel_layers::Norm* kv_norm_ = nullptr;
  parallel_layers::ColumnLinear* kv_up_ = nullptr;
};

}  // namespace pentatron::transformer
