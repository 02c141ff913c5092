// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/rotary_forms.h"

#include <charconv>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>

#include "pentatron/base/error.h"
#include "pentatron/base/format.h"
#include "pentatron/config/choices.h"

namespace pentatron::config {
namespace {

template <typename T>
std::optional<T> number(const std::string& text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return {};
  return value;
}

std::vector<double> divisors(const std::vector<std::string>& words, std::int64_t pairs,
                             std::string_view option) {
  PENTATRON_CHECK(static_cast<std::int64_t>(words.size()) == pairs, kConfig,
                  "{}: {} numbers for the {} pairs of channels that are rotated (--kv-channels, "
                  "--rotary-percent)",
                  option, words.size(), pairs);
  std::vector<double> values;
  for (const std::string& word : words) {
    const std::optional<double> value = number<double>(word);
    PENTATRON_CHECK(value && *value > 0.0 && *value <= 1e9, kConfig, "{}: {} is no number above 0",
                    option, quoted_for_message(word));
    values.push_back(*value);
  }
  return values;
}

}  // namespace

bool rotates(const ModelConfig& model) {
  return model.multi_latent_attention || rotates(position_kind(model));
}

bool rotates_by_yarn(const ModelConfig& model) {
  return model.multi_latent_attention ? model.rope_type != "rope"
                                      : position_kind(model) == PositionKind::kYarn;
}

RotaryChannels rotary_channels(const ModelConfig& model) {
  if (!model.multi_latent_attention) return {model.kv_channels, "--kv-channels"};
  return {model.qk_pos_emb_head_dim, "--qk-pos-emb-head-dim"};
}

std::int64_t rotated_channels(const ModelConfig& model) {
  const std::int64_t channels = rotary_channels(model).number;
  // As Megatron has it, all channels turn by YaRN's angles there.
  if (model.multi_latent_attention && rotates_by_yarn(model)) return channels;
  return static_cast<std::int64_t>(static_cast<double>(channels) * model.rotary_percent);
}

double longrope_magnitude(std::int64_t longest, std::int64_t original) {
  const double scale = static_cast<double>(longest) / static_cast<double>(original);
  if (scale <= 1.0) return 1.0;
  return std::sqrt(1.0 + std::log(scale) / std::log(static_cast<double>(original)));
}

LongRope longrope_of(const ModelConfig& model) {
  const std::int64_t pairs = rotated_channels(model) / 2;
  LongRope form{
      .short_divisors = divisors(model.longrope_short_factor, pairs, "--longrope-short-factor"),
      .long_divisors = divisors(model.longrope_long_factor, pairs, "--longrope-long-factor"),
      .original = model.longrope_original_max_position_embeddings};
  PENTATRON_CHECK(form.original > 1, kConfig,
                  "--position-embedding-type longrope needs "
                  "--longrope-original-max-position-embeddings above 1, not {}",
                  form.original);
  form.magnitude = longrope_magnitude(model.max_position_embeddings, form.original);
  return form;
}

std::vector<std::int64_t> mrope_sections(const ModelConfig& model) {
  const std::int64_t pairs = rotated_channels(model) / 2;
  std::vector<std::int64_t> sections;
  for (const std::string& word : model.mrope_section) {
    const std::optional<std::int64_t> value = number<std::int64_t>(word);
    PENTATRON_CHECK(value && *value >= 0 && *value <= pairs, kConfig,
                    "--mrope-section: {} is no number from 0 to {}", quoted_for_message(word),
                    pairs);
    sections.push_back(*value);
  }
  const std::int64_t sum = std::accumulate(sections.begin(), sections.end(), std::int64_t{0});
  PENTATRON_CHECK(
      sections.size() == 3 && sum == pairs, kConfig,
      "--mrope-section: expected three numbers (time, height, width) that add up to the "
      "{} pairs of channels that are rotated, not {} numbers that add up to {}",
      pairs, sections.size(), sum);
  return sections;
}

}  // namespace pentatron::config
