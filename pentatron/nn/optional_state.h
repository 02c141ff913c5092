// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

// Buffers that a checkpoint may hold and the model lack, or the other way round: training goes on
// without them, and they begin anew. All other names in a checkpoint are strict.
namespace pentatron::nn {

// What delayed scaling remembers (parallel_layers/delayed_scales.h): a run may begin or end to
// compute in fp8.
inline constexpr std::string_view kFp8History = ".fp8_history";

[[nodiscard]] inline bool is_optional_state(std::string_view name) {
  return name.ends_with(kFp8History);
}

}  // namespace pentatron::nn
