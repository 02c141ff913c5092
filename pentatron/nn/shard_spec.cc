// SPDX-License-Identifier: Apache-2.0
#include "pentatron/nn/shard_spec.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "pentatron/base/error.h"

namespace pentatron::nn {
namespace {

// Do the half-open boxes share an element?
bool overlap(const Box& a, const Box& b) {
  for (std::size_t d = 0; d < a.offset.size(); ++d) {
    const std::int64_t begin = std::max(a.offset[d], b.offset[d]);
    const std::int64_t end = std::min(a.offset[d] + a.size[d], b.offset[d] + b.size[d]);
    if (begin >= end) return false;
  }
  return true;
}

bool inside(const Box& box, const Shape& shape) {
  if (box.offset.size() != shape.size() || box.size.size() != shape.size()) return false;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (box.offset[d] < 0 || box.size[d] < 0 || box.size[d] > shape[d] ||
        box.offset[d] > shape[d] - box.size[d]) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::int64_t Box::num_elements() const { return tensor::num_elements(size); }

bool is_matrix(const ShardSpec& spec) {
  return std::all_of(spec.parts.begin(), spec.parts.end(), [](const ShardPart& part) {
    return part.role == ShardRole::kMatrix || part.role == ShardRole::kQkv ||
           part.role == ShardRole::kPositionTable || part.role == ShardRole::kLowRankUp;
  });
}

Tensor part_view(const Tensor& local, const ShardPart& part) {
  PENTATRON_CHECK(local.dim() == static_cast<std::int64_t>(part.box.size.size()), kInternal,
                  "part {}: the local tensor {} has not the {} dimensions of its box", part.name,
                  tensor::describe(local), part.box.size.size());
  PENTATRON_CHECK(part.local_row_begin + part.box.size[0] <= local.size(0), kInternal,
                  "part {}: rows {} to {} are not in the local tensor {}", part.name,
                  part.local_row_begin, part.local_row_begin + part.box.size[0],
                  tensor::describe(local));
  return local.narrow(0, part.local_row_begin, part.box.size[0]);
}

void check_spec(const ShardSpec& spec) {
  PENTATRON_CHECK(!spec.parts.empty() && !spec.local_shape.empty(), kInternal,
                  "a shard spec needs at least one part and one dimension");
  std::int64_t next_row = 0;
  for (const ShardPart& part : spec.parts) {
    PENTATRON_CHECK(!part.name.empty(), kInternal, "a part of a shard spec has no name");
    PENTATRON_CHECK(part.logical_shape.size() == spec.local_shape.size(), kInternal,
                    "part {}: logical shape {} and local shape {} differ in dimensions", part.name,
                    part.logical_shape, spec.local_shape);
    PENTATRON_CHECK(inside(part.box, part.logical_shape), kInternal,
                    "part {}: box at {} of size {} is not inside the logical shape {}", part.name,
                    part.box.offset, part.box.size, part.logical_shape);
    PENTATRON_CHECK(
        part.local_row_begin >= next_row && part.local_rows >= 0 &&
            part.local_row_begin + part.local_rows <= spec.local_shape[0],
        kInternal,
        "part {}: local rows {} to {} overlap the part before or leave the {} local rows",
        part.name, part.local_row_begin, part.local_row_begin + part.local_rows,
        spec.local_shape[0]);
    next_row = part.local_row_begin + part.local_rows;
    PENTATRON_CHECK(part.box.size[0] <= part.local_rows, kInternal,
                    "part {}: its box has {} rows, more than its {} local rows", part.name,
                    part.box.size[0], part.local_rows);
    for (std::size_t d = 1; d < spec.local_shape.size(); ++d) {
      PENTATRON_CHECK(part.box.size[d] == spec.local_shape[d], kInternal,
                      "part {}: box size {} and local shape {} differ in dimension {}", part.name,
                      part.box.size, spec.local_shape, d);
    }
    PENTATRON_CHECK(part.replica >= 0, kInternal, "part {}: replica {} is negative", part.name,
                    part.replica);
  }
}

bool tiles_exactly(const Shape& logical_shape, const std::vector<Box>& boxes) {
  std::int64_t covered = 0;
  std::vector<const Box*> filled;
  for (const Box& box : boxes) {
    if (!inside(box, logical_shape)) return false;
    if (box.empty()) continue;
    covered += box.num_elements();
    filled.push_back(&box);
  }
  // Sorted along dim 0, only boxes whose row ranges meet need a look at each other.
  std::sort(filled.begin(), filled.end(),
            [](const Box* a, const Box* b) { return a->offset < b->offset; });
  for (std::size_t i = 0; i < filled.size(); ++i) {
    for (std::size_t j = i + 1; j < filled.size(); ++j) {
      if (!logical_shape.empty() &&
          filled[j]->offset[0] >= filled[i]->offset[0] + filled[i]->size[0]) {
        break;
      }
      if (overlap(*filled[i], *filled[j])) return false;
    }
  }
  return covered == tensor::num_elements(logical_shape);
}

}  // namespace pentatron::nn
