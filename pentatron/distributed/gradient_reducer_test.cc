// SPDX-License-Identifier: Apache-2.0
#include "pentatron/distributed/gradient_reducer.h"

#include <gtest/gtest.h>

#include <mutex>

#include "pentatron/base/error.h"
#include "pentatron/base/fault.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::distributed {
namespace {

constexpr int kNumLayers = 2;

comm::RankGrid make_grid(std::int64_t tp, std::int64_t dp, std::int64_t pp) {
  return comm::RankGrid(
      {{"tp", tp, {}}, {"cp", 1, {}}, {"ep", 1, {}}, {"dp", dp, {}}, {"pp", pp, {}}});
}

nn::ShardSpec make_spec(const std::string& name, Shape shape, std::int64_t padding_rows = 0) {
  nn::ShardPart part;
  part.name = name;
  part.logical_shape = shape;
  part.box = {Shape(shape.size(), 0), shape};
  part.local_rows = shape[0] + padding_rows;
  Shape local = shape;
  local[0] += padding_rows;
  return {{part}, local};
}

// An embedding (tied when the pipeline has two ends), per layer a weight and a norm that is a
// summand over tp, and a head. On two stages, each holds one layer.
struct Stage {
  Stage(comm::ParallelContext& context, const PrecisionPolicy& policy) {
    const std::int64_t pp = context.size("pp");
    const std::int64_t stage = context.coordinate("pp");
    const auto first_layer = static_cast<int>(stage * kNumLayers / pp);
    const auto end_layer = static_cast<int>((stage + 1) * kNumLayers / pp);
    if (context.is_first_stage()) {
      units.push_back({"embedding", {}});
      add(embedding_spec(context), policy);
    }
    for (int layer = first_layer; layer < end_layer; ++layer) {
      const std::string name = "layers." + std::to_string(layer);
      units.push_back({name, {}});
      add(make_spec(name + ".weight", {5, 3}), policy);
      nn::ShardSpec norm = make_spec(name + ".norm", {4});
      norm.parts[0].partial_grad_axes = {"tp"};
      add(norm, policy);
    }
    if (context.is_last_stage()) {
      units.push_back({"head", {}});
      if (pp > 1) add(embedding_spec(context), policy);
      add(make_spec("head.norm", {7}), policy);
    }
  }

  static nn::ShardSpec embedding_spec(comm::ParallelContext& context) {
    nn::ShardSpec spec = make_spec("embedding", {6, 3}, 2);
    spec.parts[0].tied = context.size("pp") > 1;
    return spec;
  }

  // To the last unit.
  void add(nn::ShardSpec spec, const PrecisionPolicy& policy) {
    const std::string name = spec.parts[0].name;
    parameters.push_back(std::make_unique<nn::Parameter>(name, std::move(spec), policy));
    units.back().parameters.push_back(parameters.back().get());
  }

  std::vector<std::unique_ptr<nn::Parameter>> parameters;
  std::vector<nn::Unit> units;
};

// What one rank's backward brings to a parameter: whole numbers, exact in every dtype used here.
Tensor local_gradient(const nn::Parameter& parameter, std::int64_t rank, DType dtype) {
  Tensor g = tensor::zeros(parameter.spec().local_shape, DType::Double);
  const Tensor real = nn::part_view(g, parameter.spec().parts[0]);
  real.copy_(tensor::arange(real.numel(), DType::Double)
                 .remainder(5)
                 .add(rank * 3 + 1)
                 .view(real.sizes()));
  return g.to(dtype);
}

struct Layout {
  std::int64_t tp = 1;
  std::int64_t dp = 1;
  std::int64_t pp = 1;
  bool sharded = false;
};

// The sum that a parameter's gradient must be on a rank, from the plain definition.
Tensor expected_gradient(comm::ParallelContext& context, const nn::Parameter& parameter) {
  const nn::ShardPart& part = parameter.spec().parts[0];
  std::vector<std::string> axes = {"dp"};
  if (!part.partial_grad_axes.empty()) axes.push_back("tp");
  std::vector<std::int64_t> ranks = context.grid().group_of(context.rank(), axes);
  if (part.tied) {
    for (const std::int64_t rank : std::vector<std::int64_t>(ranks)) {
      ranks.push_back(context.grid().with_coordinate(rank, "pp", 1 - context.coordinate("pp")));
    }
  }
  Tensor sum = local_gradient(parameter, ranks[0], DType::Double);
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    sum.add_(local_gradient(parameter, ranks[i], DType::Double));
  }
  return sum;
}

