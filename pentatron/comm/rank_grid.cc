// SPDX-License-Identifier: Apache-2.0
#include "pentatron/comm/rank_grid.h"

#include <algorithm>
#include <set>

#include "pentatron/base/error.h"

namespace pentatron::comm {
namespace {

void check_name(std::set<std::string>& names, const std::string& name) {
  PENTATRON_CHECK(!name.empty(), kConfig, "rank grid: an axis or factor has no name");
  PENTATRON_CHECK(names.insert(name).second, kConfig,
                  "rank grid: the name '{}' is used twice; axes and factors share one name space",
                  name);
}

void check_axis(std::set<std::string>& names, const Axis& axis) {
  check_name(names, axis.name);
  PENTATRON_CHECK(axis.size >= 1, kConfig, "rank grid: axis '{}' has size {}, expected at least 1",
                  axis.name, axis.size);
  if (axis.factors.empty()) return;
  std::int64_t product = 1;
  for (const AxisFactor& factor : axis.factors) {
    check_name(names, factor.name);
    PENTATRON_CHECK(factor.size >= 1, kConfig,
                    "rank grid: factor '{}' of axis '{}' has size {}, expected at least 1",
                    factor.name, axis.name, factor.size);
    PENTATRON_CHECK(!__builtin_mul_overflow(product, factor.size, &product), kConfig,
                    "rank grid: the factors of axis '{}' overflow", axis.name);
  }
  PENTATRON_CHECK(product == axis.size, kConfig,
                  "rank grid: the factors of axis '{}' multiply to {}, expected its size {}",
                  axis.name, product, axis.size);
}

}  // namespace

RankGrid::RankGrid(std::vector<Axis> axes) : axes_(std::move(axes)) {
  std::set<std::string> names;
  const auto push = [this](const std::string& axis, const std::string& name, std::int64_t size) {
    digits_.push_back({axis, name, size, world_size_});
    PENTATRON_CHECK(!__builtin_mul_overflow(world_size_, size, &world_size_), kConfig,
                    "rank grid: the world size overflows at axis '{}'", axis);
  };
  for (const Axis& axis : axes_) {
    check_axis(names, axis);
    if (axis.factors.empty()) push(axis.name, axis.name, axis.size);
    for (auto factor = axis.factors.rbegin(); factor != axis.factors.rend(); ++factor) {
      push(axis.name, factor->name, factor->size);
    }
  }
}

std::vector<std::size_t> RankGrid::digits_of(std::string_view axis_or_factor) const {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < digits_.size(); ++i) {
    if (digits_[i].axis == axis_or_factor || digits_[i].name == axis_or_factor) found.push_back(i);
  }
  return found;
}

bool RankGrid::has(std::string_view axis_or_factor) const {
  return !digits_of(axis_or_factor).empty();
}

std::int64_t RankGrid::size(std::string_view axis_or_factor) const {
  const auto digits = digits_of(axis_or_factor);
  PENTATRON_CHECK(!digits.empty(), kInternal, "rank grid has no axis or factor '{}'",
                  axis_or_factor);
  std::int64_t size = 1;
  for (std::size_t i : digits) size *= digits_[i].size;
  return size;
}

std::int64_t RankGrid::coordinate(std::int64_t rank, std::string_view axis_or_factor) const {
  PENTATRON_CHECK(rank >= 0 && rank < world_size_, kInternal,
                  "rank {} is outside the grid of {} ranks", rank, world_size_);
  // The digits of one axis are neighbours, so the lowest stride and the whole size give its value.
  const std::int64_t axis_size = size(axis_or_factor);
  return rank / digits_[digits_of(axis_or_factor).front()].stride % axis_size;
}

std::int64_t RankGrid::with_coordinate(std::int64_t rank, std::string_view axis_or_factor,
                                       std::int64_t coordinate_wanted) const {
  const std::int64_t now = coordinate(rank, axis_or_factor);
  PENTATRON_CHECK(coordinate_wanted >= 0 && coordinate_wanted < size(axis_or_factor), kInternal,
                  "coordinate {} is outside '{}' of size {}", coordinate_wanted, axis_or_factor,
                  size(axis_or_factor));
  return rank + (coordinate_wanted - now) * digits_[digits_of(axis_or_factor).front()].stride;
}

std::vector<std::int64_t> RankGrid::group_of(std::int64_t rank,
                                             const std::vector<std::string>& axes) const {
  PENTATRON_CHECK(rank >= 0 && rank < world_size_, kInternal,
                  "rank {} is outside the grid of {} ranks", rank, world_size_);
  std::set<std::size_t> chosen;  // ordered: fastest digit first
  for (const std::string& name : axes) {
    const auto digits = digits_of(name);
    PENTATRON_CHECK(!digits.empty(), kInternal, "rank grid has no axis or factor '{}'", name);
    chosen.insert(digits.begin(), digits.end());
  }
  std::int64_t base = rank;
  for (std::size_t i : chosen) {
    base -= rank / digits_[i].stride % digits_[i].size * digits_[i].stride;
  }
  std::vector<std::int64_t> ranks{base};
  for (std::size_t i : chosen) {
    // Each digit repeats what the faster ones gave; strides grow, so the order stays ascending.
    const std::size_t count = ranks.size();
    for (std::int64_t value = 1; value < digits_[i].size; ++value) {
      for (std::size_t k = 0; k < count; ++k) {
        ranks.push_back(ranks[k] + value * digits_[i].stride);
      }
    }
  }
  return ranks;
}

std::vector<std::vector<std::int64_t>> RankGrid::groups(
    const std::vector<std::string>& axes) const {
  std::vector<std::vector<std::int64_t>> all;
  std::vector<bool> seen(static_cast<std::size_t>(world_size_), false);
  for (std::int64_t rank = 0; rank < world_size_; ++rank) {
    if (seen[static_cast<std::size_t>(rank)]) continue;
    all.push_back(group_of(rank, axes));
    for (std::int64_t member : all.back()) seen[static_cast<std::size_t>(member)] = true;
  }
  return all;
}

std::string RankGrid::describe(std::int64_t rank) const {
  std::string text;
  for (const Axis& axis : axes_) {
    if (axis.size == 1) continue;
    if (!text.empty()) text += ", ";
    text += fmt::format("{} {}", axis.name, coordinate(rank, axis.name));
  }
  return text;
}

std::string RankGrid::to_string() const {
  std::string text = fmt::format("rank grid of {} ranks, fastest axis first\n", world_size_);
  text += fmt::format("  {:<10} {:>6} {:>8}  {}\n", "axis", "size", "stride", "factors");
  for (const Axis& axis : axes_) {
    std::string factors;
    for (const AxisFactor& factor : axis.factors) {
      if (!factors.empty()) factors += " x ";
      factors += fmt::format("{} {}", factor.name, factor.size);
    }
    text += fmt::format("  {:<10} {:>6} {:>8}  {}\n", axis.name, axis.size,
                        digits_[digits_of(axis.name).front()].stride,
                        axis.factors.empty() ? "-" : factors.c_str());
  }
  return text;
}

}  // namespace pentatron::comm
