// SPDX-License-Identifier: Apache-2.0
#include "pentatron/transformer/recompute_plan.h"

#include <algorithm>
#include <string_view>

#include "pentatron/config/choices.h"

namespace pentatron::transformer {

RecomputePlan::RecomputePlan(const config::ModelConfig& config, int num_layers)
    : num_layers_(num_layers) {
  if (config::recompute(config) != config::Recompute::kLayers) return;
  const auto asked = static_cast<int>(
      std::min<std::int64_t>(std::max<std::int64_t>(1, config.recompute_num_layers), num_layers));
  // uniform: all layers, in runs of `asked`; block: the first `asked`, each by itself.
  const bool uniform = config::recompute_method(config) == config::RecomputeMethod::kUniform;
  run_ = uniform ? asked : 1;
  end_ = uniform ? num_layers : asked;
}

int RecomputePlan::run_at(int layer) const {
  return layer < end_ ? std::min(run_, num_layers_ - layer) : 0;
}

namespace {

// As --recompute-modules calls it.
std::string_view name_of(RecomputedModule module) {
  switch (module) {
    case RecomputedModule::kCoreAttention:
      return "core_attn";
    case RecomputedModule::kMlp:
      return "mlp";
    case RecomputedModule::kLayerNorm:
      return "layernorm";
  }
  return {};
}

}  // namespace

bool RecomputePlan::recomputes(const config::ModelConfig& config, RecomputedModule module) {
  if (config::recompute(config) != config::Recompute::kModules) return false;
  return std::find(config.recompute_modules.begin(), config.recompute_modules.end(),
                   name_of(module)) != config.recompute_modules.end();
}

}  // namespace pentatron::transformer
