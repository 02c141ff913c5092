// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "pentatron/config/config.h"
#include "pentatron/nn/step_context.h"
#include "pentatron/ops/rotary.h"
#include "pentatron/tensor/precision.h"
#include "pentatron/transformer/layer_spec.h"

namespace pentatron::parallel_layers {
class RelativePosition;
}

namespace pentatron::transformer {

using RotaryTablePtr = std::shared_ptr<const ops::RotaryTable>;

// What tells a layer's attention of positions.
struct LayerPositions {
  RotaryTablePtr rotary = {};  // the angles; null: no rotation
  // Above 0: the table has two sets of angles, and each text takes the second one where it has more
  // tokens than this, whatever stands beside it (LongRoPE).
  std::int64_t short_length = 0;
  std::vector<std::int64_t> sections = {};  // of kPositionAxes, where the batch has that field
  const parallel_layers::RelativePosition* relative = nullptr;  // biases; null: none

  // Turns queries and keys [rows, heads, head_dim] of the batch's text; without rotation they stay.
  void rotate(Tensor& q_tnd, Tensor& k_tgd, const nn::StepContext& step) const;
};

// Field of a batch, int64 [rows, 3]: each token's position in time, height and width
// (--position-embedding-type mrope). Batches of text alone need none: all three are the position.
inline constexpr std::string_view kPositionAxes = "position_axes";

// The angles of a model's layers for every position; layers share them.
struct RotaryTables {
  // Null unless the model rotates
  RotaryTablePtr usual = {};
  RotaryTablePtr local = {};  // of AttentionSpec::local_rotary; null without --rotary-base-local
  std::int64_t short_length = 0;  // LayerPositions::short_length, of `usual`
  std::vector<std::int64_t> sections = {};

  [[nodiscard]] LayerPositions of(const AttentionSpec& spec) const;
};

// Config error for an odd number of rotated channels (--kv-channels, --rotary-percent) and for
// numbers of a form that do not fit them (config/rotary_forms.h).
[[nodiscard]] RotaryTables make_rotary(const config::ModelConfig& config,
                                       const PrecisionPolicy& policy, Device device);

}  // namespace pentatron::transformer
