// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pentatron/distributed/store_options.h"

// What a parameter store holds on a rank, as pure data: the store is made from it, dry runs read
// it.
namespace pentatron::distributed {

// `shard_ranks`: over which the shards are dealt (StoreOptions::shard_over).
[[nodiscard]] FlatLayoutOptions flat_layout_options(const StoreOptions& options,
                                                    std::int64_t shard_ranks);

// Elements of parameters and of gradients that a rank holds between steps.
[[nodiscard]] std::int64_t held_parameters(const FlatLayout& layout, Sharding sharding);
[[nodiscard]] std::int64_t held_gradients(const FlatLayout& layout, Sharding sharding);

// What the rank of this place among the shards updates, in the order of the flat buffer.
struct PlannedPiece {
  std::size_t bucket = 0;
  FlatSegment segment = {};
};
[[nodiscard]] std::vector<PlannedPiece> plan_pieces(const FlatLayout& layout, Sharding sharding,
                                                    std::int64_t shard);

// Which of them have main parameters and state on the host: all pieces of the first weights, until
// options.host_fraction of the elements are reached.
[[nodiscard]] std::vector<bool> pieces_on_host(std::span<const PlannedPiece> pieces,
                                               const StoreOptions& options);
// Pieces on the host that travel together, by number: whole weights, up to a batch's size. One
// batch without options.overlap_host_copies.
[[nodiscard]] std::vector<std::vector<std::size_t>> host_batches(
    std::span<const PlannedPiece> pieces, const StoreOptions& options);

// Memory beside pieces: each view begins at the same place inside a line of 256 elements as its
// piece does in the flat buffer.
struct FlatRange {
  std::int64_t begin = 0;
  std::int64_t length = 0;
};
struct PackedRanges {
  std::vector<std::int64_t> begins = {};
  std::int64_t num_elements = 0;
};
[[nodiscard]] PackedRanges pack(std::span<const FlatRange> pieces);

}  // namespace pentatron::distributed
