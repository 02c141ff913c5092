// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "pentatron/config/config.h"

// Forms of rotation whose numbers are lists.
namespace pentatron::config {

// Whether queries and keys are rotated, in layers that --no-rope-freq leaves.
[[nodiscard]] bool rotates(const ModelConfig& model);
// By YaRN's angles.
[[nodiscard]] bool rotates_by_yarn(const ModelConfig& model);
// Channels of a head of which --rotary-percent is rotated, and their option.
struct RotaryChannels {
  std::int64_t number = 0;
  const char* option = "";
};
[[nodiscard]] RotaryChannels rotary_channels(const ModelConfig& model);
// Those that are.
[[nodiscard]] std::int64_t rotated_channels(const ModelConfig& model);

// --position-embedding-type longrope (Y. Ding et al., "LongRoPE", 2024; as transformers has it for
// Phi-3): the frequency of each pair of channels is divided by its factor, one list for texts of
// up to `original` tokens and one for longer ones, and cos and sin are multiplied by `magnitude` =
// sqrt(1 + ln s / ln original) with s = --max-position-embeddings / original, 1 where s is at most
// 1.
struct LongRope {
  std::vector<double> short_divisors, long_divisors;
  std::int64_t original = 0;  // tokens
  double magnitude = 1.0;
};
[[nodiscard]] double longrope_magnitude(std::int64_t longest, std::int64_t original);
// Lists that have no number above 0 for each pair, or no original length above 1: kind config,
// naming option and value.
[[nodiscard]] LongRope longrope_of(const ModelConfig& model);

// --mrope-section of --position-embedding-type mrope: pairs of channels that are rotated by the
// positions in time, height and width. Not three numbers, or another sum than all pairs: kind
// config.
[[nodiscard]] std::vector<std::int64_t> mrope_sections(const ModelConfig& model);

}  // namespace pentatron::config
