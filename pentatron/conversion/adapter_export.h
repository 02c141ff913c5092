// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include "pentatron/checkpoint/reader.h"
#include "pentatron/config/config.h"
#include "pentatron/families/family.h"

namespace pentatron::conversion {

struct AdapterFiles {
  std::size_t tensors = 0;
  std::uint64_t bytes = 0;
};

// Writes adapter_config.json and adapter_model.safetensors of PEFT into `folder`, in fp32. `model`:
// with adapters, in the checkpoint; `base`: where the weights underneath are found, or empty. A
// tensor of several parts has one adapter with the rows of all A below each other and a block of B
// for each: a rank of so many times --lora-rank, and an alpha that leaves the scale as it is.
[[nodiscard]] AdapterFiles write_adapter(const std::filesystem::path& folder,
                                         checkpoint::CheckpointReader& reader,
                                         const families::Family& family,
                                         const config::ModelConfig& model, const std::string& base);

}  // namespace pentatron::conversion
