// SPDX-License-Identifier: Apache-2.0
#include "pentatron/transformer/latent_heads.h"

#include <memory>
#include <utility>

#include "pentatron/tensor/ops.h"
#include "pentatron/transformer/layer_spec.h"

namespace pentatron::transformer {

using parallel_layers::ColumnLinear;
using parallel_layers::Cut;
using parallel_layers::LeafContext;
using parallel_layers::LeafRule;
using parallel_layers::Norm;
using parallel_layers::WholeLinear;

namespace {

constexpr const char* kQProj = "linear_q_proj";
constexpr const char* kQDown = "linear_q_down_proj";
constexpr const char* kQUp = "linear_q_up_proj";
constexpr const char* kQNorm = "q_layernorm";
constexpr const char* kKvDown = "linear_kv_down_proj";
constexpr const char* kKvUp = "linear_kv_up_proj";
constexpr const char* kKvNorm = "kv_layernorm";

// The parts of each head, side by side in its channels.
std::vector<Tensor> split_heads(const Tensor& x_tnd, std::int64_t first, std::int64_t second) {
  return x_tnd.split_with_sizes({first, second}, 2);
}

}  // namespace

std::vector<LeafRule> latent_rules(const config::ModelConfig& c) {
  const std::int64_t heads = c.num_attention_heads, h = c.hidden_size;
  const std::int64_t q_channels = c.qk_head_dim + c.qk_pos_emb_head_dim;
  const Cut of_heads{.axis = "tp", .units = heads, .option = "--num-attention-heads"};
  const auto matrix = [&](const char* name, std::int64_t rows, std::int64_t columns, Cut cut) {
    return LeafRule{.name = name,
                    .parts = {{.rows = rows, .cut = std::move(cut)}},
                    .columns = columns,
                    .std = hidden_init_std(c),
                    .xavier = c.init_method_xavier_uniform};
  };
  std::vector<LeafRule> rules;
  const auto add_norm = [&](const char* name, std::int64_t width) {
    if (c.qk_layernorm) rules.push_back(parallel_layers::norm_rule(name, width, norm_form(c)));
  };
  if (c.q_lora_rank == 0) {
    rules.push_back(matrix(kQProj, heads * q_channels, h, of_heads));
  } else {
    rules.push_back(matrix(kQDown, c.q_lora_rank, h, {}));
    add_norm(kQNorm, c.q_lora_rank);
    rules.push_back(matrix(kQUp, heads * q_channels, c.q_lora_rank, of_heads));
  }
  rules.push_back(matrix(kKvDown, c.kv_lora_rank + c.qk_pos_emb_head_dim, h, {}));
  add_norm(kKvNorm, c.kv_lora_rank);
  rules.push_back(matrix(kKvUp, heads * (c.qk_head_dim + c.v_head_dim), c.kv_lora_rank, of_heads));
  return rules;
}

Norm* LatentHeads::add_norm(const LeafContext& context, const nn::ParameterPlan& plan,
                            const std::string& name, const config::ModelConfig& config) {
  if (!config.qk_layernorm) return nullptr;
  return &add_child(std::make_unique<Norm>(context, plan, name, norm_form(config)));
}

LatentHeads::LatentHeads(const LeafContext& context, const nn::ParameterPlan& plan,
                         const std::string& name, const config::ModelConfig& config,
                         LayerPositions positions)
    : positions_(std::move(positions)),
      rank_(config.kv_lora_rank),
      plain_(config.qk_head_dim),
      rotated_(config.qk_pos_emb_head_dim),
      value_(config.v_head_dim) {
  // Children stand in the order of the rules.
  const auto column = [&](const char* leaf) {
    return &add_child(std::make_unique<ColumnLinear>(context, plan, name + "." + leaf));
  };
  const auto whole = [&](const char* leaf) {
    return &add_child(std::make_unique<WholeLinear>(context, plan, name + "." + leaf));
  };
  if (config.q_lora_rank == 0) {
    q_ = column(kQProj);
  } else {
    q_down_ = whole(kQDown);
    q_norm_ = add_norm(context, plan, name + "." + kQNorm, config);
    q_ = column(kQUp);
  }
  kv_down_ = whole(kKvDown);
  kv_norm_ = add_norm(context, plan, name + "." + kKvNorm, config);
  kv_up_ = column(kKvUp);
}

AttentionHeads LatentHeads::forward(const Tensor& x_th, nn::StepContext& step) {
  Tensor q_in = x_th;
  if (q_down_ != nullptr) q_in = q_down_->forward(x_th, step);
  if (q_norm_ != nullptr) q_in = q_norm_->forward(q_in, step);
  const std::vector<Tensor> down =
      kv_down_->forward(x_th, step).split_with_sizes({rank_, rotated_}, 1);
  Tensor latent = down[0].contiguous();
  if (kv_norm_ != nullptr) latent = kv_norm_->forward(latent, step);

  const Tensor q_tnd = q_->forward_heads(q_in, plain_ + rotated_, step).at(0);
  const Tensor kv_tnd = kv_up_->forward_heads(latent, plain_ + value_, step).at(0);
  const std::vector<Tensor> q = split_heads(q_tnd, plain_, rotated_);
  const std::vector<Tensor> kv = split_heads(kv_tnd, plain_, value_);

  // One head of rotated channels serves all of this rank's and of the other ranks'.
  Tensor q_rotated = q[1];
  Tensor k_rotated = kv_down_->for_split(down[1]).unsqueeze(1);
  positions_.rotate(q_rotated, k_rotated, step);
  const Tensor k_of_heads = k_rotated.expand({-1, kv_tnd.size(1), -1});
  return {.q_tnd = tensor::cat({q[0], q_rotated}, 2),
          .k_tgd = tensor::cat({kv[0], k_of_heads}, 2),
          .v_tgd = kv[1]};
}

}  // namespace pentatron::transformer
