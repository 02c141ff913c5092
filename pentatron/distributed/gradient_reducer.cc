// SPDX-License-Identifier: Apache-2.0
#include "pentatron/distributed/gradient_reducer.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "pentatron/base/error.h"
#include "pentatron/base/fault.h"
#include "pentatron/comm/tie_groups.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::distributed {
namespace {

// Small gradients summed over one group in one collective, in the reduction dtype.
class BatchedSum {
 public:
  void add(Tensor gradient) {
    if (gradient.numel() > 0) gradients_.push_back(std::move(gradient));
  }

  void run(comm::Group& group, DType reduction) {
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
    for (Tensor& g : gradients_) {
      g.copy_(joined.narrow(0, begin, g.numel()).view(g.sizes()));
      begin += g.numel();
    }
  }

 private:
  std::vector<Tensor> gradients_;
};

struct BucketState {
  // Parts whose gradient on this rank is a summand, by the axes over which it is one.
  std::map<std::vector<std::string>, BatchedSum> partial;
  bool deferred = false;  // holds a tied weight: final sums wait for its other holders
  bool started = false;
  Tensor in_flight;  // what the collective writes when that is not the gradient buffer
  comm::WorkPtr work;
};

// Test-only switches, read once.
struct Faults {
  bool skip_partial = planted_fault("skip_partial_grad_reduce");
  bool skip_tied = planted_fault("skip_tied_reduce");
  bool skip_dp = planted_fault("skip_dp_reduce");
  bool wrong_divisor = planted_fault("wrong_dp_divisor");
};

}  // namespace

struct GradientReducer::State {
  FlatBuffer& buffer;
  comm::ParallelContext& context;
  bool sharded;
  PrecisionPolicy policy;
  comm::Group& dp;
  Faults faults{};
  std::vector<BucketState> buckets{};
  std::map<std::string, Tensor> tied{};  // by global name
  std::optional<comm::TieGroups> ties{};
  Timers* timers = nullptr;
  WeightGradQueue* queue = nullptr;
  std::shared_ptr<const WeightGradQueue::Listener> listening{};
  std::set<int> in_last_micro_batch{};  // units
  std::set<int> done_units{};

  // Views of gradients that need more than the data-parallel sum.
  void find_special_parts() {
    buckets.resize(buffer.buckets().size());
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      for (const std::size_t s : buffer.buckets()[b].slots) {
        nn::Parameter& parameter = *buffer.slots()[s].parameter;
        for (const nn::ShardPart& part : parameter.spec().parts) {
          const Tensor view = nn::part_view(parameter.main_grad(), part);
          if (!part.partial_grad_axes.empty()) {
            buckets[b].partial[part.partial_grad_axes].add(view);
            for (const std::string& axis : part.partial_grad_axes) {
              static_cast<void>(context.group(axis));  // made here, not in the middle of backward
            }
          }
          if (!part.tied) continue;
          buckets[b].deferred = true;
          const bool fresh = tied.emplace(part.name, view).second;
          PENTATRON_CHECK(fresh, kInternal, "two tied parts of this stage are named {}", part.name);
        }
      }
    }
    std::vector<std::string> names;
    for (const auto& [name, view] : tied) names.push_back(name);
    ties.emplace(context, "pp", std::move(names));
  }

  [[nodiscard]] bool postponed(int unit) const {
    return queue != nullptr && queue->pending_of(unit) > 0;
  }

  // Every rank of a group starts the same buckets in the same order: by index, those with tied
  // weights last.
  void start_ready() {
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      if (buckets[b].started || buckets[b].deferred) continue;
      const std::vector<int>& units = buffer.buckets()[b].units;
      const bool ready = std::all_of(units.begin(), units.end(),
                                     [&](int unit) { return done_units.count(unit) > 0; });
      if (!ready) return;
      make_local_sums(b);
      start(b);
    }
  }

  void make_local_sums(std::size_t b) {
    for (const std::size_t s : buffer.buckets()[b].slots) {
      buffer.slots()[s].parameter->finish_grad();
    }
    if (faults.skip_partial || buckets[b].partial.empty()) return;
    // Inside backward, which pipeline stages go through at different times: only the ranks of the
    // sums meet.
    const TimedScope timed(timers, "layernorm-grads-all-reduce", 1, [&] {
      for (const auto& [axes, sum] : buckets[b].partial) {
        for (const std::string& axis : axes) context.group(axis).barrier();
      }
    });
    for (auto& [axes, sum] : buckets[b].partial) {
      // One axis after the other: groups of single axes exist on every rank, those of sets only
      // where somebody asked.
      for (const std::string& axis : axes) sum.run(context.group(axis), policy.reduction);
    }
  }

  void sum_tied() {
    if (ties->ties().empty() || faults.skip_tied) return;
    const TimedScope timed(timers, "embedding-grads-all-reduce", 1, [this] {
      for (const comm::TieGroups::Tie& tie : ties->ties()) tie.group->barrier();
    });
    for (const comm::TieGroups::Tie& tie : ties->ties()) {
      BatchedSum sum;
      for (const std::string& name : tie.names) sum.add(tied.at(name));
      sum.run(*tie.group, policy.reduction);
    }
  }

  void start(std::size_t b) {
    BucketState& state = buckets[b];
    state.started = true;
    if (dp.size() == 1 || faults.skip_dp) return;
    const FlatBucket& bucket = buffer.buckets()[b];
    const Tensor grads = buffer.grads().narrow(0, bucket.begin, bucket.end - bucket.begin);
    const bool same_dtype = grads.scalar_type() == policy.reduction;
    const Tensor input = same_dtype ? grads : grads.to(policy.reduction);
    if (sharded) {
      state.in_flight =
          tensor::empty({input.numel() / dp.size()}, policy.reduction, input.device());
      state.work = dp.reduce_scatter(state.in_flight, input, comm::ReduceOp::kSum);
    } else {
      if (!same_dtype) state.in_flight = input;
      state.work = dp.all_reduce(input, comm::ReduceOp::kSum);
    }
  }

  void finish(std::size_t b) {
    BucketState& state = buckets[b];
    if (state.work == nullptr) return;
    state.work->wait();
    state.work.reset();
    const FlatBucket& bucket = buffer.buckets()[b];
    std::pair<std::int64_t, std::int64_t> range{bucket.begin, bucket.end};
    if (sharded) range = buffer.shard_range(b, dp.rank());
    Tensor target = buffer.grads().narrow(0, range.first, range.second - range.first);
    if (state.in_flight.defined()) target.copy_(state.in_flight);
    state.in_flight = Tensor();
    if (faults.wrong_divisor) target.div_(static_cast<double>(dp.size()));
  }
};

