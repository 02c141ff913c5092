// SPDX-License-Identifier: Apache-2.0
#include "pentatron/distributed/flat_buffer.h"

#include <algorithm>
#include <numeric>

#include "pentatron/base/error.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::distributed {
namespace {

class DefaultAllocator final : public BufferAllocator {
 public:
  Tensor allocate(std::int64_t num_elements, DType dtype, Device device) override {
    return tensor::zeros({num_elements}, dtype, device);
  }
};

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Elements that begin at a multiple of alignment_bytes in the parameter buffer and in the gradient
// buffer.
std::int64_t alignment_elements(const FlatBufferOptions& options, const PrecisionPolicy& policy) {
  const std::int64_t smallest =
      std::min(tensor::item_bytes(policy.parameter), tensor::item_bytes(policy.main_grad));
  PENTATRON_CHECK(options.alignment_bytes >= smallest && options.alignment_bytes % 16 == 0,
                  kInternal, "flat buffers cannot be aligned to {} bytes", options.alignment_bytes);
  return options.alignment_bytes / smallest;
}

bool is_tied(const nn::Parameter& parameter) {
  return std::any_of(parameter.spec().parts.begin(), parameter.spec().parts.end(),
                     [](const nn::ShardPart& part) { return part.tied; });
}

const std::string& grid_of(const nn::Parameter& parameter) {
  const std::vector<nn::ShardPart>& parts = parameter.spec().parts;
  for (const nn::ShardPart& part : parts) {
    PENTATRON_CHECK(part.grid == parts[0].grid, kInternal,
                    "weight {}: parts on grid '{}' and on grid '{}' cannot share a buffer",
                    parameter.local_name(), parts[0].grid, part.grid);
  }
  return parts[0].grid;
}

// Removes the parameters of other grids, and takes the frozen ones out.
std::vector<nn::Parameter*> select(std::vector<nn::Unit>& units, std::string grid) {
  std::vector<nn::Parameter*> frozen;
  const bool all = grid.empty();
  for (nn::Unit& unit : units) {
    std::erase_if(unit.parameters, [&](nn::Parameter* parameter) {
      const std::string& its_grid = grid_of(*parameter);
      if (all && grid.empty()) grid = its_grid;
      PENTATRON_CHECK(!all || its_grid == grid, kInternal,
                      "weight {} is on grid '{}', others of its flat buffer on '{}': name one grid",
                      parameter->local_name(), its_grid, grid);
      if (its_grid != grid) return true;
      if (!parameter->trainable()) frozen.push_back(parameter);
      return !parameter->trainable();
    });
  }
  return frozen;
}

// Trainable parameters in the order in which backward finishes them.
std::vector<std::pair<int, nn::Parameter*>> in_order_of_backward(const std::vector<nn::Unit>& units,
                                                                 const PrecisionPolicy& policy) {
  std::vector<std::pair<int, nn::Parameter*>> order;
  for (int unit = static_cast<int>(units.size()); unit-- > 0;) {
    const std::vector<nn::Parameter*>& parameters =
        units[static_cast<std::size_t>(unit)].parameters;
    for (auto it = parameters.rbegin(); it != parameters.rend(); ++it) {
      PENTATRON_CHECK((*it)->data().scalar_type() == policy.parameter, kInternal,
                      "weight {} is {}, the flat buffer holds {}", (*it)->local_name(),
                      tensor::describe((*it)->data()), tensor::dtype_name(policy.parameter));
      order.emplace_back(unit, *it);
    }
  }
  return order;
}

}  // namespace

std::unique_ptr<BufferAllocator> make_default_allocator() {
  return std::make_unique<DefaultAllocator>();
}

