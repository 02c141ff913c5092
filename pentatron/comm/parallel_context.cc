// SPDX-License-Identifier: Apache-2.0
#include "pentatron/comm/parallel_context.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "pentatron/base/error.h"

namespace pentatron::comm {
namespace {

// Those of the names that a grid made for a test has.
std::vector<std::string> known(const RankGrid& grid, const std::vector<std::string>& names) {
  std::vector<std::string> found;
  for (const std::string& name : names) {
    if (grid.has(name)) found.push_back(name);
  }
  return found;
}

const Grids& checked(const Grids& grids, const Backend& backend) {
  PENTATRON_CHECK(grids.dense.world_size() == backend.world_size(), kConfig,
                  "the parallel sizes multiply to {} ranks, but the world has {}:\n{}",
                  grids.dense.world_size(), backend.world_size(), grids.to_string());
  return grids;
}

}  // namespace

ParallelContext::ParallelContext(Backend& backend, Grids grids, std::string name)
    : backend_(backend),
      grids_(std::move(grids)),
      name_(std::move(name)),
      rank_(backend.rank()),
      place_(checked(grids_, backend), backend.rank()) {
  for (const Axis& axis : grid().axes()) static_cast<void>(group(axis.name));
  for (const auto* axes : {&model_axes(), &replica_axes(GridKind::kDense)}) {
    const std::vector<std::string> names = known(grid(), *axes);
    if (!names.empty()) static_cast<void>(group(names));
  }
  static_cast<void>(world());
}

ParallelContext::~ParallelContext() = default;

std::int64_t ParallelContext::coordinate(std::string_view axis) const {
  return place_.coordinate(axis);
}

std::int64_t ParallelContext::size(std::string_view axis) const { return place_.size(axis); }

Group& ParallelContext::make(const RankGrid& grid, const std::vector<std::string>& axes,
                             const std::string& key) {
  const std::vector<std::int64_t> ranks = grid.group_of(rank_, axes);
  std::unique_ptr<Group>& entry = groups_[key];
  entry = backend_.make_group(ranks, fmt::format("{}/{}:{}", name_, key, ranks.front()));
  return *entry;
}

Group& ParallelContext::group(const std::vector<std::string>& axes) {
  PENTATRON_CHECK(!axes.empty(), kInternal, "a group over no axes was asked for");
  if (axes.size() == 1) return group(axes.front());
  const RankGrid& grid = grids_.with(axes);
  // Any order of the same names is the same group.
  std::vector<std::string> ordered = axes;
  std::sort(ordered.begin(), ordered.end(), [&](const std::string& a, const std::string& b) {
    const std::int64_t stride_a = grid.part(a).stride;
    const std::int64_t stride_b = grid.part(b).stride;
    return stride_a != stride_b ? stride_a < stride_b : a < b;
  });
  const std::string key = fmt::format("{}", fmt::join(ordered, "-"));
  const auto found = groups_.find(key);
  return found == groups_.end() ? make(grid, ordered, key) : *found->second;
}

Group& ParallelContext::group(std::string_view axis) {
  if (const auto found = groups_.find(axis); found != groups_.end()) return *found->second;
  const std::vector<std::string> names{std::string(axis)};
  return make(grids_.with(names), names, names.front());
}

Group& ParallelContext::second_group(std::string_view axis) {
  Group& first = group(axis);
  std::unique_ptr<Group>& entry = groups_[std::string(axis) + "#2"];
  if (!entry) entry = backend_.make_group(first.world_ranks(), first.name() + "#2");
  return *entry;
}

Group& ParallelContext::world() {
  std::unique_ptr<Group>& entry = groups_[""];  // no axis has this name
  if (!entry) {
    std::vector<std::int64_t> ranks(static_cast<std::size_t>(grid().world_size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    entry = backend_.make_group(ranks, name_ + "/world");
  }
  return *entry;
}

Group& ParallelContext::replicas() { return group(replica_axes(GridKind::kDense)); }

Group& ParallelContext::model() { return group(model_axes()); }

std::int64_t ParallelContext::data_rank() const { return coordinate("dp"); }

std::int64_t ParallelContext::num_data_ranks() const { return size("dp"); }

bool ParallelContext::is_first_stage() const { return !grid().has("pp") || coordinate("pp") == 0; }

bool ParallelContext::is_last_stage() const {
  return !grid().has("pp") || coordinate("pp") == size("pp") - 1;
}

std::string ParallelContext::label() const {
  const std::string place = grid().describe(rank_);
  return place.empty() ? fmt::format("rank {}", rank_) : fmt::format("rank {} ({})", rank_, place);
}

}  // namespace pentatron::comm
