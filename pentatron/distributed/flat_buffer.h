// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pentatron/comm/places.h"
#include "pentatron/nn/parameter.h"
#include "pentatron/nn/unit.h"

namespace pentatron::distributed {

// Where memory comes from, so that registered or symmetric memory can be put under the buffers.
class BufferAllocator {
 public:
  virtual ~BufferAllocator() = default;
  [[nodiscard]] virtual Tensor allocate(std::int64_t num_elements, DType dtype,
                                        Device device) = 0;  // 1-D, zeroed
};
[[nodiscard]] std::unique_ptr<BufferAllocator> make_default_allocator();

// One parameter's place in a buffer, in elements.
struct FlatSlot {
  nn::Parameter* parameter = nullptr;
  int unit = 0;  // index in the units given
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
struct FlatBucket {
  std::int64_t begin = 0;  // in elements; padded to reduction size * 256 bytes
  std::int64_t end = 0;
  std::vector<std::size_t> slots;  // indices into slots(), in order of backward
  std::vector<int> units;          // whose weights_done complete it
};

struct FlatBufferOptions {
  std::int64_t reduction_size = 1;  // size of the group over reduction_axes
  std::int64_t bucket_bytes = 40 << 20;
  std::int64_t alignment_bytes = 256;
  bool parameters_too = true;  // parameter storage is moved into a flat buffer of its own
  // Axes over which gradients are summed and the optimizer is sharded; reducer and optimizer read
  // them here.
  std::vector<std::string> reduction_axes = comm::replica_axes(comm::GridKind::kDense);
  // Only the parameters of this grid ("dense", "expert"; nn::ShardPart::grid). Empty: all, which
  // must then be of one grid.
  std::string grid = {};
};

// The trainable parameters of one (parameter dtype, gradient dtype, reduction group), bucketed in
// the order of backward (last unit first). Gradients (and storage) of the parameters become views
// of it: gradients in policy.main_grad, storage in policy.parameter. Frozen parameters have no
// place in it and are listed beside. Parameters of another dtype or of two grids, and options out
// of range: kInternal.
class FlatBuffer final {
 public:
  // `units`: of this rank, by their index, in the order of forward.
  FlatBuffer(std::vector<nn::Unit> units, const FlatBufferOptions& options,
             BufferAllocator& allocator, const PrecisionPolicy& policy, Device device);

  [[nodiscard]] const std::vector<FlatSlot>& slots() const { return slots_; }
  [[nodiscard]] const std::vector<FlatBucket>& buckets() const { return buckets_; }
  // The grid's parameters that were not trainable at construction, in the order given.
  [[nodiscard]] const std::vector<nn::Parameter*>& frozen() const { return frozen_; }
  [[nodiscard]] Tensor& grads() { return grads_; }        // 1-D
  [[nodiscard]] Tensor& parameters() { return params_; }  // 1-D; undefined unless parameters_too
  [[nodiscard]] std::int64_t num_elements() const { return num_elements_; }
  [[nodiscard]] std::int64_t reduction_size() const { return options_.reduction_size; }
  [[nodiscard]] const std::vector<std::string>& reduction_axes() const {
    return options_.reduction_axes;
  }
  // Element range of this data-parallel rank inside a bucket: contiguous, equal sizes. A bucket or
  // rank that is not there: kInternal.
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> shard_range(std::size_t bucket,
                                                                  std::int64_t dp_rank) const;

 private:
  FlatBufferOptions options_;
  std::vector<FlatSlot> slots_;
  std::vector<FlatBucket> buckets_;
  std::vector<nn::Parameter*> frozen_;
  std::int64_t num_elements_ = 0;
  Tensor grads_;
  Tensor params_;
};

// A maximal piece of a part (see nn::ShardPart) inside a range of the flat buffer: what the
// optimizer, norms and checkpoints walk over. Padding (between parameters, padded rows) is never in
// a segment.
struct FlatSegment {
  const nn::ShardPart* part = nullptr;
  std::int64_t flat_begin = 0;  // in the buffer
  std::int64_t length = 0;      // elements
  std::int64_t box_begin = 0;   // row-major element number inside the part's box
};
[[nodiscard]] std::vector<FlatSegment> segments_in(const FlatBuffer& buffer, std::int64_t begin,
                                                   std::int64_t end);

}  // namespace pentatron::distributed
