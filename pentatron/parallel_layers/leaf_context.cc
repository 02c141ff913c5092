// SPDX-License-Identifier: Apache-2.0
#include "pentatron/parallel_layers/leaf_context.h"

#include <utility>

#include "pentatron/base/error.h"
#include "pentatron/comm/group.h"
#include "pentatron/comm/parallel_context.h"

namespace pentatron::parallel_layers {

LeafContext::LeafContext(comm::ParallelContext& groups, TensorLayout layout,
                         const PrecisionPolicy& policy, Device device)
    : groups_(&groups), layout_(std::move(layout)), policy_(policy), device_(device) {}

LeafContext LeafContext::with(std::optional<DelayedScaling> scaling) const {
  LeafContext copy = *this;
  copy.delayed_ = scaling;
  return copy;
}

std::int64_t LeafContext::size(std::string_view axis) const { return layout_.place.size(axis); }

std::int64_t LeafContext::coordinate(std::string_view axis) const {
  return layout_.place.coordinate(axis);
}

comm::Group& LeafContext::group(std::string_view axis) const { return groups_->group(axis); }

LeafContext::Rows LeafContext::local_rows(std::int64_t num_tokens) const {
  if (!layout_.sequence_parallel) return {0, num_tokens};
  PENTATRON_CHECK(num_tokens % size("tp") == 0, kConfig,
                  "--sequence-parallel cannot share {} tokens of a micro-batch evenly over "
                  "--tensor-model-parallel-size {}; change --seq-length or --micro-batch-size, or "
                  "leave out --sequence-parallel",
                  num_tokens, size("tp"));
  const std::int64_t rows = num_tokens / size("tp");
  return {coordinate("tp") * rows, rows};
}

Tensor LeafContext::take_local_rows(const Tensor& t) const {
  const Rows rows = local_rows(t.size(0));
  return t.narrow(0, rows.begin, rows.size);
}

LeafContext make_leaf_context(comm::ParallelContext& context, bool sequence_parallel,
                              const PrecisionPolicy& policy, Device device) {
  return {context, make_tensor_layout(context.place(), sequence_parallel), policy, device};
}

}  // namespace pentatron::parallel_layers
