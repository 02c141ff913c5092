// SPDX-License-Identifier: Apache-2.0
#include "pentatron/comm/places.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/config/context_comm.h"

namespace pentatron::comm {
namespace {

constexpr const char* kTensorOption = "--tensor-model-parallel-size";
constexpr const char* kContextOption = "--context-parallel-size";
constexpr const char* kPipelineOption = "--pipeline-model-parallel-size";
constexpr const char* kExpertOption = "--expert-model-parallel-size";
constexpr const char* kExpertTensorOption = "--expert-tensor-parallel-size";
constexpr const char* kInstancesOption = "--num-distributed-optimizer-instances";
constexpr const char* kHierarchyOption = "--hierarchical-context-parallel-sizes";
constexpr const char* kOrderOption = "--use-tp-pp-dp-mapping";

struct AxisOption {
  std::string_view axis;
  std::string_view option;
};
// dp and edp are what is left of the world.
constexpr std::array kAxisOptions = {
    AxisOption{"tp", kTensorOption},   AxisOption{"cp", kContextOption},
    AxisOption{"pp", kPipelineOption}, AxisOption{"etp", kExpertTensorOption},
    AxisOption{"ep", kExpertOption},   AxisOption{"dp", "--world-size"},
    AxisOption{"edp", "--world-size"},
};

void check_at_least_one(std::int64_t value, const char* option) {
  PENTATRON_CHECK(value >= 1, kConfig, "{} must be at least 1, not {}", option, value);
}

// world / product of the sizes of a grid's other axes.
std::int64_t rest_of_world(std::int64_t world, std::initializer_list<std::int64_t> sizes,
                           std::string_view options) {
  std::int64_t product = 1;
  for (const std::int64_t size : sizes) {
    PENTATRON_CHECK(!__builtin_mul_overflow(product, size, &product), kConfig,
                    "{} multiply to more than any world", options);
  }
  PENTATRON_CHECK(world % product == 0, kConfig,
                  "the world of {} ranks (--world-size or WORLD_SIZE) does not divide by {} = {}",
                  world, options, product);
  return world / product;
}

Axis factored(const std::string& axis, std::int64_t size, std::int64_t inner, const char* option,
              const std::string& asked) {
  PENTATRON_CHECK(inner >= 1 && size % inner == 0, kConfig,
                  "{} {} does not divide the {} ranks of {} ({})", option, asked, size, axis,
                  option_of(axis));
  return {axis, size, {{axis + "_outer", size / inner}, {axis + "_inner", inner}}};
}

// `instances` copies of the sharded state, each over an equal number of neighbours.
Axis with_instances(const std::string& axis, std::int64_t size, std::int64_t instances) {
  PENTATRON_CHECK(size % instances == 0, kConfig,
                  "{} {} does not divide the {} ranks of {}: change it or the world size",
                  kInstancesOption, instances, size, axis);
  return factored(axis, size, size / instances, kInstancesOption, std::to_string(instances));
}

RankGrid ordered(std::vector<Axis> fast, Axis data, Axis pipeline, RankOrder order) {
  if (order == RankOrder::kDataLast) std::swap(data, pipeline);
  fast.push_back(std::move(data));
  fast.push_back(std::move(pipeline));
  return RankGrid(std::move(fast));
}

void check_sizes(const GridSizes& s) {
  check_at_least_one(s.world, "--world-size");
  check_at_least_one(s.tensor, kTensorOption);
  check_at_least_one(s.context, kContextOption);
  check_at_least_one(s.pipeline, kPipelineOption);
  check_at_least_one(s.expert, kExpertOption);
  PENTATRON_CHECK(s.expert_tensor >= 0, kConfig, "{} must be at least 1, not {}",
                  kExpertTensorOption, s.expert_tensor);
  check_at_least_one(s.data_instances, kInstancesOption);
  check_at_least_one(s.context_inner, kHierarchyOption);
}

}  // namespace

GridSizes grid_sizes(const config::ParallelConfig& parallel) {
  return {.world = parallel.world_size,
          .tensor = parallel.tensor_model_parallel_size,
          .context = parallel.context_parallel_size,
          .pipeline = parallel.pipeline_model_parallel_size,
          .expert = parallel.expert_model_parallel_size,
          .data_instances = parallel.num_distributed_optimizer_instances,
          .context_inner = config::context_hierarchy(parallel).inner,
          .order = parallel.use_tp_pp_dp_mapping ? RankOrder::kDataLast : RankOrder::kPipelineLast};
}

Grids::Grids(RankGrid dense_grid, RankGrid expert_grid)
    : dense(std::move(dense_grid)), expert(std::move(expert_grid)) {
  PENTATRON_CHECK(dense.world_size() == expert->world_size(), kInternal,
                  "the dense grid has {} ranks, the expert grid {}", dense.world_size(),
                  expert->world_size());
  const bool pipelines = dense.has("pp") && (dense.size("pp") > 1 || expert->size("pp") > 1);
  PENTATRON_CHECK(!pipelines || dense.part("pp") == expert->part("pp"), kInternal,
                  "the grids have different pipelines:\n{}", to_string());
}

const RankGrid& Grids::with(const std::vector<std::string>& names) const {
  const auto has_all = [&](const RankGrid& grid) {
    return std::all_of(names.begin(), names.end(),
                       [&](const std::string& name) { return grid.has(name); });
  };
  if (has_all(dense)) return dense;
  PENTATRON_CHECK(expert.has_value() && has_all(*expert), kInternal,
                  "no grid has all of the axes {}:\n{}", fmt::join(names, ", "), to_string());
  return *expert;
}

bool Grids::has(std::string_view name) const {
  return dense.has(name) || (expert.has_value() && expert->has(name));
}

std::string Grids::to_string() const {
  return expert ? dense.to_string() + "experts: " + expert->to_string() : dense.to_string();
}

Grids make_grids(const GridSizes& s) {
  check_sizes(s);
  const std::int64_t expert_tensor = s.expert_tensor == 0 ? s.tensor : s.expert_tensor;
  const std::int64_t dp =
      rest_of_world(s.world, {s.tensor, s.context, s.pipeline},
                    fmt::format("{} {} x {} {} x {} {}", kTensorOption, s.tensor, kContextOption,
                                s.context, kPipelineOption, s.pipeline));
  const std::int64_t edp =
      rest_of_world(s.world, {expert_tensor, s.expert, s.pipeline},
                    fmt::format("{} {} x {} {} x {} {}", kExpertTensorOption, expert_tensor,
                                kExpertOption, s.expert, kPipelineOption, s.pipeline));
  PENTATRON_CHECK(s.order == RankOrder::kPipelineLast || s.pipeline == 1 || edp == dp, kConfig,
                  "{} with {} {} needs equally many data-parallel ranks for dense layers and "
                  "experts, not {} and {}: change {}, {} or {}",
                  kOrderOption, kPipelineOption, s.pipeline, dp, edp, kContextOption, kExpertOption,
                  kExpertTensorOption);
  const Axis pipeline{"pp", s.pipeline, {}};
  return {ordered({{"tp", s.tensor, {}},
                   factored("cp", s.context, s.context_inner, kHierarchyOption,
                            std::to_string(s.context_inner))},
                  with_instances("dp", dp, s.data_instances), pipeline, s.order),
          ordered({{"etp", expert_tensor, {}}, {"ep", s.expert, {}}},
                  with_instances("edp", edp, s.data_instances), pipeline, s.order)};
}

Grids make_grids(const config::ParallelConfig& parallel) {
  Grids grids = make_grids(grid_sizes(parallel));
  PENTATRON_CHECK(grids.dense.size("dp") == parallel.data_parallel_size, kConfig,
                  "{} data-parallel ranks were counted on, the world of {} has {}:\n{}",
                  parallel.data_parallel_size, parallel.world_size, grids.dense.size("dp"),
                  grids.dense.to_string());
  return grids;
}

const std::vector<std::string>& replica_axes(GridKind kind) {
  static const std::vector<std::string> kDense{"dp", "cp"};
  static const std::vector<std::string> kExpert{"edp"};
  return kind == GridKind::kDense ? kDense : kExpert;
}

const std::vector<std::string>& shard_axes(GridKind kind) {
  static const std::vector<std::string> kDense{"dp_inner", "cp"};
  static const std::vector<std::string> kExpert{"edp_inner"};
  return kind == GridKind::kDense ? kDense : kExpert;
}

const std::vector<std::string>& instance_axes(GridKind kind) {
  static const std::vector<std::string> kDense{"dp_outer"};
  static const std::vector<std::string> kExpert{"edp_outer"};
  return kind == GridKind::kDense ? kDense : kExpert;
}

const std::vector<std::string>& model_axes() {
  static const std::vector<std::string> kAxes{"tp", "pp"};
  return kAxes;
}

std::string_view option_of(std::string_view axis) {
  const std::string_view whole = axis.substr(0, axis.find_first_of("/%_"));
  for (const AxisOption& known : kAxisOptions) {
    if (known.axis == whole) return known.option;
  }
  return "the parallel sizes";
}

Place::Place(std::vector<Coordinate> coordinates) : coordinates_(std::move(coordinates)) {
  for (const Coordinate& at : coordinates_) {
    PENTATRON_CHECK(at.size >= 1 && at.coordinate >= 0 && at.coordinate < at.size, kInternal,
                    "coordinate {} on {} is outside its size {}", at.coordinate, at.axis, at.size);
    PENTATRON_CHECK(find(at.axis) == &at, kInternal, "the axis {} is given twice", at.axis);
  }
}

Place::Place(const Grids& grids, std::int64_t rank) {
  const auto add = [&](const RankGrid& grid, const std::string& name) {
    if (find(name) != nullptr) return;  // pp, equal in both
    coordinates_.push_back({name, grid.size(name), grid.coordinate(rank, name)});
  };
  const auto add_all = [&](const RankGrid& grid) {
    for (const Axis& axis : grid.axes()) {
      add(grid, axis.name);
      for (const AxisFactor& factor : axis.factors) add(grid, factor.name);
    }
  };
  add_all(grids.dense);
  if (grids.expert) add_all(*grids.expert);
}

const Place::Coordinate* Place::find(std::string_view axis) const {
  const auto found = std::find_if(coordinates_.begin(), coordinates_.end(),
                                  [&](const Coordinate& at) { return at.axis == axis; });
  return found == coordinates_.end() ? nullptr : &*found;
}

std::pair<const Place::Coordinate*, AxisPart> Place::part(std::string_view name) const {
  if (const Coordinate* whole = find(name)) return {whole, {1, whole->size}};
  const AxisName parsed(name);
  const Coordinate* at = find(parsed.axis());
  PENTATRON_CHECK(at != nullptr, kInternal, "a place has no axis '{}'", parsed.axis());
  return {at, parsed.part_of(at->size)};
}

bool Place::has(std::string_view name) const {
  const AxisName parsed(name);
  const Coordinate* at = find(parsed.axis());
  return at != nullptr && parsed.divides(at->size);
}

std::int64_t Place::size(std::string_view name) const { return part(name).second.size; }

std::int64_t Place::coordinate(std::string_view name) const {
  const auto [at, of] = part(name);
  return at->coordinate / of.stride % of.size;
}

}  // namespace pentatron::comm
