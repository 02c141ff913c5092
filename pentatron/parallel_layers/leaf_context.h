// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>

#include "pentatron/parallel_layers/tensor_layout.h"
#include "pentatron/tensor/batch.h"
#include "pentatron/tensor/precision.h"

namespace pentatron::comm {
class Group;
class ParallelContext;
}  // namespace pentatron::comm

namespace pentatron::parallel_layers {

// Of fp8 products: scales by the largest values of earlier steps (delayed_scales.h).
struct DelayedScaling {
  std::int64_t steps = 1;   // that are remembered
  bool largest = false;     // the largest of them counts, else the latest
  std::int64_t margin = 0;  // scales are larger by 2 to this power
};

// What leaves need to know of the layout and nobody else looks into: blocks and models hand it on.
// Copied into each leaf; the context's groups must outlive them. An axis, factor or computed part
// (comm/axis_name.h) that the grids have not: kInternal.
class LeafContext final {
 public:
  LeafContext(comm::ParallelContext& groups, TensorLayout layout, const PrecisionPolicy& policy,
              Device device = kCpu);

  [[nodiscard]] const TensorLayout& layout() const { return layout_; }
  [[nodiscard]] const PrecisionPolicy& policy() const { return policy_; }
  [[nodiscard]] Device device() const { return device_; }
  [[nodiscard]] const std::optional<DelayedScaling>& delayed_scaling() const { return delayed_; }
  // A copy for leaves that are scaled so, or, with nothing, by their own values.
  [[nodiscard]] LeafContext with(std::optional<DelayedScaling> scaling) const;
  [[nodiscard]] std::int64_t size(std::string_view axis) const;
  [[nodiscard]] std::int64_t coordinate(std::string_view axis) const;
  // This rank's peers on the axis: "tp", "cp", "ep", "tp%2", ... One that is not an axis of the
  // dense grid is first asked for in a constructor (comm::ParallelContext::group).
  [[nodiscard]] comm::Group& group(std::string_view axis) const;

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
  comm::ParallelContext* groups_;
  TensorLayout layout_;
  PrecisionPolicy policy_;
  Device device_;
  std::optional<DelayedScaling> delayed_;
};

// On the context's place; its grid has the axis "tp".
[[nodiscard]] LeafContext make_leaf_context(comm::ParallelContext& context, bool sequence_parallel,
                                            const PrecisionPolicy& policy, Device device = kCpu);

}  // namespace pentatron::parallel_layers
