// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/ops/scope.h"
#include "pentatron/tensor/weight_ref.h"

namespace pentatron::comm {
class Group;
}  // namespace pentatron::comm

namespace pentatron::parallel_layers {

struct SplitNormOptions {
  std::int64_t channels = 0;  // of all ranks of the group
  double epsilon = 1e-5;
  DType statistics;           // dtype of the arithmetic
  bool zero_centred = false;  // the weight is used as 1 + weight
};

// RMSNorm over channels that the ranks of `group` hold in slices, each channel on one of them: y =
// x / sqrt(mean(x^2) + eps) * weight with the mean over all channels; x and y [t, local channels],
// weight [local channels]. One sum of [t] numbers over the ranks forward and one backward; all
// ranks run both, and a backward without a gradient is kInternal. The group and the weight outlive
// the graph.
[[nodiscard]] Tensor split_rms_norm(comm::Group& group, const Tensor& x_tc, WeightRef& weight_c,
                                    const SplitNormOptions& options, const ops::Scope& scope);

}  // namespace pentatron::parallel_layers