// Largest deviation from the plain sums over all ranks (sharded: inside each rank's shards) of the
// second of two steps.
double worst_deviation(const Layout& layout, const PrecisionPolicy& policy, bool with_events) {
  double worst = 0;
  std::mutex mutex;
  comm::run_threads(
      {.world_size = layout.tp * layout.dp * layout.pp,
       .timeout = std::chrono::milliseconds(20'000)},
      [&](comm::Backend& backend) {
        comm::ParallelContext context(backend, make_grid(layout.tp, layout.dp, layout.pp));
        Stage stage(context, policy);
        const auto allocator = make_default_allocator();
        FlatBuffer buffer(stage.units, {.reduction_size = layout.dp, .bucket_bytes = 100},
                          *allocator, policy, Device("cpu"));
        GradientReducer reducer(buffer, context, layout.sharded, policy);
        for (int step = 0; step < 2; ++step) {
          reducer.begin_step();
          for (const auto& parameter : stage.parameters) {
            // The head's norm gets nothing in the second step: it must become zero, not keep the
            // old sum.
            if (step == 1 && parameter->local_name() == "head.norm") continue;
            write_grad(*parameter, local_gradient(*parameter, backend.rank(), policy.main_grad));
          }
          if (with_events) {
            reducer.begin_last_micro_batch(0, static_cast<int>(stage.units.size()));
            for (int unit = static_cast<int>(stage.units.size()); unit-- > 0;) {
              reducer.on_backward_end(unit);
            }
          }
          reducer.finish_step();
        }
        double deviation = 0;
        Tensor expected = tensor::zeros({buffer.num_elements()}, DType::Double);
        for (const FlatSlot& slot : buffer.slots()) {
          if (slot.parameter->local_name() == "head.norm") continue;
          expected.narrow(0, slot.begin, slot.end - slot.begin)
              .copy_(expected_gradient(context, *slot.parameter).reshape({-1}));
        }
        for (std::size_t b = 0; b < buffer.buckets().size(); ++b) {
          std::pair<std::int64_t, std::int64_t> range{buffer.buckets()[b].begin,
                                                      buffer.buckets()[b].end};
          if (layout.sharded) range = buffer.shard_range(b, context.group("dp").rank());
          const Tensor difference =
              buffer.grads()
                  .narrow(0, range.first, range.second - range.first)
                  .to(DType::Double)
                  .sub(expected.narrow(0, range.first, range.second - range.first));
          deviation = std::max(deviation, difference.abs().max().item<double>());
        }
        const std::lock_guard lock(mutex);
        worst = std::max(worst, deviation);
      });
  return worst;
}

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> kAll = {{},
                                           {.dp = 2},
                                           {.dp = 2, .sharded = true},
                                           {.tp = 2},
                                           {.pp = 2},
                                           {.dp = 2, .pp = 2},
                                           {.tp = 2, .dp = 2, .sharded = true},
                                           {.tp = 2, .dp = 2, .pp = 2, .sharded = true}};
  return kAll;
}

TEST(GradientReducer, SumsOverEveryLayout) {
  for (const Layout& layout : layouts()) {
    for (const bool with_events : {false, true}) {
      SCOPED_TRACE(testing::Message()
                   << "tp " << layout.tp << " dp " << layout.dp << " pp " << layout.pp
                   << " sharded " << layout.sharded << " events " << with_events);
      EXPECT_EQ(worst_deviation(layout, precision_policy("fp64"), with_events), 0.0);
      EXPECT_EQ(worst_deviation(layout, precision_policy("bf16"), with_events), 0.0);
    }
  }
}

// Gradients travel in the reduction dtype: 257 is no bf16 number.
TEST(GradientReducer, ReducesInTheReductionDtype) {
  for (const bool sharded : {false, true}) {
    comm::run_threads({.world_size = 2}, [&](comm::Backend& backend) {
      comm::ParallelContext context(backend, make_grid(1, 2, 1));
      PrecisionPolicy policy = precision_policy("fp32");
      policy.reduction = DType::BFloat16;
      nn::Parameter weight("w", make_spec("w", {128}), policy);
      const auto allocator = make_default_allocator();
      FlatBuffer buffer({{"w", {&weight}}}, {.reduction_size = 2}, *allocator, policy,
                        Device("cpu"));
      GradientReducer reducer(buffer, context, sharded, policy);
      reducer.begin_step();
      write_grad(weight, tensor::full({128}, backend.rank() == 0 ? 257.0 : 1.0, DType::Float));
      reducer.finish_step();
      // Shards are half the bucket, and the bucket is no longer than its 128 elements.
      const std::int64_t begin = sharded ? backend.rank() * 64 : 0;
      const Tensor mine = weight.main_grad().narrow(0, begin, sharded ? 64 : 128);
      EXPECT_EQ(mine.min().item<double>(), 256.0);  // round(256 + 1) to 8 bits
      EXPECT_EQ(mine.max().item<double>(), 256.0);
    });
  }
}

// A weight that three of four stages hold, and a copy that a stage holds alone under another name.
TEST(GradientReducer, TiedWeightsAreSummedOverTheirHolders) {
  comm::run_threads({.world_size = 8}, [&](comm::Backend& backend) {
    comm::ParallelContext context(backend, make_grid(1, 2, 4));
    const PrecisionPolicy policy = precision_policy("fp64");
    const std::int64_t stage = context.coordinate("pp");
    nn::ShardSpec spec = make_spec(stage == 1 ? "other" : "shared", {4});
    spec.parts[0].tied = true;
    nn::Parameter weight("w", std::move(spec), policy);
    const auto allocator = make_default_allocator();
    FlatBuffer buffer({{"w", {&weight}}}, {.reduction_size = 2}, *allocator, policy, Device("cpu"));
    GradientReducer reducer(buffer, context, /*sharded=*/false, policy);
    reducer.begin_step();
    write_grad(weight, tensor::full({4}, static_cast<double>(1 << stage), DType::Double));
    reducer.finish_step();
    const double sum = stage == 1 ? 2 : 1 + 4 + 8;
    EXPECT_TRUE(weight.main_grad().eq(2 * sum).all().item<bool>()) << "stage " << stage;
  });
}

TEST(GradientReducer, PlantedFaultsAreSeen) {
  const auto deviation = [](std::string_view fault, const Layout& layout) {
    set_planted_fault(fault);
    const double worst = worst_deviation(layout, precision_policy("fp64"), true);
    set_planted_fault("");
    return worst;
  };
  EXPECT_GT(deviation("skip_partial_grad_reduce", {.tp = 2}), 0);
  EXPECT_GT(deviation("skip_tied_reduce", {.pp = 2}), 0);
  EXPECT_GT(deviation("skip_dp_reduce", {.dp = 2}), 0);
  EXPECT_GT(deviation("skip_dp_reduce", {.dp = 2, .sharded = true}), 0);
  EXPECT_GT(deviation("wrong_dp_divisor", {.dp = 2}), 0);
  EXPECT_GT(deviation("wrong_dp_divisor", {.dp = 2, .sharded = true}), 0);
  EXPECT_EQ(deviation("", {.tp = 2, .dp = 2, .pp = 2}), 0);
}

// A world of two without a peer: a bucket's all-reduce doubles it, which shows when it ran.
class Alone {
 public:
  explicit Alone(bool sharded = false)
      : backend_(comm::make_fake_backend(0, 2)),
        context_(*backend_, make_grid(1, 2, 1)),
        policy_(precision_policy("fp64")) {
    std::vector<nn::Unit> units;
    for (int unit = 0; unit < 5; ++unit) {
      const std::string name = "w" + std::to_string(unit);
      weights_.push_back(std::make_unique<nn::Parameter>(name, make_spec(name, {32}), policy_));
      units.push_back({name, {weights_.back().get()}});
    }
    const auto allocator = make_default_allocator();
    buffer_ = std::make_unique<FlatBuffer>(
        units, FlatBufferOptions{.reduction_size = 2, .bucket_bytes = 8}, *allocator, policy_,
        Device("cpu"));
    reducer_ = std::make_unique<GradientReducer>(*buffer_, context_, sharded, policy_);
  }

  void backward() {
    for (auto& weight : weights_) write_grad(*weight, tensor::ones({32}, DType::Double));
  }
  GradientReducer& reducer() { return *reducer_; }
  // First elements of the units' weights: 2 where the bucket was reduced.
  std::vector<double> values() {
    std::vector<double> all;
    for (auto& weight : weights_) all.push_back(weight->main_grad().narrow(0, 0, 1).item<double>());
    return all;
  }

 private:
  std::unique_ptr<comm::Backend> backend_;
  comm::ParallelContext context_;
  PrecisionPolicy policy_;
  std::vector<std::unique_ptr<nn::Parameter>> weights_;
  std::unique_ptr<FlatBuffer> buffer_;
  std::unique_ptr<GradientReducer> reducer_;
};

using Values = std::vector<double>;

TEST(GradientReducer, BucketsStartInOrderInTheLastMicroBatchOnly) {
  Alone alone;
  GradientReducer& reducer = alone.reducer();
  reducer.begin_step();
  alone.backward();
  for (int unit = 5; unit-- > 0;) reducer.on_backward_end(unit);
  EXPECT_EQ(alone.values(), (Values{1, 1, 1, 1, 1})) << "another micro-batch comes";
  alone.backward();
  reducer.begin_last_micro_batch(0, 5);
  // Unit 1 is done before the last: its bucket waits for its turn.
  reducer.on_backward_end(1);
  EXPECT_EQ(alone.values(), (Values{2, 2, 2, 2, 2}));
  reducer.on_backward_end(4);
  EXPECT_EQ(alone.values(), (Values{2, 2, 2, 2, 4}));
  reducer.on_backward_end(3);
  EXPECT_EQ(alone.values(), (Values{2, 2, 2, 4, 4}));
  reducer.on_backward_end(2);
  EXPECT_EQ(alone.values(), (Values{2, 4, 4, 4, 4})) << "unit 2, and unit 1 that waited";
  reducer.on_backward_end(0);
  EXPECT_EQ(alone.values(), (Values{4, 4, 4, 4, 4})) << "the first unit needs no end of the step";
  reducer.finish_step();
  EXPECT_EQ(alone.values(), (Values{4, 4, 4, 4, 4}));
  // A second step starts from nothing.
  reducer.begin_step();
  alone.backward();
  reducer.on_backward_end(4);
  EXPECT_EQ(alone.values(), (Values{1, 1, 1, 1, 1}));
  reducer.finish_step();
  EXPECT_EQ(alone.values(), (Values{2, 2, 2, 2, 2}));
}

// Two stages on one rank, units 0 to 2 and 3 to 4: the second is in its last micro-batch first.
TEST(GradientReducer, EachStageHasItsOwnLastMicroBatch) {
  Alone alone;
  GradientReducer& reducer = alone.reducer();
  reducer.begin_step();
  alone.backward();
  reducer.begin_last_micro_batch(3, 5);
  for (int unit = 5; unit-- > 0;) reducer.on_backward_end(unit);
  EXPECT_EQ(alone.values(), (Values{1, 1, 1, 2, 2})) << "another micro-batch comes to the first";
  reducer.begin_last_micro_batch(0, 3);
  reducer.on_backward_end(2);
  EXPECT_EQ(alone.values(), (Values{1, 1, 2, 2, 2}));
  reducer.finish_step();
  EXPECT_EQ(alone.values(), (Values{2, 2, 2, 2, 2}));
}

TEST(GradientReducer, PostponedWeightGradientsHoldTheirBucket) {
  Alone alone;
  GradientReducer& reducer = alone.reducer();
  WeightGradQueue queue;
  queue.set_postpone(true);
  // Others listen too, before and after: nobody pushes the reducer out or is pushed out by it.
  std::string heard;
  const auto before = queue.on_unit_done([&](int unit) { heard += "a" + std::to_string(unit); });
  reducer.listen_to(queue);
  const auto after = queue.on_unit_done([&](int unit) { heard += "b" + std::to_string(unit); });
  reducer.begin_step();
  alone.backward();
  reducer.begin_last_micro_batch(0, 5);
  queue.put({.unit = 0}, [] {});  // a tied head's: the embedding's
  queue.put({.unit = 3, .micro_batch = 0}, [] {});
  queue.put({.unit = 3, .micro_batch = 1}, [] {});
  reducer.on_backward_end(4);
  EXPECT_EQ(alone.values(), (Values{1, 1, 1, 1, 2})) << "nothing of it was postponed";
  reducer.on_backward_end(3);
  EXPECT_EQ(alone.values(), (Values{1, 1, 1, 1, 2}));
  queue.drain_micro_batch(0);
  EXPECT_EQ(alone.values(), (Values{1, 1, 1, 1, 2})) << "half of unit 3 is done";
  queue.drain();
  EXPECT_EQ(alone.values(), (Values{1, 1, 1, 2, 2}));
  EXPECT_EQ(heard, "a0b0a3b3");
  reducer.finish_step();
  EXPECT_EQ(alone.values(), (Values{2, 2, 2, 2, 2}));
}

TEST(GradientReducer, RefusesABufferCutForAnotherGroup) {
  const auto backend = comm::make_fake_backend(0, 2);
  comm::ParallelContext context(*backend, make_grid(1, 2, 1));
  const PrecisionPolicy policy = precision_policy("fp32");
  nn::Parameter weight("w", make_spec("w", {8}), policy);
  const auto allocator = make_default_allocator();
  FlatBuffer buffer({{"w", {&weight}}}, {.reduction_size = 1}, *allocator, policy, Device("cpu"));
  EXPECT_THROW(GradientReducer(buffer, context, true, policy), Error);
}

}  // namespace
}  // namespace pentatron::distributed
