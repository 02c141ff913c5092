// SPDX-License-Identifier: Apache-2.0
#include "pentatron/comm/rank_grid.h"

#include <algorithm>
#include <set>

#include "pentatron/base/error.h"

namespace pentatron::comm {
namespace {

void check_name(std::set<std::string>& names, const std::string& name) {
  PENTATRON_CHECK(!name.empty(), kConfig, "rank grid: an axis or factor has no name");
  PENTATRON_CHECK(name.find_first_of("/%") == std::string::npos, kConfig,
                  "rank grid: the name '{}' holds a sign of computed parts, '/' or '%'", name);
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
  for (const Axis& axis : axes_) {
    check_axis(names, axis);
    parts_.push_back({axis.name, {world_size_, axis.size}});
    std::int64_t stride = world_size_;
    for (auto factor = axis.factors.rbegin(); factor != axis.factors.rend(); ++factor) {
      parts_.push_back({factor->name, {stride, factor->size}});
      stride *= factor->size;
    }
    PENTATRON_CHECK(!__builtin_mul_overflow(world_size_, axis.size, &world_size_), kConfig,
                    "rank grid: the world size overflows at axis '{}'", axis.name);
  }
}

std::optional<AxisPart> RankGrid::find(const AxisName& name) const {
  for (const Named& known : parts_) {
    if (known.name != name.axis()) continue;
    if (!name.divides(known.part.size)) return std::nullopt;
    const AxisPart inside = name.part_of(known.part.size);
    return AxisPart{known.part.stride * inside.stride, inside.size};
  }
  return std::nullopt;
}

bool RankGrid::has(std::string_view name) const { return find(AxisName(name)).has_value(); }

AxisPart RankGrid::part(std::string_view name) const {
  const std::optional<AxisPart> found = find(AxisName(name));
  PENTATRON_CHECK(found.has_value(), kInternal,
                  "rank grid has no axis, factor or part of one named '{}':\n{}", name,
                  to_string());
  return *found;
}

std::int64_t RankGrid::size(std::string_view name) const { return part(name).size; }

void RankGrid::check_rank(std::int64_t rank) const {
  PENTATRON_CHECK(rank >= 0 && rank < world_size_, kInternal,
                  "rank {} is outside the grid of {} ranks", rank, world_size_);
}

std::int64_t RankGrid::coordinate(std::int64_t rank, std::string_view name) const {
  check_rank(rank);
  const AxisPart at = part(name);
  return rank / at.stride % at.size;
}

std::int64_t RankGrid::with_coordinate(std::int64_t rank, std::string_view name,
                                       std::int64_t coordinate_wanted) const {
  const std::int64_t now = coordinate(rank, name);
  const AxisPart at = part(name);
  PENTATRON_CHECK(coordinate_wanted >= 0 && coordinate_wanted < at.size, kInternal,
                  "coordinate {} is outside '{}' of size {}", coordinate_wanted, name, at.size);
  return rank + (coordinate_wanted - now) * at.stride;
}

std::vector<AxisPart> RankGrid::merged(const std::vector<std::string>& names) const {
  std::vector<AxisPart> parts;
  for (const std::string& name : names) {
    if (const AxisPart at = part(name); at.size > 1) parts.push_back(at);
  }
  std::sort(parts.begin(), parts.end(),
            [](const AxisPart& a, const AxisPart& b) { return a.stride < b.stride; });
  std::vector<AxisPart> digits;
  for (const AxisPart& next : parts) {
    const std::int64_t end = digits.empty() ? 1 : digits.back().stride * digits.back().size;
    if (digits.empty() || next.stride >= end) {
      digits.push_back(next);
      continue;
    }
    AxisPart& last = digits.back();
    const std::int64_t next_end = next.stride * next.size;
    const std::int64_t low = std::min(end, next_end);
    const std::int64_t high = std::max(end, next_end);
    PENTATRON_CHECK(next.stride % last.stride == 0 && end % next.stride == 0 && high % low == 0,
                    kInternal,
                    "rank grid: the parts of an axis that a group was asked over overlap and "
                    "have no common block");
    last.size = high / last.stride;
  }
  return digits;
}

std::vector<std::int64_t> RankGrid::group_of(std::int64_t rank,
                                             const std::vector<std::string>& names) const {
  check_rank(rank);
  const std::vector<AxisPart> digits = merged(names);
  std::int64_t base = rank;
  for (const AxisPart& digit : digits) base -= rank / digit.stride % digit.size * digit.stride;
  std::vector<std::int64_t> ranks{base};
  for (const AxisPart& digit : digits) {
    // Each digit repeats what the faster ones gave; strides grow, so the order stays ascending.
    const std::size_t count = ranks.size();
    for (std::int64_t value = 1; value < digit.size; ++value) {
      for (std::size_t k = 0; k < count; ++k) ranks.push_back(ranks[k] + value * digit.stride);
    }
  }
  return ranks;
}

std::vector<std::vector<std::int64_t>> RankGrid::groups(
    const std::vector<std::string>& names) const {
  std::vector<std::vector<std::int64_t>> all;
  std::vector<bool> seen(static_cast<std::size_t>(world_size_), false);
  for (std::int64_t rank = 0; rank < world_size_; ++rank) {
    if (seen[static_cast<std::size_t>(rank)]) continue;
    all.push_back(group_of(rank, names));
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
    text += fmt::format("  {:<10} {:>6} {:>8}  {}\n", axis.name, axis.size, part(axis.name).stride,
                        axis.factors.empty() ? "-" : factors.c_str());
  }
  return text;
}

}  // namespace pentatron::comm
