// SPDX-License-Identifier: Apache-2.0
#include "pentatron/transformer/rotary_tables.h"

#include <algorithm>

#include "pentatron/base/error.h"
#include "pentatron/config/choices.h"
#include "pentatron/config/rotary_forms.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/text_lengths.h"

namespace pentatron::transformer {

using config::PositionKind;

namespace {

// Megatron's, where no option names the length that the model was trained with first.
constexpr std::int64_t kYarnOriginalPositions = 4096;

ops::YarnForm yarn_form(const config::ModelConfig& c) {
  const std::int64_t original = c.yarn_original_max_position_embeddings;
  return {
      .factor = c.rotary_scaling_factor,
      .original_positions = static_cast<double>(original > 0 ? original : kYarnOriginalPositions),
      .beta_fast = c.yarn_beta_fast,
      .beta_slow = c.yarn_beta_slow,
      .mscale = c.mscale,
      .mscale_all_dim = c.mscale_all_dim,
      .round_range = c.yarn_correction_range_round_to_int};
}

ops::RotaryForm usual_form(const config::ModelConfig& c) {
  // Megatron moves neighbours of multi-latent attention into halves first, of queries and keys
  // alike: the same products in another order of channels.
  ops::RotaryForm form{.interleaved = c.rotary_interleaved || c.multi_latent_attention};
  if (config::rotates_by_yarn(c)) {
    form.yarn = yarn_form(c);
    return form;
  }
  if (c.multi_latent_attention) return form;
  form.interpolation =
      static_cast<double>(std::max<std::int64_t>(1, c.rotary_seq_len_interpolation_factor));
  form.llama3_factor = c.use_rope_scaling ? c.rope_scaling_factor : 0.0;
  return form;
}

}  // namespace

void LayerPositions::rotate(Tensor& q_tnd, Tensor& k_tgd, const nn::StepContext& step) const {
  if (rotary == nullptr) return;
  const SequenceLayout& text = step.batch.text();
  const auto axes = step.batch.fields.find(kPositionAxes);
  const bool by_axes = !sections.empty() && axes != step.batch.fields.end();
  const Tensor lengths_t = short_length > 0 ? text_lengths(text) : Tensor();
  for (Tensor* x : {&q_tnd, &k_tgd}) {
    if (by_axes) {
      *x = ops::rotary_by_axes(*x, *rotary, axes->second, sections);
    } else if (short_length > 0) {
      *x = ops::rotary_by_length(*x, *rotary, lengths_t, short_length, text);
    } else {
      *x = ops::rotary(*x, *rotary, text);
    }
  }
}

LayerPositions RotaryTables::of(const AttentionSpec& spec) const {
  if (!spec.rotary) return {};
  if (spec.local_rotary) return {.rotary = local};
  return {.rotary = usual, .short_length = short_length, .sections = sections};
}

RotaryTables make_rotary(const config::ModelConfig& config, const PrecisionPolicy& policy,
                         Device device) {
  if (!config::rotates(config)) return {};
  // Rounded down, as Megatron and the check of the options do.
  const std::int64_t rotary_dim = config::rotated_channels(config);
  const config::RotaryChannels of_head = config::rotary_channels(config);
  PENTATRON_CHECK(rotary_dim > 0 && rotary_dim % 2 == 0 && rotary_dim <= of_head.number, kConfig,
                  "{} {} times --rotary-percent {} must be an even number of channels to rotate",
                  of_head.option, of_head.number, config.rotary_percent);
  const std::int64_t positions = std::max(config.max_position_embeddings, config.seq_length);
  const auto angles = [&](double base, const ops::RotaryForm& form) {
    return ops::make_rotary_table(positions, rotary_dim, base, policy.statistics, device, form);
  };
  const auto table = [&](double base, const ops::RotaryForm& form) {
    return std::make_shared<const ops::RotaryTable>(angles(base, form));
  };
  RotaryTables tables;
  const PositionKind kind = config::position_kind(config);
  if (kind == PositionKind::kLongRope) {
    const config::LongRope form = config::longrope_of(config);
    const auto with = [&](const std::vector<double>& divisors) {
      return angles(config.rotary_base, {.interleaved = config.rotary_interleaved,
                                         .divisors = divisors,
                                         .magnitude = form.magnitude});
    };
    const ops::RotaryTable of_short = with(form.short_divisors);
    const ops::RotaryTable of_long = with(form.long_divisors);
    tables.usual = std::make_shared<const ops::RotaryTable>(
        ops::RotaryTable{.cos = tensor::cat({of_short.cos, of_long.cos}, 0),
                         .sin = tensor::cat({of_short.sin, of_long.sin}, 0),
                         .interleaved = config.rotary_interleaved});
    tables.short_length = form.original;
  } else {
    tables.usual = table(config.rotary_base, usual_form(config));
  }
  if (kind == PositionKind::kMrope) tables.sections = config::mrope_sections(config);
  if (config.rotary_base_local > 0) {
    tables.local = table(config.rotary_base_local, {.interleaved = config.rotary_interleaved});
  }
  return tables;
}

}  // namespace pentatron::transformer
