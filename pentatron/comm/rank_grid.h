// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pentatron::comm {

// One axis of the grid, fastest first. An axis may be factored: factors multiply to its size, the
// first factor is the slowest
// ("tp" = "tp_kv"(2) x "tp_rep"(2): rank t has tp_kv = t / 2 and tp_rep = t % 2).
struct AxisFactor {
  std::string name;
  std::int64_t size = 1;
};
struct Axis {
  std::string name;
  std::int64_t size = 1;
  std::vector<AxisFactor> factors;
};

// Pure map between world ranks and coordinates on named axes. The first axis varies fastest
// (Megatron's tp-cp-ep-dp-pp). A rank, coordinate or name that the grid has not: kInternal.
class RankGrid final {
 public:
  // Sizes >= 1, names unique over axes and factors, factors multiply to their axis: config errors
  // otherwise.
  explicit RankGrid(std::vector<Axis> axes);

  [[nodiscard]] std::int64_t world_size() const { return world_size_; }
  [[nodiscard]] const std::vector<Axis>& axes() const { return axes_; }
  [[nodiscard]] bool has(std::string_view axis_or_factor) const;
  [[nodiscard]] std::int64_t size(std::string_view axis_or_factor) const;
  [[nodiscard]] std::int64_t coordinate(std::int64_t rank, std::string_view axis_or_factor) const;
  // Rank with `rank`'s coordinates except the given axis or factor.
  [[nodiscard]] std::int64_t with_coordinate(std::int64_t rank, std::string_view axis_or_factor,
                                             std::int64_t coordinate) const;
  // World ranks that differ from `rank` only on the given axes or factors, `rank` among them,
  // ascending.
  [[nodiscard]] std::vector<std::int64_t> group_of(std::int64_t rank,
                                                   const std::vector<std::string>& axes) const;
  // All groups of these axes, each once, ordered by their first rank.
  [[nodiscard]] std::vector<std::vector<std::int64_t>> groups(
      const std::vector<std::string>& axes) const;
  // "tp 1, pp 0, dp 3" (axes of size 1 left out).
  [[nodiscard]] std::string describe(std::int64_t rank) const;
  // The whole grid as a small table for the log.
  [[nodiscard]] std::string to_string() const;

 private:
  struct Digit {  // the grid as a mixed-radix number: one digit per factor (or unfactored axis),
                  // fastest first
    std::string axis;
    std::string name;
    std::int64_t size;
    std::int64_t stride;
  };
  [[nodiscard]] std::vector<std::size_t> digits_of(std::string_view axis_or_factor) const;

  std::vector<Axis> axes_;
  std::vector<Digit> digits_;
  std::int64_t world_size_ = 1;
};

}  // namespace pentatron::comm
