// SPDX-License-Identifier: Apache-2.0
#include "pentatron/checkpoint/plan.h"

#include <algorithm>
#include <vector>

namespace pentatron::checkpoint {
namespace {

// Elements between neighbours along each dimension of a row-major box.
std::vector<std::int64_t> strides_of(const nn::Box& box) {
  std::vector<std::int64_t> strides(box.size.size(), 1);
  for (std::size_t d = box.size.size(); d-- > 1;) strides[d - 1] = strides[d] * box.size[d];
  return strides;
}

// Cuts the box to the rows (dim 0) that the range touches; the others need no visit.
void keep_rows_of(const BoxRange& range, std::int64_t row_elements, std::int64_t& begin,
                  std::int64_t& end) {
  begin = std::max(begin, range.box.offset[0] + range.begin / row_elements);
  end = std::min(end, range.box.offset[0] + (range.end - 1) / row_elements + 1);
}

}  // namespace

void for_each_run(const BoxRange& source, const BoxRange& target,
                  const std::function<void(const Run&)>& copy) {
  if (source.begin >= source.end || target.begin >= target.end) return;
  if (source.box == target.box) {
    const std::int64_t begin = std::max(source.begin, target.begin);
    const std::int64_t end = std::min(source.end, target.end);
    if (begin < end) copy({begin - source.begin, begin - target.begin, end - begin});
    return;
  }
  const std::size_t dims = source.box.size.size();
  const std::vector<std::int64_t> source_strides = strides_of(source.box);
  const std::vector<std::int64_t> target_strides = strides_of(target.box);
  std::vector<std::int64_t> at(dims);   // the intersection's first element
  std::vector<std::int64_t> end(dims);  // past its last
  for (std::size_t d = 0; d < dims; ++d) {
    at[d] = std::max(source.box.offset[d], target.box.offset[d]);
    end[d] = std::min(source.box.offset[d] + source.box.size[d],
                      target.box.offset[d] + target.box.size[d]);
    if (d == 0) {
      keep_rows_of(source, source_strides[0], at[0], end[0]);
      keep_rows_of(target, target_strides[0], at[0], end[0]);
    }
    if (at[d] >= end[d]) return;
  }
  // Dimensions after `inner` are whole on both sides, so a run spans `inner` and all after it.
  std::size_t inner = dims - 1;
  const auto whole = [&](std::size_t d) {
    return end[d] - at[d] == source.box.size[d] && end[d] - at[d] == target.box.size[d];
  };
  while (inner > 0 && whole(inner)) --inner;
  const std::int64_t length = (end[inner] - at[inner]) * source_strides[inner];
  const std::vector<std::int64_t> begin = at;
  for (;;) {
    std::int64_t source_at = 0;
    std::int64_t target_at = 0;
    for (std::size_t d = 0; d < dims; ++d) {
      source_at += (at[d] - source.box.offset[d]) * source_strides[d];
      target_at += (at[d] - target.box.offset[d]) * target_strides[d];
    }
    const std::int64_t first =
        std::max({std::int64_t{0}, source.begin - source_at, target.begin - target_at});
    const std::int64_t last = std::min({length, source.end - source_at, target.end - target_at});
    if (first < last) {
      copy({source_at + first - source.begin, target_at + first - target.begin, last - first});
    }
    // The next index over the outer dimensions, last one fastest.
    std::size_t d = inner;
    while (d > 0 && ++at[d - 1] == end[d - 1]) {
      at[d - 1] = begin[d - 1];
      --d;
    }
    if (d == 0) return;
  }
}

}  // namespace pentatron::checkpoint
