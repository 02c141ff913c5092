// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace pentatron::families {

// The known name that differs in the fewest edits (config::edit_distance, a third of the name at
// most); empty when none is near.
[[nodiscard]] std::string nearest_name(std::string_view name, std::span<const std::string> known);
// " (did you mean X?)" of it, or empty.
[[nodiscard]] std::string did_you_mean(std::string_view name, std::span<const std::string> known);

}  // namespace pentatron::families
