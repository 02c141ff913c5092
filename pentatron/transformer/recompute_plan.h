// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "pentatron/config/config.h"

namespace pentatron::transformer {

// Parts of a layer whose activations backward makes again (--recompute-granularity selective).
// A layer norm is none by itself: its output is made again for whoever saved it.
enum class RecomputedModule { kCoreAttention, kMlp, kLayerNorm };

// What of a stage's layers is not kept for backward (nn/recompute.h), from --recompute-granularity
// and its companions: runs of whole layers, parts of every layer, or nothing.
class RecomputePlan final {
 public:
  // `num_layers`: of the stage.
  RecomputePlan(const config::ModelConfig& config, int num_layers);

  // Layers that are recomputed as one run from this one on; 0: this layer keeps its activations.
  // `layer`: its place in the stage, the first of a run.
  [[nodiscard]] int run_at(int layer) const;

  [[nodiscard]] static bool recomputes(const config::ModelConfig& config, RecomputedModule module);

 private:
  int num_layers_;
  int run_ = 0;  // layers a run
  int end_ = 0;  // layers from here on are kept
};

}  // namespace pentatron::transformer
