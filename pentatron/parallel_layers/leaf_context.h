// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/parallel_layers/tensor_layout.h"
#include "pentatron/tensor/batch_meta.h"
#include "pentatron/tensor/precision.h"

namespace pentatron::comm {
class Group;
class ParallelContext;
}  // namespace pentatron::comm

namespace pentatron::parallel_layers {

// What leaves need to know of the layout and nobody else looks into: blocks and models hand it on.
// Copied into each leaf; the group must outlive them.
class LeafContext final {
 public:
  // `tensor_group` may be null when layout.size is 1.
  LeafContext(const TensorLayout& layout, comm::Group* tensor_group, const PrecisionPolicy& policy,
              Device device = kCpu);

  [[nodiscard]] const TensorLayout& layout() const { return layout_; }
  [[nodiscard]] const PrecisionPolicy& policy() const { return policy_; }
  [[nodiscard]] Device device() const { return device_; }
  // Internal error on a layout of one rank without a group.
  [[nodiscard]] comm::Group& tensor_group() const;

  // Token rows that stand on this rank between the leaves: all of them, or this rank's equal share
  // under sequence parallelism. Config error when they cannot be shared evenly.
  struct Rows {
    std::int64_t begin = 0;
    std::int64_t size = 0;
  };
  [[nodiscard]] Rows local_rows(std::int64_t num_tokens) const;
  // This rank's rows of a [tokens, ...] tensor of the batch (a view).
  [[nodiscard]] Tensor take_local_rows(const Tensor& t) const;

 private:
  TensorLayout layout_;
  comm::Group* tensor_group_;
  PrecisionPolicy policy_;
  Device device_;
};

// On the context's "tp" axis; with fewer kv heads than ranks its grid has the factors tp_kv and
// tp_rep (comm::make_rank_grid).
[[nodiscard]] LeafContext make_leaf_context(comm::ParallelContext& context,
                                            std::int64_t num_kv_heads, bool sequence_parallel,
                                            const PrecisionPolicy& policy, Device device = kCpu);

}  // namespace pentatron::parallel_layers
