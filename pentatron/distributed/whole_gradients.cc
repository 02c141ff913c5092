// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include "pentatron/base/error.h"
#include "pentatron/distributed/gradient_path.h"
#include "pentatron/distributed/store_plan.h"
#include "pentatron/distributed/summands.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::distributed {
namespace {

struct BucketState {
  bool started = false;
  Tensor in_flight;  // what the collective writes when that is not the gradient buffer
  TracedWork work;
};

class WholeGradients final : public GradientPath {
 public:
  explicit WholeGradients(StoreEnv& env)
      : env_(env),
        sharded_(env.options.sharding != Sharding::kNothing),
        buckets_(env.layout.buckets().size()),
        summands_(env.context, env.policy.reduction, env.layout) {
    grads_ = env.allocator.allocate(held_gradients(env.layout, env.options.sharding),
                                    env.policy.main_grad, env.device);
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      for (const std::size_t s : env.layout.buckets()[b].slots) {
        const FlatSlot& slot = env.layout.slots()[s];
        nn::Parameter& parameter = *slot.parameter;
        parameter.bind_grad(
            grads_.narrow(0, slot.begin, slot.end - slot.begin).view(parameter.spec().local_shape));
        for (const nn::ShardPart& part : parameter.spec().parts) {
          summands_.add(b, part, nn::part_view(parameter.main_grad(), part));
        }
      }
    }
  }

  void begin_step() override {
    GradientPath::begin_step();
    for (const FlatSlot& slot : env_.layout.slots()) slot.parameter->begin_step();
    for (BucketState& bucket : buckets_) bucket.started = false;
    done_units_.clear();
  }

  void unit_done(int unit) override {
    if (!in_last_micro_batch(unit)) return;
    done_units_.insert(unit);
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      if (buckets_[b].started || summands_.holds_tied(b)) continue;
      const std::vector<int>& units = env_.layout.buckets()[b].units;
      if (!std::all_of(units.begin(), units.end(),
                       [&](int u) { return done_units_.contains(u); })) {
        return;
      }
      make_local_sums(b);
      start(b);
    }
  }

  // Buckets with tied weights last: they wait for the other end.
  void finish_step() override {
    const std::size_t count = buckets_.size();
    for (std::size_t b = 0; b < count; ++b) {
      if (buckets_[b].started || summands_.holds_tied(b)) continue;
      make_local_sums(b);
      start(b);
    }
    for (std::size_t b = 0; b < count; ++b) {
      if (summands_.holds_tied(b)) make_local_sums(b);
    }
    summands_.sum_tied(env_.timers);
    for (std::size_t b = 0; b < count; ++b) {
      if (summands_.holds_tied(b)) start(b);
    }
    if (sharded_ && env_.replicas.size() > 1) {
      for (std::size_t b = 0; b < count; ++b) {
        BucketState& state = buckets_[b];
        state.work.wait();
        env_.start(state.work, "all-reduce", b, state.in_flight,
                   [&] { return env_.replicas.all_reduce(state.in_flight, comm::ReduceOp::kSum); });
      }
    }
    for (std::size_t b = 0; b < count; ++b) finish(b);
  }

  void provide(nn::Parameter& parameter) override {
    PENTATRON_THROW(kInternal, "weight {}: its gradient buffer was taken away",
                    parameter.local_name());
  }

  Tensor final_range(std::size_t /*bucket*/, std::int64_t begin,
                     std::int64_t length) const override {
    return grads_.narrow(0, begin, length);
  }

 private:
  void make_local_sums(std::size_t b) {
    for (const std::size_t s : env_.layout.buckets()[b].slots) {
      env_.layout.slots()[s].parameter->finish_grad();
    }
    summands_.sum_partial(b, env_.timers);
  }

  void start(std::size_t b) {
    BucketState& state = buckets_[b];
    state.started = true;
    const FlatBucket& bucket = env_.layout.buckets()[b];
    const Tensor grads = grads_.narrow(0, bucket.begin, bucket.size());
    const bool same_dtype = grads.scalar_type() == env_.policy.reduction;
    if (sharded_) {
      // Also over one rank: the copies of a shard are summed where it lands.
      if (env_.all.size() == 1) return;
      const Tensor input = same_dtype ? grads : grads.to(env_.policy.reduction);
      state.in_flight =
          tensor::empty({input.numel() / env_.shards.size()}, env_.policy.reduction, env_.device);
      env_.start(state.work, "reduce-scatter", b, input, [&] {
        return env_.shards.reduce_scatter(state.in_flight, input, comm::ReduceOp::kSum);
      });
    } else {
      if (env_.all.size() == 1) return;
      const Tensor input = same_dtype ? grads : grads.to(env_.policy.reduction);
      if (!same_dtype) state.in_flight = input;
      env_.start(state.work, "all-reduce", b, input,
                 [&] { return env_.all.all_reduce(input, comm::ReduceOp::kSum); });
    }
  }

  void finish(std::size_t b) {
    BucketState& state = buckets_[b];
    if (!state.work.running()) return;
    state.work.wait();
    if (!state.in_flight.defined()) return;
    const FlatBucket& bucket = env_.layout.buckets()[b];
    std::pair<std::int64_t, std::int64_t> range{bucket.begin, bucket.end};
    if (sharded_) range = env_.own_range(b);
    grads_.narrow(0, range.first, range.second - range.first).copy_(state.in_flight);
    state.in_flight = Tensor();
  }

  StoreEnv& env_;
  const bool sharded_;
  Tensor grads_;
  std::vector<BucketState> buckets_;
  Summands summands_;
  std::set<int> done_units_;
};

}  // namespace

std::unique_ptr<GradientPath> make_whole_gradients(StoreEnv& env) {
  return std::make_unique<WholeGradients>(env);
}

}  // namespace pentatron::distributed
