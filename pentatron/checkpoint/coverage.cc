// SPDX-License-Identifier: Apache-2.0
#include "pentatron/checkpoint/coverage.h"

#include <fmt/ranges.h>

#include <vector>

#include "pentatron/base/error.h"

namespace pentatron::checkpoint {
namespace {

// Comparisons of boxes that one manifest may ask for: far above any real layout (10,000 tensors cut
// into 256 boxes each), low enough that a hostile one ends soon.
constexpr std::uint64_t kMaxComparisons = 1'000'000'000;

// Slices [begin, end) of one box: their ranges follow each other from 0 to the box's end.
void check_ranges(const Manifest& manifest, std::size_t begin, std::size_t end,
                  const std::string& path) {
  const ManifestSlice& first = manifest.slices[begin];
  std::int64_t next = 0;
  for (std::size_t i = begin; i < end; ++i) {
    const ManifestSlice& slice = manifest.slices[i];
    PENTATRON_CHECK(slice.range_begin <= next, kCheckpoint,
                    "{}: tensor {}: elements {} to {} of the box at {} are missing", path,
                    first.tensor, next, slice.range_begin, fmt::join(first.box.offset, "x"));
    PENTATRON_CHECK(slice.range_begin == next, kCheckpoint,
                    "{}: tensor {}: elements {} to {} of the box at {} are stored twice", path,
                    first.tensor, slice.range_begin, next, fmt::join(first.box.offset, "x"));
    next = slice.range_end;
  }
  const std::int64_t elements = first.box.num_elements();
  PENTATRON_CHECK(next == elements, kCheckpoint,
                  "{}: tensor {}: elements {} to {} of the box at {} are missing", path,
                  first.tensor, next, elements, fmt::join(first.box.offset, "x"));
}

}  // namespace

void check_coverage(const Manifest& manifest, const std::string& path) {
  std::uint64_t comparisons = 0;
  std::size_t next = 0;
  for (const ManifestTensor& tensor : manifest.tensors) {
    std::vector<nn::Box> boxes;
    while (next < manifest.slices.size() && manifest.slices[next].tensor == tensor.name) {
      const std::size_t begin = next;
      while (next < manifest.slices.size() && manifest.slices[next].tensor == tensor.name &&
             manifest.slices[next].box == manifest.slices[begin].box) {
        ++next;
      }
      check_ranges(manifest, begin, next, path);
      boxes.push_back(manifest.slices[begin].box);
    }
    comparisons += std::uint64_t{boxes.size()} * boxes.size();
    PENTATRON_CHECK(comparisons <= kMaxComparisons, kCheckpoint,
                    "{}: tensor {}: {} boxes are more than this format allows", path, tensor.name,
                    boxes.size());
    PENTATRON_CHECK(nn::tiles_exactly(tensor.logical_shape, boxes), kCheckpoint,
                    "{}: tensor {}: its {} boxes do not cover the shape {} exactly once: some "
                    "values are missing or stored twice",
                    path, tensor.name, boxes.size(), fmt::join(tensor.logical_shape, "x"));
  }
  PENTATRON_CHECK(next == manifest.slices.size(), kCheckpoint,
                  "{}: slices of a tensor that is not listed", path);
}

}  // namespace pentatron::checkpoint
