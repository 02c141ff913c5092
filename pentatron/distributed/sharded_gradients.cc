// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "pentatron/base/error.h"
#include "pentatron/distributed/gradient_path.h"
#include "pentatron/distributed/store_plan.h"
#include "pentatron/distributed/summands.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::distributed {
namespace {

// Reductions under way at a time: the next unit's overlaps with the one before.
constexpr std::size_t kMaxInFlight = 2;

struct BucketState {
  Tensor whole;              // this rank's gradients since the last reduction; undefined: none
  std::set<int> done_units;  // of this micro-batch
  bool has_sum = false;      // the shard holds a sum of this step
  bool reduced_last = false;
};

struct InFlight {
  std::size_t bucket;
  Tensor sum;  // this rank's shard, in the reduction dtype
  TracedWork work;
};

class ShardedGradients final : public GradientPath {
 public:
  explicit ShardedGradients(StoreEnv& env)
      : env_(env),
        buckets_(env.layout.buckets().size()),
        summands_(env.context, env.policy.reduction, env.layout) {
    shards_ = env.allocator.allocate(held_gradients(env.layout, env.options.sharding),
                                     env.policy.main_grad, env.device);
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      for (const std::size_t s : env.layout.buckets()[b].slots) {
        bucket_of_[env.layout.slots()[s].parameter] = b;
      }
      const auto [begin, end] = env.own_range(b);
      for (const FlatSegment& segment : segments_in(env.layout, begin, end)) {
        summands_.add(b, *segment.part, final_range(b, segment.flat_begin, segment.length));
      }
    }
  }

  void begin_step() override {
    GradientPath::begin_step();
    // A step may be broken off and begun again.
    for (InFlight& reduction : in_flight_) reduction.work.wait();
    in_flight_.clear();
    for (std::size_t b = 0; b < buckets_.size(); ++b) release(b);
    for (BucketState& bucket : buckets_) {
      bucket.done_units.clear();
      bucket.has_sum = bucket.reduced_last = false;
    }
  }

  void unit_done(int unit) override {
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      const std::vector<int>& units = env_.layout.buckets()[b].units;
      if (std::find(units.begin(), units.end(), unit) == units.end()) continue;
      buckets_[b].done_units.insert(unit);
      if (buckets_[b].done_units.size() == units.size()) reduce(b);
    }
  }

  void finish_step() override {
    // A bucket whose last micro-batch has not been reduced, or that was written again after.
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      if (!buckets_[b].reduced_last || buckets_[b].whole.defined()) reduce(b);
    }
    while (!in_flight_.empty()) take_oldest();
    // These sums are linear, so they are made once, of what all micro-batches left in the shards.
    for (std::size_t b = 0; b < buckets_.size(); ++b) summands_.sum_partial(b, env_.timers);
    summands_.sum_tied(env_.timers);
    if (env_.replicas.size() == 1) return;
    const Tensor travelling = tensor::cast(shards_, env_.policy.reduction);
    comm::all_reduce(env_.replicas, travelling);
    if (!travelling.is_same(shards_)) shards_.copy_(travelling);
  }

  void provide(nn::Parameter& parameter) override { acquire(bucket_of_.at(&parameter)); }

  Tensor final_range(std::size_t bucket, std::int64_t begin, std::int64_t length) const override {
    return shards_.narrow(
        0, env_.layout.packed_begin(bucket) + begin - env_.own_range(bucket).first, length);
  }

 private:
  void acquire(std::size_t b) {
    const FlatBucket& bucket = env_.layout.buckets()[b];
    Tensor& whole = buckets_[b].whole;
    if (whole.defined()) return;
    whole = env_.allocator.allocate_transient(bucket.size(), env_.policy.main_grad, env_.device);
    for (const std::size_t s : bucket.slots) {
      const FlatSlot& slot = env_.layout.slots()[s];
      slot.parameter->bind_grad(whole.narrow(0, slot.begin - bucket.begin, slot.end - slot.begin)
                                    .view(slot.parameter->spec().local_shape));
    }
  }

  void release(std::size_t b) {
    if (!buckets_[b].whole.defined()) return;
    buckets_[b].whole = Tensor();
    for (const std::size_t s : env_.layout.buckets()[b].slots) {
      env_.layout.slots()[s].parameter->release_grad();
    }
  }

  void reduce(std::size_t b) {
    BucketState& state = buckets_[b];
    acquire(b);  // a rank whose backward wrote nothing brings zeros
    for (const std::size_t s : env_.layout.buckets()[b].slots) {
      env_.layout.slots()[s].parameter->finish_grad();
    }
    const Tensor input = tensor::cast(state.whole, env_.policy.reduction);
    Tensor sum =
        tensor::empty({input.numel() / env_.shards.size()}, env_.policy.reduction, env_.device);
    while (in_flight_.size() >= kMaxInFlight) take_oldest();
    InFlight& reduction = in_flight_.emplace_back(InFlight{.bucket = b, .sum = sum, .work = {}});
    env_.start(reduction.work, "reduce-scatter", b, input,
               [&] { return env_.shards.reduce_scatter(sum, input, comm::ReduceOp::kSum); });
    release(b);
    state.done_units.clear();
    const std::vector<int>& units = env_.layout.buckets()[b].units;
    state.reduced_last = std::all_of(units.begin(), units.end(),
                                     [&](int unit) { return in_last_micro_batch(unit); });
  }

  void take_oldest() {
    InFlight oldest = std::move(in_flight_.front());
    in_flight_.pop_front();
    oldest.work.wait();
    const auto [begin, end] = env_.own_range(oldest.bucket);
    Tensor shard = final_range(oldest.bucket, begin, end - begin);
    if (buckets_[oldest.bucket].has_sum) {
      shard.add_(oldest.sum);
    } else {
      shard.copy_(oldest.sum);
    }
    buckets_[oldest.bucket].has_sum = true;
  }

  StoreEnv& env_;
  Tensor shards_;
  std::vector<BucketState> buckets_;
  std::map<const nn::Parameter*, std::size_t> bucket_of_;
  Summands summands_;
  std::deque<InFlight> in_flight_;
};

}  // namespace

std::unique_ptr<GradientPath> make_sharded_gradients(StoreEnv& env) {
  return std::make_unique<ShardedGradients>(env);
}

}  // namespace pentatron::distributed
