// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/distributed/parameter_path.h"
#include "pentatron/distributed/store_plan.h"

namespace pentatron::distributed {
namespace {

class WholeParameters final : public ParameterPath {
 public:
  explicit WholeParameters(StoreEnv& env) : env_(env), gathers_(env.layout.buckets().size()) {
    params_ = env.allocator.allocate(held_parameters(env.layout, env.options.sharding),
                                     env.policy.parameter, env.device);
    for (std::size_t b = 0; b < gathers_.size(); ++b) {
      for (const std::size_t s : env.layout.buckets()[b].slots) {
        const FlatSlot& slot = env.layout.slots()[s];
        bucket_of_[slot.parameter] = b;
        slot.parameter->bind_data(params_.narrow(0, slot.begin, slot.end - slot.begin)
                                      .view(slot.parameter->spec().local_shape));
      }
    }
  }

  void fill(const std::function<void(nn::Parameter&)>& fill) override {
    settle();
    for (const FlatSlot& slot : env_.layout.slots()) fill(*slot.parameter);
  }

  // The forward's order is the reverse of the buckets'.
  void publish() override {
    const TimedScope timed(env_.timers, "params-all-gather", 1);
    if (env_.options.sharding == Sharding::kNothing || env_.shards.size() == 1) return;
    settle();
    for (std::size_t b = gathers_.size(); b-- > 0;) {
      const FlatBucket& bucket = env_.layout.buckets()[b];
      const auto [begin, end] = env_.own_range(b);
      // A copy: not every backend allows the input to lie inside the output.
      const Tensor shard = params_.narrow(0, begin, end - begin).clone();
      const Tensor whole = params_.narrow(0, bucket.begin, bucket.size());
      env_.start(gathers_[b], "all-gather", b, whole,
                 [&] { return env_.shards.all_gather(whole, shard); });
      for (const std::size_t s : bucket.slots) env_.layout.slots()[s].parameter->await_data();
    }
    if (!env_.options.overlap_gather) settle();
  }

  void provide(nn::Parameter& parameter) override { finish(bucket_of_.at(&parameter)); }

  void settle() override {
    for (std::size_t b = gathers_.size(); b-- > 0;) finish(b);
  }

  Tensor own_range(std::size_t /*bucket*/, std::int64_t begin, std::int64_t length) const override {
    return params_.narrow(0, begin, length);
  }

 private:
  void finish(std::size_t b) {
    if (!gathers_[b].running()) return;
    gathers_[b].wait();
    for (const std::size_t s : env_.layout.buckets()[b].slots) {
      env_.layout.slots()[s].parameter->data_arrived();
    }
  }

  StoreEnv& env_;
  Tensor params_;
  std::vector<TracedWork> gathers_;  // under way, by bucket
  std::map<const nn::Parameter*, std::size_t> bucket_of_;
};

}  // namespace

std::unique_ptr<ParameterPath> make_whole_parameters(StoreEnv& env) {
  return std::make_unique<WholeParameters>(env);
}

}  // namespace pentatron::distributed