FlatBuffer::FlatBuffer(std::vector<nn::Unit> units, const FlatBufferOptions& options,
                       BufferAllocator& allocator, const PrecisionPolicy& policy, Device device)
    : options_(options), frozen_(select(units, options.grid)) {
  PENTATRON_CHECK(options.reduction_size >= 1 && options.bucket_bytes >= 1, kInternal,
                  "flat buffers need a reduction size and bucket bytes of at least 1");
  const std::int64_t alignment = alignment_elements(options, policy);
  const std::int64_t bucket_elements =
      std::max<std::int64_t>(1, options.bucket_bytes / tensor::item_bytes(policy.main_grad));
  std::int64_t cursor = 0;
  bool open = false;
  const auto close = [&] {
    if (!open) return;
    FlatBucket& bucket = buckets_.back();
    bucket.end = bucket.begin + round_up(cursor - bucket.begin, options.reduction_size * alignment);
    cursor = bucket.end;
    open = false;
  };
  for (const auto& [unit, parameter] : in_order_of_backward(units, policy)) {
    // A tied weight is final only after the other end's share has come: a bucket of its own keeps
    // the others from waiting.
    const bool alone = is_tied(*parameter);
    if (alone) close();
    if (!open) {
      buckets_.push_back({cursor, cursor, {}, {}});
      open = true;
    }
    FlatBucket& bucket = buckets_.back();
    const std::int64_t begin = round_up(cursor, alignment);
    const std::int64_t end = begin + parameter->num_local_elements();
    bucket.slots.push_back(slots_.size());
    if (bucket.units.empty() || bucket.units.back() != unit) bucket.units.push_back(unit);
    slots_.push_back({parameter, unit, begin, end});
    cursor = end;
    if (alone || cursor - bucket.begin >= bucket_elements) close();
  }
  close();
  num_elements_ = cursor;

  grads_ = allocator.allocate(num_elements_, policy.main_grad, device);
  if (options.parameters_too) {
    params_ = allocator.allocate(num_elements_, policy.parameter, device);
  }
  const tensor::NoGrad no_grad;
  for (const FlatSlot& slot : slots_) {
    const Shape& shape = slot.parameter->spec().local_shape;
    const std::int64_t length = slot.end - slot.begin;
    slot.parameter->bind_grad(grads_.narrow(0, slot.begin, length).view(shape));
    if (params_.defined()) {
      slot.parameter->bind_data(params_.narrow(0, slot.begin, length).view(shape));
    }
  }
}

std::pair<std::int64_t, std::int64_t> FlatBuffer::shard_range(std::size_t bucket,
                                                              std::int64_t dp_rank) const {
  PENTATRON_CHECK(bucket < buckets_.size() && dp_rank >= 0 && dp_rank < options_.reduction_size,
                  kInternal, "no shard of bucket {} for data-parallel rank {} of {}", bucket,
                  dp_rank, options_.reduction_size);
  const FlatBucket& b = buckets_[bucket];
  const std::int64_t length = (b.end - b.begin) / options_.reduction_size;
  return {b.begin + dp_rank * length, b.begin + (dp_rank + 1) * length};
}

std::vector<FlatSegment> segments_in(const FlatBuffer& buffer, std::int64_t begin,
                                     std::int64_t end) {
  std::vector<FlatSegment> segments;
  const std::vector<FlatSlot>& slots = buffer.slots();
  auto slot =
      std::lower_bound(slots.begin(), slots.end(), begin,
                       [](const FlatSlot& s, std::int64_t position) { return s.end <= position; });
  for (; slot != slots.end() && slot->begin < end; ++slot) {
    const nn::ShardSpec& spec = slot->parameter->spec();
    const std::int64_t row_elements = std::accumulate(
        spec.local_shape.begin() + 1, spec.local_shape.end(), std::int64_t{1}, std::multiplies<>());
    for (const nn::ShardPart& part : spec.parts) {
      // The real rows come first in the part's local rows, and boxes have the local tensor's row
      // length: one range.
      const std::int64_t part_begin = slot->begin + part.local_row_begin * row_elements;
      const std::int64_t part_end = part_begin + part.box.num_elements();
      const std::int64_t from = std::max(begin, part_begin);
      const std::int64_t to = std::min(end, part_end);
      if (from < to) segments.push_back({&part, from, to - from, from - part_begin});
    }
  }
  return segments;
}

}  // namespace pentatron::distributed
