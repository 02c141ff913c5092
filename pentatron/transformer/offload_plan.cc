// SPDX-License-Identifier: Apache-2.0
#include "pentatron/transformer/offload_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace pentatron::transformer {
namespace {

constexpr std::array<std::pair<std::string_view, OffloadedModule>, 5> kModules = {{
    {"attn_norm", OffloadedModule::kAttnNorm},
    {"qkv_linear", OffloadedModule::kQkvLinear},
    {"core_attn", OffloadedModule::kCoreAttn},
    {"attn_proj", OffloadedModule::kAttnProj},
    {"mlp_norm", OffloadedModule::kMlpNorm},
}};

}  // namespace

std::optional<OffloadedModule> offloaded_module(std::string_view name) {
  for (const auto& [known, module] : kModules) {
    if (name == known) return module;
  }
  return std::nullopt;
}

OffloadPlan::OffloadPlan(const config::ModelConfig& config, int num_layers) {
  if (!config.fine_grained_activation_offloading) return;
  for (const auto& [name, module] : kModules) {
    const auto& asked = config.offload_modules;
    if (std::find(asked.begin(), asked.end(), name) != asked.end()) modules_.push_back(module);
  }
  const auto all = static_cast<double>(modules_.size()) * num_layers;
  // At least one; the fraction of a decimal is not quite it.
  constexpr double kSlack = 1e-9;
  num_parts_ = std::llround(std::ceil(config.activation_offload_fraction * all - kSlack));
}

bool OffloadPlan::offloads(int layer, OffloadedModule module) const {
  const auto found = std::find(modules_.begin(), modules_.end(), module);
  if (found == modules_.end()) return false;
  return layer * std::ssize(modules_) + (found - modules_.begin()) < num_parts_;
}

}  // namespace pentatron::transformer
