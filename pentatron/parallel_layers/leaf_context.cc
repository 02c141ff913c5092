// SPDX-License-Identifier: Apache-2.0
#include "pentatron/parallel_layers/leaf_context.h"

#include "pentatron/base/error.h"
#include "pentatron/comm/group.h"
#include "pentatron/comm/parallel_context.h"

namespace pentatron::parallel_layers {

LeafContext::LeafContext(const TensorLayout& layout, comm::Group* tensor_group,
                         const PrecisionPolicy& policy, Device device)
    : layout_(layout), tensor_group_(tensor_group), policy_(policy), device_(device) {
  const std::int64_t group_size = tensor_group == nullptr ? 1 : tensor_group->size();
  PENTATRON_CHECK(layout.size == group_size, kInternal,
                  "a layout over {} tensor-parallel ranks was given a group of {}", layout.size,
                  group_size);
}

comm::Group& LeafContext::tensor_group() const {
  PENTATRON_CHECK(tensor_group_ != nullptr, kInternal, "a layout of one rank has no tensor group");
  return *tensor_group_;
}

LeafContext::Rows LeafContext::local_rows(std::int64_t num_tokens) const {
  if (!layout_.sequence_parallel) return {0, num_tokens};
  PENTATRON_CHECK(num_tokens % layout_.size == 0, kConfig,
                  "--sequence-parallel cannot share {} tokens of a micro-batch evenly over "
                  "--tensor-model-parallel-size {}; change --seq-length or --micro-batch-size, or "
                  "leave out --sequence-parallel",
                  num_tokens, layout_.size);
  const std::int64_t rows = num_tokens / layout_.size;
  return {layout_.rank * rows, rows};
}

Tensor LeafContext::take_local_rows(const Tensor& t) const {
  const Rows rows = local_rows(t.size(0));
  return t.narrow(0, rows.begin, rows.size);
}

LeafContext make_leaf_context(comm::ParallelContext& context, std::int64_t num_kv_heads,
                              bool sequence_parallel, const PrecisionPolicy& policy,
                              Device device) {
  const TensorLayout layout = make_tensor_layout(context.size("tp"), context.coordinate("tp"),
                                                 num_kv_heads, sequence_parallel);
  if (layout.rep_size > 1) {
    PENTATRON_CHECK(context.grid().has("tp_kv") && context.grid().has("tp_rep") &&
                        context.coordinate("tp_kv") == layout.kv_rank() &&
                        context.coordinate("tp_rep") == layout.rep_rank(),
                    kInternal,
                    "{} kv heads on {} tensor-parallel ranks need a grid whose tp axis is factored "
                    "into tp_kv x tp_rep (make_rank_grid)",
                    num_kv_heads, layout.size);
  }
  return {layout, layout.size == 1 ? nullptr : &context.group("tp"), policy, device};
}

}  // namespace pentatron::parallel_layers
