// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "pentatron/nn/unit.h"

namespace pentatron::distributed {

// One parameter's place in a flat buffer, in elements.
struct FlatSlot {
  nn::Parameter* parameter = nullptr;
  int unit = 0;  // index in the units given
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
// A run of a flat buffer that travels in one collective.
struct FlatBucket {
  std::int64_t begin = 0;  // in elements; padded to num_shards * alignment
  std::int64_t end = 0;
  std::vector<std::size_t> slots;  // indices into slots(), ascending
  std::vector<int> units;          // whose weights_done complete it, descending
  [[nodiscard]] std::int64_t size() const { return end - begin; }
};

// How a bucket is dealt to the ranks that share it.
enum class ShardCut {
  kElements,  // equal ranges of elements: pieces may begin and end anywhere
  // Every weight that is a matrix to the optimizer (nn::is_matrix) lies on one rank,
  // whole; the others are cut by elements, in buckets of their own.
  kMatrices,
};

struct FlatLayoutOptions {
  std::int64_t num_shards = 1;  // ranks that share a bucket
  ShardCut cut = ShardCut::kElements;
  // A bucket is closed once it has this much: elements, or one of num_buckets equal shares of all
  // elements, or bytes of gradients, whichever is the first that is given.
  std::int64_t bucket_elements = 0;
  std::int64_t num_buckets = 0;
  std::int64_t bucket_bytes = 40 << 20;
  bool bucket_per_unit = false;  // a bucket never spans units
  std::int64_t alignment_bytes = 256;
  // Only the parameters of this grid ("dense", "expert"; nn::ShardPart::grid). Empty: all, which
  // must then be of one grid.
  std::string grid = {};
};

// Where the trainable parameters of one (parameter dtype, gradient dtype, reduction group) stand in
// a flat buffer: bucketed in the order of backward (last unit first), parameters at multiples of
// the alignment in parameter and gradient dtype, buckets padded so that they divide into equal
// shards. Pure: nothing is allocated or bound. Parameters of another dtype or of two grids, and
// options out of range: kInternal.
class FlatLayout final {
 public:
  // `units`: of this rank, by their index, in the order of forward.
  FlatLayout(const std::vector<nn::Unit>& units, const FlatLayoutOptions& options,
             const PrecisionPolicy& policy);

  [[nodiscard]] const std::vector<FlatSlot>& slots() const { return slots_; }
  [[nodiscard]] const std::vector<FlatBucket>& buckets() const { return buckets_; }
  // The grid's parameters that were not trainable at construction, in the order given.
  [[nodiscard]] const std::vector<nn::Parameter*>& frozen() const { return frozen_; }
  [[nodiscard]] std::int64_t num_elements() const { return num_elements_; }
  [[nodiscard]] std::int64_t num_shards() const { return options_.num_shards; }
  [[nodiscard]] int num_units() const { return num_units_; }
  // Element range of a shard of a bucket: contiguous, equal sizes. A bucket or shard that is not
  // there: kInternal.
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> shard_range(std::size_t bucket,
                                                                  std::int64_t shard) const;
  // Where a bucket's shard begins in a buffer that holds one shard of every bucket, of
  // num_elements() / num_shards() elements.
  [[nodiscard]] std::int64_t packed_begin(std::size_t bucket) const {
    return buckets_[bucket].begin / options_.num_shards;
  }
  // The bucket of a parameter; a parameter that has no place: kInternal.
  [[nodiscard]] std::size_t bucket_of(const nn::Parameter& parameter) const;

 private:
  struct Draft;  // a bucket before it is laid out
  [[nodiscard]] std::vector<Draft> draft_buckets(const std::vector<nn::Unit>& units,
                                                 const PrecisionPolicy& policy) const;
  void lay_out_by_elements(const Draft& draft, std::int64_t alignment);
  void lay_out_by_matrices(const Draft& draft, std::int64_t alignment);

  FlatLayoutOptions options_;
  std::vector<FlatSlot> slots_;
  std::vector<FlatBucket> buckets_;
  std::vector<nn::Parameter*> frozen_;
  std::int64_t num_elements_ = 0;
  int num_units_ = 0;
};

// A maximal piece of a part (see nn::ShardPart) inside a range of the flat buffer: what the
// optimizer, norms and checkpoints walk over. Padding (between parameters, padded rows) is never in
// a segment.
struct FlatSegment {
  nn::Parameter* parameter = nullptr;
  const nn::ShardPart* part = nullptr;
  std::int64_t flat_begin = 0;  // in the buffer
  std::int64_t length = 0;      // elements
  std::int64_t box_begin = 0;   // row-major element number inside the part's box
};
[[nodiscard]] std::vector<FlatSegment> segments_in(const FlatLayout& layout, std::int64_t begin,
                                                   std::int64_t end);

}  // namespace pentatron::distributed
