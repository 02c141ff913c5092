// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "pentatron/config/config.h"
#include "pentatron/config/problems.h"

// Options of low-rank adapters (LoRA, DoRA).
namespace pentatron::config {

// The linear layers of a block by their names in --lora-target-modules, in the order in which a
// block has them.
[[nodiscard]] std::vector<std::string> adaptable_modules(const ModelConfig& model);

// Fills in what follows from --lora-rank: alpha and modules. Modules that the model has not, and
// options without a rank, are problems.
void resolve_adapters(ModelConfig& model, Problems& problems);

// What B A is multiplied by: alpha / rank, or alpha / sqrt(rank) with --lora-rslora (D.
// Kalajdzievski, arXiv 2312.03732). 0 without adapters.
[[nodiscard]] double adapter_scale(const ModelConfig& model);

// The model beneath its adapters.
[[nodiscard]] ModelConfig without_adapters(ModelConfig model);

}  // namespace pentatron::config
