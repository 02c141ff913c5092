// SPDX-License-Identifier: Apache-2.0
#include "pentatron/distributed/summands.h"

#include "pentatron/tensor/ops.h"

namespace pentatron::distributed {

void BatchedSum::run(comm::Group& group, DType reduction) const {
  if (gradients_.empty() || group.size() == 1) return;
  if (gradients_.size() == 1 && gradients_[0].is_contiguous() &&
      gradients_[0].scalar_type() == reduction) {
    comm::all_reduce(group, gradients_[0]);
    return;
  }
  std::vector<Tensor> flat;
  for (const Tensor& g : gradients_) flat.push_back(g.reshape({-1}).to(reduction));
  const Tensor joined = tensor::cat(flat, 0);
  comm::all_reduce(group, joined);
  std::int64_t begin = 0;
  for (const Tensor& g : gradients_) {
    g.copy_(joined.narrow(0, begin, g.numel()).view(g.sizes()));
    begin += g.numel();
  }
}

Summands::Summands(comm::ParallelContext& context, DType reduction, const FlatLayout& layout)
    : context_(context),
      reduction_(reduction),
      partial_(layout.buckets().size()),
      tied_buckets_(layout.buckets().size(), false) {
  std::vector<std::string> names;
  for (std::size_t b = 0; b < layout.buckets().size(); ++b) {
    for (const std::size_t s : layout.buckets()[b].slots) {
      for (const nn::ShardPart& part : layout.slots()[s].parameter->spec().parts) {
        for (const std::string& axis : part.partial_grad_axes) {
          static_cast<void>(context.group(axis));  // made here, not in the middle of backward
        }
        if (!part.tied) continue;
        tied_buckets_[b] = true;
        names.push_back(part.name);
      }
    }
  }
  ties_.emplace(context, "pp", std::move(names));
}

void Summands::add(std::size_t bucket, const nn::ShardPart& part, const Tensor& gradient) {
  if (!part.partial_grad_axes.empty()) partial_[bucket][part.partial_grad_axes].add(gradient);
  if (part.tied) tied_.emplace(part.name, gradient);
}

void Summands::sum_partial(std::size_t bucket, Timers* timers) const {
  const auto& sums = partial_[bucket];
  if (sums.empty()) return;
  // Inside backward, which pipeline stages go through at different times: only the ranks of the
  // sums meet.
  const TimedScope timed(timers, "layernorm-grads-all-reduce", 1, [&] {
    for (const auto& [axes, sum] : sums) {
      for (const std::string& axis : axes) context_.group(axis).barrier();
    }
  });
  for (const auto& [axes, sum] : sums) {
    // One axis after the other: groups of single axes exist on every rank, those of sets only where
    // somebody asked.
    for (const std::string& axis : axes) sum.run(context_.group(axis), reduction_);
  }
}

void Summands::sum_tied(Timers* timers) const {
  if (ties_->ties().empty()) return;
  const TimedScope timed(timers, "embedding-grads-all-reduce", 1, [this] {
    for (const comm::TieGroups::Tie& tie : ties_->ties()) tie.group->barrier();
  });
  for (const comm::TieGroups::Tie& tie : ties_->ties()) {
    BatchedSum sum;
    for (const std::string& name : tie.names) {
      // Shards are cut alike: if this rank's holds nothing of the part, its peers' hold nothing.
      if (const auto held = tied_.find(name); held != tied_.end()) sum.add(held->second);
    }
    sum.run(*tie.group, reduction_);
  }
}

}  // namespace pentatron::distributed
