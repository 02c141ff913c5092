// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/comm/rank_grid.h"
#include "pentatron/config/config.h"

// Where ranks stand, as pure data: the two grids over one world, and one rank's coordinates.
//
//   dense grid    tp x cp x dp x pp     attention, dense layers, embeddings
//   expert grid   etp x ep x edp x pp   experts: the same ranks of a pipeline stage, cut anew
//
// dp = dp_outer x dp_inner and edp = edp_outer x edp_inner (optimizer instances), cp = cp_outer x
// cp_inner (hierarchical context parallelism) are declared factors; any other part of an axis has a
// computed name (axis_name.h).
namespace pentatron::comm {

enum class GridKind { kDense, kExpert };

// Which axis varies slowest. Megatron's tp-cp-ep-dp-pp and, with --use-tp-pp-dp-mapping,
// tp-cp-ep-pp-dp.
enum class RankOrder { kPipelineLast, kDataLast };

// What the user asks of a layout. The sizes of dp and edp follow from the world.
struct GridSizes {
  std::int64_t world = 1;
  std::int64_t tensor = 1;
  std::int64_t context = 1;
  std::int64_t pipeline = 1;
  std::int64_t expert = 1;
  std::int64_t expert_tensor = 0;  // 0: as tensor
  std::int64_t data_instances = 1;
  std::int64_t context_inner = 1;  // neighbours on cp that form its fast factor
  RankOrder order = RankOrder::kPipelineLast;
};
[[nodiscard]] GridSizes grid_sizes(const config::ParallelConfig& parallel);

struct Grids {
  // A dense grid alone (any axes), for models without experts and for tests.
  Grids(RankGrid dense_grid) : dense(std::move(dense_grid)) {}  // NOLINT: a grid is grids of one
  // Both over one world, with equal pipelines; else kInternal.
  Grids(RankGrid dense_grid, RankGrid expert_grid);

  RankGrid dense;
  std::optional<RankGrid> expert;

  // The grid that has all of these names, the dense one where both do ("pp"); kInternal otherwise.
  [[nodiscard]] const RankGrid& with(const std::vector<std::string>& names) const;
  [[nodiscard]] bool has(std::string_view name) const;
  [[nodiscard]] std::string to_string() const;
};

// Both grids, all axes and factors named above. Config errors, with both numbers and the option to
// change: sizes below 1; a world that tensor x context x pipeline, or expert tensor x expert x
// pipeline, does not divide; instances that do not divide dp and edp; a hierarchical context size
// that does not divide cp; with kDataLast on several stages, edp unequal to dp (the pipelines of
// the grids would differ).
[[nodiscard]] Grids make_grids(const GridSizes& sizes);
// Likewise; and data_parallel_size (config::resolve) must be what the world gives.
[[nodiscard]] Grids make_grids(const config::ParallelConfig& parallel);

// Axes by meaning, each spelt here and nowhere else.
// Ranks that hold equal copies of a grid's weights and see different tokens: gradients are summed
// and counts taken over them.
[[nodiscard]] const std::vector<std::string>& replica_axes(GridKind kind);
// Of these, one optimizer instance (over which state is sharded), and the instances.
[[nodiscard]] const std::vector<std::string>& shard_axes(GridKind kind);
[[nodiscard]] const std::vector<std::string>& instance_axes(GridKind kind);
// Ranks that hold the parts of one copy of the dense model.
[[nodiscard]] const std::vector<std::string>& model_axes();

// The option that sets the size of an axis (of a factor or part: of its axis).
[[nodiscard]] std::string_view option_of(std::string_view axis);

// One rank's coordinates on named axes. Names as those of a RankGrid, computed parts too; one that
// it has not: kInternal.
class Place final {
 public:
  struct Coordinate {
    std::string axis;
    std::int64_t size = 1;
    std::int64_t coordinate = 0;
  };
  // Sizes >= 1, coordinates inside them, names once: else kInternal.
  explicit Place(std::vector<Coordinate> coordinates);
  // On the axes and factors of both grids. A rank outside the world: kInternal.
  Place(const Grids& grids, std::int64_t rank);

  [[nodiscard]] bool has(std::string_view name) const;
  [[nodiscard]] std::int64_t size(std::string_view name) const;
  [[nodiscard]] std::int64_t coordinate(std::string_view name) const;
  [[nodiscard]] const std::vector<Coordinate>& coordinates() const { return coordinates_; }

 private:
  [[nodiscard]] const Coordinate* find(std::string_view axis) const;
  [[nodiscard]] std::pair<const Coordinate*, AxisPart> part(std::string_view name) const;

  std::vector<Coordinate> coordinates_;
};

}  // namespace pentatron::comm
