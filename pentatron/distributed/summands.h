// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "pentatron/base/timer.h"
#include "pentatron/comm/tie_groups.h"
#include "pentatron/distributed/flat_layout.h"

namespace pentatron::distributed {

// Gradients summed over one group in one collective, in the reduction dtype.
class BatchedSum {
 public:
  void add(Tensor gradient) {
    if (gradient.numel() > 0) gradients_.push_back(std::move(gradient));
  }
  void run(comm::Group& group, DType reduction) const;

 private:
  std::vector<Tensor> gradients_;
};

// Gradients that are more than a sum over data-parallel ranks: of parts whose gradient on this rank
// is only a summand over other axes (nn::ShardPart::partial_grad_axes), and of weights that other
// stages hold too (tied). Holds views of where the gradients lie; all ranks of the groups add the
// same parts.
class Summands {
 public:
  // Makes all groups that the layout's parts need. Two tied parts of one name: kInternal.
  Summands(comm::ParallelContext& context, DType reduction, const FlatLayout& layout);

  void add(std::size_t bucket, const nn::ShardPart& part, const Tensor& gradient);
  // Final only after sum_tied.
  [[nodiscard]] bool holds_tied(std::size_t bucket) const { return tied_buckets_[bucket]; }
  void sum_partial(std::size_t bucket, Timers* timers) const;
  void sum_tied(Timers* timers) const;

 private:
  comm::ParallelContext& context_;
  DType reduction_;
  std::vector<std::map<std::vector<std::string>, BatchedSum>> partial_;  // by bucket, by axes
  std::vector<bool> tied_buckets_;
  std::map<std::string, Tensor> tied_;  // by global name
  std::optional<comm::TieGroups> ties_;
};

}  // namespace pentatron::distributed
