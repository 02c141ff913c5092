// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "pentatron/families/family.h"

namespace pentatron::conversion {

struct CardFacts {
  const families::Family& family;
  const config::ModelConfig& model;
  std::string dtype;
  std::int64_t iteration = 0;
  std::int64_t parameters = 0;
};

// The README.md of an exported folder: what the model is and how it is loaded. What only its
// makers know (data, licence, limits) is left as questions.
[[nodiscard]] std::string model_card(const CardFacts& facts);

}  // namespace pentatron::conversion
