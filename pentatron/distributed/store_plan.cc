// SPDX-License-Identifier: Apache-2.0
#include "pentatron/distributed/store_plan.h"

#include <utility>

namespace pentatron::distributed {
namespace {

// Elements: pieces begin at the same place inside a 256-byte line in all of their buffers.
constexpr std::int64_t kStateAlignment = 256;

std::int64_t held(const FlatLayout& layout, bool cut) {
  return cut ? layout.num_elements() / layout.num_shards() : layout.num_elements();
}

}  // namespace

FlatLayoutOptions flat_layout_options(const StoreOptions& options, std::int64_t shard_ranks) {
  return {.num_shards = options.sharding == Sharding::kNothing ? 1 : shard_ranks,
          .cut = options.cut,
          .bucket_bytes = options.bucket_bytes,
          .bucket_per_unit = options.sharding == Sharding::kParameters,
          .grid = options.grid};
}

std::int64_t held_parameters(const FlatLayout& layout, Sharding sharding) {
  return held(layout, sharding == Sharding::kParameters);
}

std::int64_t held_gradients(const FlatLayout& layout, Sharding sharding) {
  return held(layout, sharding >= Sharding::kGradients);
}

std::vector<PlannedPiece> plan_pieces(const FlatLayout& layout, Sharding sharding,
                                      std::int64_t shard) {
  std::vector<PlannedPiece> pieces;
  for (std::size_t b = 0; b < layout.buckets().size(); ++b) {
    std::pair<std::int64_t, std::int64_t> range{layout.buckets()[b].begin, layout.buckets()[b].end};
    if (sharding != Sharding::kNothing) range = layout.shard_range(b, shard);
    for (const FlatSegment& segment : segments_in(layout, range.first, range.second)) {
      pieces.push_back({b, segment});
    }
  }
  return pieces;
}

PackedRanges pack(std::span<const FlatRange> pieces) {
  PackedRanges packed;
  for (const FlatRange& piece : pieces) {
    const std::int64_t line =
        (packed.num_elements + kStateAlignment - 1) / kStateAlignment * kStateAlignment;
    packed.begins.push_back(line + piece.begin % kStateAlignment);
    packed.num_elements = packed.begins.back() + piece.length;
  }
  return packed;
}

}  // namespace pentatron::distributed
