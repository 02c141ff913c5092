// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/validate_layer.h"

#include <fmt/ranges.h>

#include <utility>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/config/choices.h"
#include "pentatron/config/rotary_forms.h"

namespace pentatron::config {
namespace {

void check_one_activation(const ModelConfig& model, Problems& problems) {
  std::vector<std::string_view> given;
  for (const auto& [option, on] : {std::pair{"--swiglu", model.swiglu},
                                   {"--geglu", model.geglu},
                                   {"--quick-geglu", model.quick_geglu},
                                   {"--squared-relu", model.squared_relu},
                                   {"--openai-gelu", model.openai_gelu}}) {
    if (on) given.emplace_back(option);
  }
  if (given.size() < 2) return;
  problems.add(fmt::format("{} exclude each other: give one activation", fmt::join(given, ", ")));
}

void check_layer_form(const ModelConfig& model, Problems& problems) {
  const bool parallel = model.parallel_attention != "none";
  if (parallel && model.norm_placement != "pre") {
    problems.add(fmt::format("--parallel-attention {} needs --norm-placement pre, not {}",
                             model.parallel_attention, model.norm_placement));
  }
  if (!model.apply_residual_connection_post_layernorm) return;
  if (parallel) {
    problems.add(fmt::format(
        "--apply-residual-connection-post-layernorm and --parallel-attention {} exclude each "
        "other: drop one",
        model.parallel_attention));
  }
  if (model.norm_placement == "post") {
    problems.add(
        "--apply-residual-connection-post-layernorm adds to normalised inputs, and "
        "--norm-placement post has none: drop one");
  }
}

void check_query_key_norm(const ModelConfig& model, Problems& problems) {
  if (model.qk_layernorm && model.qk_l2_norm) {
    problems.add("--qk-layernorm and --qk-l2-norm exclude each other: give one");
  }
  if (model.qk_layernorm && model.qk_norm_scope == "all-heads" &&
      model.normalization != "RMSNorm") {
    problems.add(fmt::format("--qk-norm-scope all-heads needs --normalization RMSNorm, not {}",
                             model.normalization));
  }
}

void check_qk_clip(const ModelConfig& model, Problems& problems) {
  if (!model.qk_clip) return;
  for (const auto& [option, on] :
       {std::pair{"--qk-layernorm", model.qk_layernorm}, {"--qk-l2-norm", model.qk_l2_norm}}) {
    if (!on) continue;
    problems.add(
        fmt::format("--qk-clip scales weights of queries and keys, which {} brings back to one "
                    "length, so that no logit would change: drop one",
                    option));
  }
  if (model.lora_rank > 0) {
    problems.add(
        fmt::format("--qk-clip scales weights that --lora-rank {} does not train: drop one of them",
                    model.lora_rank));
  }
  const double cap = model.attn_logit_softcapping.value_or(0.0);
  if (cap > 0.0 && model.qk_clip_threshold >= cap) {
    problems.add(
        fmt::format("no logit is above --qk-clip-threshold {}, since --attn-logit-softcapping is "
                    "{}: a threshold below it, or no --qk-clip",
                    model.qk_clip_threshold, cap));
  }
}

void check_rotation(const ModelConfig& model, Problems& problems) {
  const PositionKind kind = position_kind(model);
  if (!rotates(model)) return;
  const bool mrope = kind == PositionKind::kMrope;
  const RotaryChannels of_head = rotary_channels(model);
  const std::int64_t rotated = rotated_channels(model);
  if (rotated < 2 || rotated % 2 != 0) {
    problems.add(
        fmt::format("{} {} x --rotary-percent {} rotates {} channels of a head: the number must be "
                    "even and at least 2",
                    of_head.option, of_head.number, model.rotary_percent, rotated));
  }
  try {
    if (kind == PositionKind::kLongRope) static_cast<void>(longrope_of(model));
    if (mrope) static_cast<void>(mrope_sections(model));
  } catch (const Error& error) {
    problems.add(error.what());
  }
  if (mrope && model.rotary_interleaved) {
    problems.add(
        "--rotary-interleaved and --position-embedding-type mrope exclude each other: the sections "
        "of --mrope-section are of halves");
  }
  if (!rotates_by_yarn(model)) return;
  if (model.yarn_beta_fast <= model.yarn_beta_slow) {
    problems.add(fmt::format("--yarn-beta-fast {} must be above --yarn-beta-slow {}",
                             model.yarn_beta_fast, model.yarn_beta_slow));
  }
  if (model.rotary_base < 2) {
    problems.add(
        fmt::format("--rotary-base {} gives all channels one frequency: {} yarn needs at least 2",
                    model.rotary_base,
                    model.multi_latent_attention ? "--rope-type" : "--position-embedding-type"));
  }
}

void check_relative_positions(const ModelConfig& model, Problems& problems) {
  if (position_kind(model) != PositionKind::kRelative) return;
  constexpr std::int64_t kMaxDistance = 1'000'000;
  const std::int64_t buckets = model.relative_attention_num_buckets;
  const std::int64_t distance = model.relative_attention_max_distance;
  if (buckets < 2) {
    problems.add(fmt::format("--relative-attention-num-buckets {} must be at least 2", buckets));
  } else if (distance <= buckets / 2 || distance > kMaxDistance) {
    problems.add(
        fmt::format("--relative-attention-max-distance {} must be above half of "
                    "--relative-attention-num-buckets {}, and at most {}",
                    distance, buckets, kMaxDistance));
  }
  if (!model.heterogeneous_layers_config_encoded_json.empty() ||
      !model.heterogeneous_layers_config_path.empty()) {
    problems.add(
        "--position-embedding-type relative is for layers that all have attention, and "
        "--heterogeneous-layers-config-path names others: drop one");
  }
}

}  // namespace

void check_layer(const ModelConfig& model, Problems& problems) {
  check_one_activation(model, problems);
  check_layer_form(model, problems);
  check_query_key_norm(model, problems);
  check_qk_clip(model, problems);
  check_rotation(model, problems);
  check_relative_positions(model, problems);
}

}  // namespace pentatron::config
