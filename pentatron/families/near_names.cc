// SPDX-License-Identifier: Apache-2.0
#include "pentatron/families/near_names.h"

#include <fmt/format.h>

#include <algorithm>

#include "pentatron/config/option_index.h"

namespace pentatron::families {

std::string nearest_name(std::string_view name, std::span<const std::string> known) {
  constexpr std::size_t kLongest = 256;
  if (name.size() > kLongest) return {};
  int limit = std::max(2, static_cast<int>(name.size()) / 3);
  std::string nearest;
  for (const std::string& candidate : known) {
    const int distance = config::edit_distance(name, candidate, limit);
    if (distance > limit) continue;
    nearest = candidate;
    limit = distance - 1;
    if (limit < 0) break;
  }
  return nearest;
}

std::string did_you_mean(std::string_view name, std::span<const std::string> known) {
  const std::string nearest = nearest_name(name, known);
  return nearest.empty() ? std::string() : fmt::format(" (did you mean {}?)", nearest);
}

}  // namespace pentatron::families
