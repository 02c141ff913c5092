// SPDX-License-Identifier: Apache-2.0
#include "pentatron/comm/tie_groups.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

#include "pentatron/base/error.h"

namespace pentatron::comm {
namespace {

std::string as_lines(std::vector<std::string>& names) {
  std::sort(names.begin(), names.end());
  for (std::size_t i = 0; i < names.size(); ++i) {
    PENTATRON_CHECK(!names[i].empty() && names[i].find('\n') == std::string::npos, kInternal,
                    "'{}' is no name of a tied part", names[i]);
    PENTATRON_CHECK(i == 0 || names[i] != names[i - 1], kInternal,
                    "two tied parts of this rank are named {}", names[i]);
  }
  return fmt::format("{}", fmt::join(names, "\n"));
}

}  // namespace

TieGroups::TieGroups(ParallelContext& context, const std::string& axis,
                     std::vector<std::string> names) {
  const std::string mine = as_lines(names);
  if (!context.grids().has(axis) || context.size(axis) == 1) return;
  Group& along = context.group(axis);
  std::map<std::string, std::vector<std::int64_t>> holders;  // world ranks, ascending
  const std::vector<std::string> all = all_gather_bytes(along, mine);
  for (std::size_t member = 0; member < all.size(); ++member) {
    std::istringstream lines(all[member]);
    for (std::string name; std::getline(lines, name);) {
      holders[name].push_back(along.world_ranks()[member]);
    }
  }
  // By holders, so that every rank makes, and later uses, the groups that it shares in one order.
  std::map<std::vector<std::int64_t>, std::vector<std::string>> tied;
  for (const auto& [name, ranks] : holders) {
    if (ranks.size() > 1) tied[ranks].push_back(name);
  }
  for (auto& [ranks, shared] : tied) {
    if (!std::binary_search(ranks.begin(), ranks.end(), context.rank())) continue;
    const std::string name =
        fmt::format("{}/tie-{}:{}", context.name(), axis, fmt::join(ranks, "-"));
    ties_.push_back({std::move(shared), context.backend().make_group(ranks, name)});
  }
}

}  // namespace pentatron::comm
