// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/distributed/parameter_path.h"
#include "pentatron/distributed/store_plan.h"

namespace pentatron::distributed {
namespace {

enum Direction { kForward, kBackward };
constexpr int kNoUnit = -1;
constexpr int kNoEnd = std::numeric_limits<int>::max();

struct BucketState {
  Tensor whole;     // undefined: freed
  TracedWork work;  // gathers it
};

class ShardedParameters final : public ParameterPath {
 public:
  explicit ShardedParameters(StoreEnv& env)
      : env_(env),
        buckets_(env.layout.buckets().size()),
        buckets_of_unit_(static_cast<std::size_t>(env.layout.num_units())) {
    shards_ = env.allocator.allocate(held_parameters(env.layout, env.options.sharding),
                                     env.policy.parameter, env.device);
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      for (const std::size_t s : env.layout.buckets()[b].slots) {
        bucket_of_[env.layout.slots()[s].parameter] = b;
      }
      for (const int unit : env.layout.buckets()[b].units) {
        buckets_of_unit_[static_cast<std::size_t>(unit)].push_back(b);
      }
    }
    for (auto& used : used_) used.resize(buckets_of_unit_.size(), false);
    fill([](nn::Parameter&) {});  // values from before
  }

  void fill(const std::function<void(nn::Parameter&)>& fill) override {
    settle();
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      const FlatBucket& bucket = env_.layout.buckets()[b];
      buckets_[b].whole =
          env_.allocator.allocate_transient(bucket.size(), env_.policy.parameter, env_.device);
      const auto [begin, end] = env_.own_range(b);
      Tensor own = buckets_[b].whole.narrow(0, begin - bucket.begin, end - begin);
      buckets_[b].whole.zero_();
      own.copy_(own_range(b, begin, end - begin));
      bind(b);
      for (const std::size_t s : bucket.slots) fill(*env_.layout.slots()[s].parameter);
      own_range(b, begin, end - begin).copy_(own);
      release(b);
    }
  }

  // The gathered copies are stale now.
  void publish() override { settle(); }

  void provide(nn::Parameter& parameter) override {
    const std::size_t b = bucket_of_.at(&parameter);
    const int own_unit = env_.layout.buckets()[b].units[0];
    if (own_unit == unit_) {
      used_[direction_][static_cast<std::size_t>(unit_)] = true;
    } else {
      borrowed_.insert(b);
    }
    start(b);
    buckets_[b].work.wait();
    bind(b);
  }

  void settle() override {
    for (std::size_t b = 0; b < buckets_.size(); ++b) release(b);
    borrowed_.clear();
    unit_ = kNoUnit;
    in_backward_ = kNoUnit;
    rerun_end_ = kNoEnd;
  }

  Tensor own_range(std::size_t bucket, std::int64_t begin, std::int64_t length) const override {
    return shards_.narrow(
        0, env_.layout.packed_begin(bucket) + begin - env_.own_range(bucket).first, length);
  }

  void on_forward_begin(int unit) override {
    if (unit >= rerun_end_) rerun_end_ = kNoEnd;
    enter(unit, in_backward_ == unit ? kBackward : kForward);
  }
  // A unit that is run again inside its backward still needs its weights.
  void on_forward_end(int unit) override {
    if (in_backward_ != unit) leave(unit);
  }
  void on_backward_begin(int unit) override {
    in_backward_ = unit;
    enter(unit, kBackward);
  }
  void on_backward_end(int unit) override {
    in_backward_ = kNoUnit;
    leave(unit);
    rerun_end_ = unit;
  }

 private:
  void enter(int unit, Direction direction) {
    unit_ = unit;
    direction_ = direction;
    ask_ahead(unit, direction);
    const int next = direction == kForward ? unit + 1 : unit - 1;
    if (next < rerun_end_) ask_ahead(next, direction);
  }

  // Starts the gather of a unit that used its weights the last time it went this way (an
  // embedding's backward does not).
  void ask_ahead(int unit, Direction direction) {
    if (unit < 0 || unit >= env_.layout.num_units()) return;
    if (!used_[direction][static_cast<std::size_t>(unit)]) return;
    for (const std::size_t b : buckets_of_unit_[static_cast<std::size_t>(unit)]) start(b);
  }

  void leave(int unit) {
    for (const std::size_t b : buckets_of_unit_[static_cast<std::size_t>(unit)]) release(b);
    for (const std::size_t b : borrowed_) release(b);
    borrowed_.clear();
    unit_ = kNoUnit;
  }

  void start(std::size_t b) {
    BucketState& state = buckets_[b];
    if (state.whole.defined()) return;
    const FlatBucket& bucket = env_.layout.buckets()[b];
    const auto [begin, end] = env_.own_range(b);
    state.whole =
        env_.allocator.allocate_transient(bucket.size(), env_.policy.parameter, env_.device);
    const Tensor own = own_range(b, begin, end - begin);
    env_.start(state.work, "all-gather", b, state.whole,
               [&] { return env_.shards.all_gather(state.whole, own); });
  }

  void bind(std::size_t b) {
    const FlatBucket& bucket = env_.layout.buckets()[b];
    for (const std::size_t s : bucket.slots) {
      const FlatSlot& slot = env_.layout.slots()[s];
      slot.parameter->bind_data(
          buckets_[b]
              .whole.narrow(0, slot.begin - bucket.begin, slot.end - slot.begin)
              .view(slot.parameter->spec().local_shape));
    }
  }

  void release(std::size_t b) {
    BucketState& state = buckets_[b];
    if (!state.whole.defined()) return;
    state.work.wait();
    state.whole = Tensor();
    for (const std::size_t s : env_.layout.buckets()[b].slots) {
      env_.layout.slots()[s].parameter->release_data();
    }
  }

  StoreEnv& env_;
  Tensor shards_;
  std::vector<BucketState> buckets_;
  std::vector<std::vector<std::size_t>> buckets_of_unit_;
  std::map<const nn::Parameter*, std::size_t> bucket_of_;
  std::set<std::size_t> borrowed_;         // used outside their unit
  std::array<std::vector<bool>, 2> used_;  // by direction, by unit
  int unit_ = kNoUnit;                     // that runs
  Direction direction_ = kForward;
  int in_backward_ = kNoUnit;
  // Forwards of units below this one make activations of a backward again: the units from here on
  // have had theirs.
  int rerun_end_ = kNoEnd;
};

}  // namespace

std::unique_ptr<ParameterPath> make_sharded_parameters(StoreEnv& env) {
  return std::make_unique<ShardedParameters>(env);
}

}  // namespace pentatron::distributed
