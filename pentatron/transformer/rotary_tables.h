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
  // Of samples of more than `short_length` tokens; null: one set of angles for all. Training goes
  // by
  // --seq-length, so that what a sample gives does not depend on those beside it; else the longest
  // sample of the batch tells.
  RotaryTablePtr rotary_long = {};
  std::int64_t short_length = 0;
  std::int64_t train_length = 0;
  std::vector<std::int64_t> sections = {};  // of kPositionAxes, where the batch has that field
  const parallel_layers::RelativePosition* relative = nullptr;  // biases; null: none

  // Queries or keys [rows, heads, head_dim] of the batch's text; as they are without rotation.
  [[nodiscard]] Tensor rotated(const Tensor& x_tnd, const nn::StepContext& step) const;
};

// Field of a batch, int64 [rows, 3]: each token's position in time, height and width
// (--position-embedding-type mrope). Batches of text alone need none: all three are the position.
inline constexpr std::string_view kPositionAxes = "position_axes";

// The angles of a model's layers for every position; layers share them.
struct RotaryTables {
  // Null unless the model rotates
  RotaryTablePtr usual = {};
  RotaryTablePtr usual_long = {};  // LayerPositions::rotary_long
  RotaryTablePtr local = {};  // of AttentionSpec::local_rotary; null without --rotary-base-local
  std::int64_t short_length = 0;
  std::int64_t train_length = 0;
  std::vector<std::int64_t> sections = {};

  [[nodiscard]] LayerPositions of(const AttentionSpec& spec) const;
};

// Config error for an odd number of rotated channels (--kv-channels, --rotary-percent) and for
// numbers of a form that do not fit them (config/rotary_forms.h).
[[nodiscard]] RotaryTables make_rotary(const config::ModelConfig& config,
                                       const PrecisionPolicy& policy, Device device);

}  // namespace pentatron::transformer
