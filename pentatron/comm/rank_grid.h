// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/comm/axis_name.h"

namespace pentatron::comm {

// One axis of the grid, fastest first. An axis may be factored: factors multiply to its size, the
// first factor is the slowest ("dp" = "dp_outer"(2) x "dp_inner"(4): rank d has dp_outer = d / 4
// and dp_inner = d % 4).
struct AxisFactor {
  std::string name;
  std::int64_t size = 1;
};
struct Axis {
  std::string name;
  std::int64_t size = 1;
  std::vector<AxisFactor> factors;
};

// Pure map between world ranks and coordinates on named axes. The first axis varies fastest.
// Wherever a name is asked for, it is that of an axis, of a factor, or of a computed part of one
// (axis_name.h). A rank, coordinate or name that the grid has not: kInternal.
class RankGrid final {
 public:
  // Sizes >= 1, names unique over axes and factors and without '/' and '%', factors multiply to
  // their axis: config errors otherwise.
  explicit RankGrid(std::vector<Axis> axes);

  [[nodiscard]] std::int64_t world_size() const { return world_size_; }
  [[nodiscard]] const std::vector<Axis>& axes() const { return axes_; }
  [[nodiscard]] bool has(std::string_view name) const;
  [[nodiscard]] std::int64_t size(std::string_view name) const;
  [[nodiscard]] std::int64_t coordinate(std::int64_t rank, std::string_view name) const;
  // rank / stride % size is the coordinate on it.
  [[nodiscard]] AxisPart part(std::string_view name) const;
  // Rank with `rank`'s coordinates except the given one.
  [[nodiscard]] std::int64_t with_coordinate(std::int64_t rank, std::string_view name,
                                             std::int64_t coordinate) const;
  // World ranks that differ from `rank` only on the named axes, `rank` among them, ascending. Names
  // may overlap where one contains the other or both meet at a common block; else kInternal.
  [[nodiscard]] std::vector<std::int64_t> group_of(std::int64_t rank,
                                                   const std::vector<std::string>& names) const;
  // All groups of these axes, each once, ordered by their first rank.
  [[nodiscard]] std::vector<std::vector<std::int64_t>> groups(
      const std::vector<std::string>& names) const;
  // "tp 1, pp 0, dp 3" (axes of size 1 left out).
  [[nodiscard]] std::string describe(std::int64_t rank) const;
  // The whole grid as a small table for the log.
  [[nodiscard]] std::string to_string() const;

 private:
  struct Named {
    std::string name;
    AxisPart part;
  };
  [[nodiscard]] std::optional<AxisPart> find(const AxisName& name) const;
  void check_rank(std::int64_t rank) const;
  // The digits that the names cover: fastest first, none overlapping.
  [[nodiscard]] std::vector<AxisPart> merged(const std::vector<std::string>& names) const;

  std::vector<Axis> axes_;
  std::vector<Named> parts_;  // axes and factors
  std::int64_t world_size_ = 1;
};

}  // namespace pentatron::comm
