// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "pentatron/config/config.h"

namespace pentatron::transformer {

// Parts of a layer whose saved activations wait for backward in host memory (--offload-modules).
enum class OffloadedModule { kAttnNorm, kQkvLinear, kCoreAttn, kAttnProj, kMlpNorm };

// As the option calls it; a name of no such part: nothing.
[[nodiscard]] std::optional<OffloadedModule> offloaded_module(std::string_view name);

// Which parts of a stage's layers those are, from --fine-grained-activation-offloading and its
// companions. A share of them (--activation-offload-fraction) is of the stage's first parts in the
// order of forward: their activations wait longest.
class OffloadPlan final {
 public:
  // `num_layers`: of the stage.
  OffloadPlan(const config::ModelConfig& config, int num_layers);

  // Whether any part's do.
  [[nodiscard]] bool offloads() const { return num_parts_ > 0; }
  // `layer`: its place in the stage.
  [[nodiscard]] bool offloads(int layer, OffloadedModule module) const;

 private:
  std::vector<OffloadedModule> modules_;  // in the order of forward
  std::int64_t num_parts_ = 0;            // of the stage
};

}  // namespace pentatron::transformer
