// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "pentatron/config/config.h"
#include "pentatron/ops/rotary.h"
#include "pentatron/tensor/precision.h"
#include "pentatron/transformer/layer_spec.h"

namespace pentatron::parallel_layers {
class RelativePosition;
}

namespace pentatron::transformer {

using RotaryTablePtr = std::shared_ptr<const ops::RotaryTable>;

// The angles of a model's layers for every position; layers share them.
struct RotaryTables {
  RotaryTablePtr usual = {};  // null unless --position-embedding-type is rope or yarn
  RotaryTablePtr local = {};  // of AttentionSpec::local_rotary; null without --rotary-base-local

  // Null: the layer does not rotate.
  [[nodiscard]] RotaryTablePtr of(const AttentionSpec& spec) const;
};

// What tells a layer's attention of positions.
struct LayerPositions {
  RotaryTablePtr rotary = {};                                   // the angles; null: no rotation
  const parallel_layers::RelativePosition* relative = nullptr;  // biases; null: none
};

// Config error for an odd number of rotated channels (--kv-channels, --rotary-percent).
[[nodiscard]] RotaryTables make_rotary(const config::ModelConfig& config,
                                       const PrecisionPolicy& policy, Device device);

}  // namespace pentatron::transformer
