// SPDX-License-Identifier: Apache-2.0
#include "pentatron/distributed/store_plan.h"

#include <utility>

namespace pentatron::distributed {
namespace {

// Elements: pieces begin at the same place inside a 256-byte line in all of their buffers.
constexpr std::int64_t kStateAlignment = 256;

// Elements of a batch that travels while another is updated.
constexpr std::int64_t kHostBatch = 4 << 20;

std::int64_t held(const FlatLayout& layout, bool cut) {
  return cut ? layout.num_elements() / layout.num_shards() : layout.num_elements();
}

}  // namespace

FlatLayoutOptions flat_layout_options(const StoreOptions& options, std::int64_t shard_ranks) {
  return {.num_shards = options.sharding == Sharding::kNothing ? 1 : shard_ranks,
          .cut = options.cut,
          .bucket_elements = options.bucket_elements,
          .num_buckets = options.num_buckets,
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

std::vector<bool> pieces_on_host(std::span<const PlannedPiece> pieces,
                                 const StoreOptions& options) {
  std::vector<bool> on_host(pieces.size(), false);
  if (!options.state_on_host) return on_host;
  std::int64_t total = 0;
  for (const PlannedPiece& piece : pieces) total += piece.segment.length;
  const double wanted = options.host_fraction * static_cast<double>(total);
  std::int64_t taken = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const bool same_weight =
        i > 0 && pieces[i].segment.parameter == pieces[i - 1].segment.parameter;
    on_host[i] = same_weight ? on_host[i - 1] : static_cast<double>(taken) < wanted;
    if (on_host[i]) taken += pieces[i].segment.length;
  }
  return on_host;
}

std::vector<std::vector<std::size_t>> host_batches(std::span<const PlannedPiece> pieces,
                                                   const StoreOptions& options) {
  const std::vector<bool> on_host = pieces_on_host(pieces, options);
  std::vector<std::vector<std::size_t>> batches;
  std::int64_t elements = 0;  // of the last batch
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (!on_host[i]) continue;
    const bool same_weight =
        i > 0 && pieces[i].segment.parameter == pieces[i - 1].segment.parameter;
    const bool full = options.overlap_host_copies && elements >= kHostBatch && !same_weight;
    if (batches.empty() || full) {
      batches.emplace_back();
      elements = 0;
    }
    batches.back().push_back(i);
    elements += pieces[i].segment.length;
  }
  return batches;
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
