// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace pentatron::datasets {

// The order in which a blend draws from its members: sample i is sample `samples[i]` of member
// `members[i]`.
struct BlendIndex {
  std::vector<std::int16_t> members;
  std::vector<std::int64_t> samples;
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(members.size()); }
};

// Takes the order as it is drawn, piece after piece: so many members, and their samples.
using BlendBlock = std::function<void(std::span<const std::int16_t> members,
                                      std::span<const std::int64_t> samples)>;

// At place i the member with the largest weight * max(i, 1) - (samples drawn of it so far), the
// first one of equals, in fp64, as Megatron's build_blending_indices: equal to it for any weights.
// Takes far fewer than size * members steps, since most members are known to lag behind. Weights
// sum to 1.
void draw_blend_index(std::span<const double> weights, std::int64_t size, const BlendBlock& put);
[[nodiscard]] BlendIndex build_blend_index(std::span<const double> weights, std::int64_t size);

// All samples of all members, each in proportion to its size until it is used up, as Megatron's
// build_exhaustive_blending_indices.
void draw_exhaustive_blend_index(std::span<const std::int64_t> sizes, const BlendBlock& put);
[[nodiscard]] BlendIndex build_exhaustive_blend_index(std::span<const std::int64_t> sizes);

}  // namespace pentatron::datasets
