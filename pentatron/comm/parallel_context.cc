// SPDX-License-Identifier: Apache-2.0
#include "pentatron/comm/parallel_context.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "pentatron/base/error.h"

namespace pentatron::comm {
namespace {

// All names of a grid in its own order: each axis, then its factors.
std::vector<std::string> names_of(const RankGrid& grid) {
  std::vector<std::string> names;
  for (const Axis& axis : grid.axes()) {
    names.push_back(axis.name);
    for (const AxisFactor& factor : axis.factors) names.push_back(factor.name);
  }
  return names;
}

}  // namespace

ParallelContext::ParallelContext(Backend& backend, RankGrid grid, std::string name)
    : backend_(backend), grid_(std::move(grid)), name_(std::move(name)), rank_(backend.rank()) {
  PENTATRON_CHECK(grid_.world_size() == backend_.world_size(), kConfig,
                  "the parallel sizes multiply to {} ranks, but the world has {}:\n{}",
                  grid_.world_size(), backend_.world_size(), grid_.to_string());
  const std::vector<std::string> names = names_of(grid_);
  for (const std::string& axis : names) make({axis});
  for (const std::vector<std::string>& pair :
       {std::vector<std::string>{"tp", "pp"}, std::vector<std::string>{"cp", "dp"}}) {
    if (grid_.has(pair[0]) && grid_.has(pair[1])) static_cast<void>(group(pair));
  }
  static_cast<void>(world());
  if (grid_.has("pp") && grid_.size("pp") > 1 && (is_first_stage() || is_last_stage())) {
    const std::int64_t first = grid_.with_coordinate(rank_, "pp", 0);
    const std::int64_t last = grid_.with_coordinate(rank_, "pp", grid_.size("pp") - 1);
    tied_ends_ = backend_.make_group({std::min(first, last), std::max(first, last)},
                                     fmt::format("{}/tied-ends:{}", name_, first));
  }
}

ParallelContext::~ParallelContext() = default;

std::int64_t ParallelContext::coordinate(const std::string& axis) const {
  return grid_.coordinate(rank_, axis);
}

std::int64_t ParallelContext::size(const std::string& axis) const { return grid_.size(axis); }

Group& ParallelContext::make(const std::vector<std::string>& axes) {
  const std::string key = fmt::format("{}", fmt::join(axes, "-"));
  std::unique_ptr<Group>& entry = groups_[key];
  if (!entry) {
    const auto ranks = grid_.group_of(rank_, axes);
    entry = backend_.make_group(ranks, fmt::format("{}/{}:{}", name_, key, ranks.front()));
  }
  return *entry;
}

Group& ParallelContext::group(const std::vector<std::string>& axes) {
  // Any order of the same names is the same group.
  std::vector<std::string> ordered;
  for (const std::string& name : names_of(grid_)) {
    if (std::find(axes.begin(), axes.end(), name) != axes.end()) ordered.push_back(name);
  }
  for (const std::string& name : axes) {
    PENTATRON_CHECK(grid_.has(name), kInternal, "the rank grid has no axis or factor '{}'", name);
  }
  PENTATRON_CHECK(!ordered.empty(), kInternal, "a group over no axes was asked for");
  return make(ordered);
}

Group& ParallelContext::group(const std::string& axis) {
  return group(std::vector<std::string>{axis});
}

Group& ParallelContext::world() {
  std::unique_ptr<Group>& entry = groups_[""];  // no axis has this name
  if (!entry) {
    std::vector<std::int64_t> ranks(static_cast<std::size_t>(grid_.world_size()));
    for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i] = static_cast<std::int64_t>(i);
    entry = backend_.make_group(ranks, name_ + "/world");
  }
  return *entry;
}

Group* ParallelContext::tied_ends() { return tied_ends_.get(); }

bool ParallelContext::is_first_stage() const { return !grid_.has("pp") || coordinate("pp") == 0; }

bool ParallelContext::is_last_stage() const {
  return !grid_.has("pp") || coordinate("pp") == size("pp") - 1;
}

std::string ParallelContext::label() const {
  const std::string place = grid_.describe(rank_);
  return place.empty() ? fmt::format("rank {}", rank_) : fmt::format("rank {} ({})", rank_, place);
}

RankGrid make_rank_grid(const config::ParallelConfig& parallel, std::int64_t num_kv_heads) {
  const std::int64_t tp = parallel.tensor_model_parallel_size;
  const std::int64_t cp = parallel.context_parallel_size;
  const std::int64_t dp = parallel.data_parallel_size;
  const std::int64_t pp = parallel.pipeline_model_parallel_size;
  PENTATRON_CHECK(tp >= 1 && cp >= 1 && dp >= 1 && pp >= 1, kConfig,
                  "parallel sizes must be at least 1: tensor {}, context {}, data {}, pipeline {}",
                  tp, cp, dp, pp);
  PENTATRON_CHECK(parallel.expert_model_parallel_size == 1, kUnsupported,
                  "--expert-model-parallel-size {}: expert layers have a grid of their own, which "
                  "is not built yet; use 1",
                  parallel.expert_model_parallel_size);
  PENTATRON_CHECK(num_kv_heads >= 1, kConfig, "{} key-value heads (--num-query-groups)",
                  num_kv_heads);
  const std::int64_t tp_kv = std::min(tp, num_kv_heads);
  PENTATRON_CHECK(tp % tp_kv == 0, kConfig,
                  "--tensor-model-parallel-size {} is above the {} key-value heads "
                  "(--num-query-groups) and not a multiple of them",
                  tp, num_kv_heads);
  RankGrid grid({{"tp", tp, {{"tp_kv", tp_kv}, {"tp_rep", tp / tp_kv}}},
                 {"cp", cp, {}},
                 {"ep", 1, {}},
                 {"dp", dp, {}},
                 {"pp", pp, {}}});
  PENTATRON_CHECK(grid.world_size() == parallel.world_size, kConfig,
                  "tensor {} x context {} x data {} x pipeline {} are {} ranks, but the world has "
                  "{} (--world-size or WORLD_SIZE)",
                  tp, cp, dp, pp, grid.world_size(), parallel.world_size);
  return grid;
}

}  // namespace pentatron::comm
