// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/latent_attention.h"

#include <fmt/format.h>

#include <cmath>
#include <string>

#include "pentatron/config/choices.h"

namespace pentatron::config {
namespace {

constexpr const char* kOption = "--multi-latent-attention";

void check_positions(const ModelConfig& model, Problems& problems) {
  const PositionKind kind = position_kind(model);
  if (kind != PositionKind::kNone && kind != PositionKind::kLearnedAbsolute &&
      kind != PositionKind::kRope) {
    problems.add(fmt::format(
        "{} rotates by --rope-type and not by --position-embedding-type {}: take rope or none, or "
        "learned_absolute for a table beside the rotation",
        kOption, model.position_embedding_type));
  }
  if (model.rotary_interleaved) {
    problems.add(fmt::format(
        "{} rotates neighbouring channels in any case: drop --rotary-interleaved", kOption));
  }
}

void check_companions(const ModelConfig& model, Problems& problems) {
  if (model.group_query_attention) {
    problems.add(
        fmt::format("{} and --group-query-attention with --num-query-groups {} exclude each other: "
                    "each of --num-attention-heads {} has keys of its own; drop one",
                    kOption, model.num_query_groups, model.num_attention_heads));
  }
  const bool heterogeneous = !model.heterogeneous_layers_config_path.empty() ||
                             !model.heterogeneous_layers_config_encoded_json.empty();
  const auto refuse = [&](bool given, std::string_view what, std::string_view why) {
    if (given)
      problems.add(fmt::format("{} does not go with {}: {}; drop one", kOption, what, why));
  };
  refuse(model.qk_l2_norm, "--qk-l2-norm", "--qk-layernorm is of its latents");
  refuse(model.qk_norm_scope == "all-heads", "--qk-norm-scope all-heads",
         "--qk-layernorm is of its latents");
  refuse(model.attention_output_gate, "--attention-output-gate", "it has no gate");
  refuse(model.add_qkv_bias, "--add-qkv-bias",
         "its projections to queries, keys and values have none");
  refuse(model.qk_clip, "--qk-clip", "all heads share weights of their keys");
  refuse(model.use_mup, "--use-mup", "no rates are known for its latents");
  refuse(heterogeneous, "--heterogeneous-layers-config-path", "all of its layers are alike");
  refuse(model.lora_rank > 0, fmt::format("--lora-rank {}", model.lora_rank),
         "adapters are of linear_qkv, which it has not");
  refuse(!model.fp8.empty(), fmt::format("--fp8-format {}", model.fp8),
         "its products are not made in fp8 yet");
}

}  // namespace

double latent_softmax_scale(const ModelConfig& model) {
  const double grown =
      model.rotary_scaling_factor > 1.0
          ? 0.1 * model.mscale_all_dim * std::log(model.rotary_scaling_factor) + 1.0
          : 1.0;
  return grown * grown / std::sqrt(static_cast<double>(model.kv_channels));
}

double latent_projection_weights(const ModelConfig& model) {
  const auto h = static_cast<double>(model.hidden_size);
  const auto heads = static_cast<double>(model.num_attention_heads);
  const auto rotated = static_cast<double>(model.qk_pos_emb_head_dim);
  const auto values = static_cast<double>(model.v_head_dim);
  const double plain = static_cast<double>(model.qk_head_dim);
  const auto q_rank = static_cast<double>(model.q_lora_rank);
  const double q_heads = heads * (plain + rotated);
  const double queries = model.q_lora_rank == 0 ? h * q_heads : q_rank * (h + q_heads + 1);
  const double keys =
      static_cast<double>(model.kv_lora_rank) * (h + heads * (plain + values) + 1) + h * rotated;
  return queries + keys + heads * values * h;
}

void resolve_latent_attention(ModelConfig& model, Problems& problems) {
  if (!model.multi_latent_attention) {
    if (model.rope_type == "yarn") {
      problems.add(fmt::format(
          "--rope-type yarn belongs to {}: give that, or --position-embedding-type yarn instead of "
          "{}",
          kOption, model.position_embedding_type));
    }
    return;
  }
  model.kv_channels = model.qk_head_dim + model.qk_pos_emb_head_dim;
  check_positions(model, problems);
  check_companions(model, problems);
  const double scale = latent_softmax_scale(model);
  if (!(scale > 0.0) || !std::isfinite(scale)) {
    problems.add(fmt::format(
        "--mscale-all-dim {} with --rotary-scaling-factor {} makes the scale of attention {}: "
        "change one of them",
        model.mscale_all_dim, model.rotary_scaling_factor, scale));
  }
}

}  // namespace pentatron::config
