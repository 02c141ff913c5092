// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace pentatron {

// Whether a row of a trace is what a GPU ran.
[[nodiscard]] inline bool is_device_lane(std::string_view lane) {
  return lane.starts_with("GPU stream ");
}

// What a kernel or copy of a GPU does for a step, by its name: "product", "attention", "norm", ...;
// "other" where the name does not tell.
[[nodiscard]] std::string_view op_of_kernel(std::string_view name);

}  // namespace pentatron