GradientReducer::GradientReducer(FlatBuffer& buffer, comm::ParallelContext& context, bool sharded,
                                 const PrecisionPolicy& policy)
    : state_(new State{.buffer = buffer,
                       .context = context,
                       .sharded = sharded,
                       .policy = policy,
                       .dp = context.group(buffer.reduction_axes())}) {
  PENTATRON_CHECK(!sharded || buffer.reduction_size() == state_->dp.size(), kInternal,
                  "the flat buffer is cut for {} ranks, the group over its reduction axes has {}",
                  buffer.reduction_size(), state_->dp.size());
  state_->find_special_parts();
}

GradientReducer::~GradientReducer() = default;

void GradientReducer::listen_to(WeightGradQueue& queue) {
  state_->queue = &queue;
  state_->listening = queue.on_unit_done([this](int unit) { weights_done(unit); });
}

void GradientReducer::set_timers(Timers* timers) { state_->timers = timers; }

void GradientReducer::begin_step() {
  for (const FlatSlot& slot : state_->buffer.slots()) slot.parameter->begin_step();
  for (BucketState& bucket : state_->buckets) bucket.started = false;
  state_->done_units.clear();
  state_->in_last_micro_batch.clear();
}

void GradientReducer::begin_last_micro_batch(int first_unit, int end_unit) {
  for (int unit = first_unit; unit < end_unit; ++unit) state_->in_last_micro_batch.insert(unit);
}

void GradientReducer::on_backward_end(int unit) {
  if (!state_->postponed(unit)) weights_done(unit);
}

void GradientReducer::weights_done(int unit) {
  if (state_->in_last_micro_batch.count(unit) == 0) return;
  const tensor::NoGrad no_grad;
  state_->done_units.insert(unit);
  state_->start_ready();
}

void GradientReducer::finish_step() {
  const tensor::NoGrad no_grad;
  State& state = *state_;
  const TimedScope timed(state.timers, "all-grads-sync", 1);
  const std::size_t count = state.buckets.size();
  for (std::size_t b = 0; b < count; ++b) {
    if (state.buckets[b].started || state.buckets[b].deferred) continue;
    state.make_local_sums(b);
    state.start(b);
  }
  for (std::size_t b = 0; b < count; ++b) {
    if (state.buckets[b].deferred) state.make_local_sums(b);
  }
  state.sum_tied();
  for (std::size_t b = 0; b < count; ++b) {
    if (state.buckets[b].deferred) state.start(b);
  }
  for (std::size_t b = 0; b < count; ++b) state.finish(b);
}

}  // namespace pentatron::distributed
