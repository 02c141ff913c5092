// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "pentatron/config/config.h"
#include "pentatron/transformer/layer_spec.h"

namespace pentatron::training::dry_run {

// What backward does at a linear leaf of a layer, in a run that trains all weights or adapters
// alone (--lora-rank).
struct Leaf {
  bool learns = true;         // by itself or by adapters, so that its input is saved
  std::int64_t adapters = 0;  // parts that have one
};
// The two products of half a layer: outputs split over the ranks, then inputs.
struct LeafPair {
  Leaf first;
  Leaf last;
};
[[nodiscard]] LeafPair mixer_leaves(const config::ModelConfig& model,
                                    const transformer::LayerSpec& spec);
[[nodiscard]] LeafPair ffn_leaves(const config::ModelConfig& model,
                                  const transformer::LayerSpec& spec);

}  // namespace pentatron::training::dry_run
