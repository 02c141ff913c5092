// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/config/config.h"

// The adapter_config.json of the PEFT library, as far as its LoRA and DoRA are ours.
namespace pentatron::families {

struct AdapterConfig {
  std::int64_t rank = 0;
  double alpha = 0;
  double dropout = 0;
  bool rslora = false;
  bool dora = false;
  // Of modules whose names end in the key, instead of the above.
  std::map<std::string, std::int64_t> ranks = {};
  std::map<std::string, double> alphas = {};

  [[nodiscard]] std::int64_t rank_of(std::string_view module) const;
  // What B A of the module is multiplied by.
  [[nodiscard]] double scale_of(std::string_view module) const;
};

// kData: no JSON object or a value of the wrong kind; kUnsupported: another method than LoRA, and
// parts of it that change results and are not here (trained biases or whole modules, initial values
// that change the weights underneath, patterns that are no names). Messages name `path` and key.
[[nodiscard]] AdapterConfig read_adapter_config(std::string_view text, const std::string& path);

// The JSON text, with 2-space indents. `modules`: the adapted modules' full names; `base`: where
// the weights underneath come from, or empty; `transposed`: their tensors are [inputs, outputs].
[[nodiscard]] std::string write_adapter_config(const AdapterConfig& config,
                                               const std::vector<std::string>& modules,
                                               const std::string& base, bool transposed);

inline constexpr const char* kAdapterConfigFile = "adapter_config.json";
inline constexpr const char* kAdapterTensorsFile = "adapter_model.safetensors";

}  // namespace pentatron::families
