// SPDX-License-Identifier: Apache-2.0
#include "pentatron/config/adapters.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "pentatron/base/format.h"

namespace pentatron::config {

std::vector<std::string> adaptable_modules(const ModelConfig& model) {
  std::vector<std::string> modules = {"q", "k", "v"};
  if (model.attention_output_gate) modules.emplace_back("attention_gate");
  modules.emplace_back("o");
  if (model.swiglu || model.geglu || model.quick_geglu) modules.emplace_back("gate");
  modules.insert(modules.end(), {"up", "down"});
  return modules;
}

void resolve_adapters(ModelConfig& model, Problems& problems) {
  if (model.lora_rank == 0) return;
  if (model.lora_alpha == 0.0) model.lora_alpha = 2.0 * static_cast<double>(model.lora_rank);
  const std::vector<std::string> all = adaptable_modules(model);
  if (model.lora_target_modules.empty()) model.lora_target_modules = all;
  for (const std::string& module : model.lora_target_modules) {
    if (std::find(all.begin(), all.end(), module) != all.end()) continue;
    problems.add(
        fmt::format("--lora-target-modules {}: the linear layers of this model's blocks "
                    "are {}",
                    quoted_for_message(module), fmt::join(all, ", ")));
  }
  // One list of names, whatever order they were given in.
  std::vector<std::string> ordered;
  for (const std::string& module : all) {
    const auto& asked = model.lora_target_modules;
    if (std::find(asked.begin(), asked.end(), module) != asked.end()) ordered.push_back(module);
  }
  model.lora_target_modules = std::move(ordered);
}

double adapter_scale(const ModelConfig& model) {
  if (model.lora_rank == 0) return 0.0;
  const auto rank = static_cast<double>(model.lora_rank);
  return model.lora_alpha / (model.lora_rslora ? std::sqrt(rank) : rank);
}

ModelConfig without_adapters(ModelConfig model) {
  const ModelConfig born;
  model.lora_rank = born.lora_rank;
  model.lora_alpha = born.lora_alpha;
  model.lora_dropout = born.lora_dropout;
  model.lora_target_modules = born.lora_target_modules;
  model.lora_rslora = born.lora_rslora;
  model.lora_dora = born.lora_dora;
  return model;
}

}  // namespace pentatron::config
