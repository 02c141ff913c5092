// SPDX-License-Identifier: Apache-2.0
#include "pentatron/distributed/parameter_store.h"

#include <gtest/gtest.h>

#include <mutex>

#include "pentatron/base/error.h"
#include "pentatron/comm/faulty_backend.h"
#include "pentatron/distributed/test_support.h"
#include "pentatron/tensor/ops.h"

// Gradients of a step, in every layout and with everything that can be sharded.
namespace pentatron::distributed {
namespace {

using namespace comm::testing_support;  // NOLINT: test vocabulary
using testing_support::Grid;
using testing_support::make_grid;
using testing_support::make_spec;
using testing_support::piece_of;
using testing_support::Stage;

struct Layout {
  Grid grid = {};
  Sharding sharding = Sharding::kNothing;
  bool two_level = false;  // shard over dp_inner, equal copies over dp_outer
  ShardCut cut = ShardCut::kElements;
};

std::string name_of(const Layout& l) {
  const char* kinds[] = {"nothing", "optimizer", "gradients", "parameters"};
  return fmt::format("tp {} dp {}x{} pp {} sharded: {}{}{}", l.grid.tp, l.grid.dp_outer,
                     l.grid.dp_inner, l.grid.pp, kinds[static_cast<int>(l.sharding)],
                     l.two_level ? " two levels" : "",
                     l.cut == ShardCut::kMatrices ? " by matrices" : "");
}

StoreOptions options_of(const Layout& l) {
  StoreOptions options{.sharding = l.sharding, .cut = l.cut, .bucket_bytes = 100};
  if (l.two_level) {
    options.shard_over = {"dp_inner"};
    options.replicate_over = {"dp_outer"};
  }
  return options;
}

// What one rank's backward brings to a parameter in a micro-batch: whole numbers, exact in every
// dtype used here.
Tensor local_gradient(const nn::Parameter& parameter, std::int64_t rank, int micro_batch,
                      DType dtype) {
  Tensor g = tensor::zeros(parameter.spec().local_shape, DType::Double);
  const Tensor real = nn::part_view(g, parameter.spec().parts[0]);
  real.copy_(tensor::arange(real.numel(), DType::Double)
                 .remainder(5)
                 .add(static_cast<double>(rank * 3 + 1 + micro_batch))
                 .view(real.sizes()));
  return g.to(dtype);
}

constexpr int kMicroBatches = 2;

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
  Tensor sum = tensor::zeros(parameter.spec().local_shape, DType::Double);
  for (const std::int64_t rank : ranks) {
    for (int m = 0; m < kMicroBatches; ++m) {
      sum.add_(local_gradient(parameter, rank, m, DType::Double));
    }
  }
  return nn::part_view(sum, part);
}

void backward(ParameterStore& store, Stage& stage, std::int64_t rank, int micro_batch,
              const PrecisionPolicy& policy, bool with_events, bool skip_head_norm) {
  for (int unit = static_cast<int>(stage.units.size()); unit-- > 0;) {
    if (with_events) store.on_backward_begin(unit);
    for (nn::Parameter* parameter : stage.units[static_cast<std::size_t>(unit)].parameters) {
      // The head's norm gets nothing in the second step: it must become zero, not keep the old sum.
      if (skip_head_norm && parameter->local_name() == "head.norm") continue;
      write_grad(*parameter, local_gradient(*parameter, rank, micro_batch, policy.main_grad));
    }
    if (with_events) store.on_backward_end(unit);
  }
}

// Largest deviation of this rank's final gradients from the plain sums, over all ranks, in the
// second of two steps.
double worst_deviation(const Layout& layout, const PrecisionPolicy& policy, bool with_events,
                       const Fault* fault = nullptr) {
  double worst = 0;
  std::mutex mutex;
  comm::run_threads(
      {.world_size = layout.grid.world(), .timeout = std::chrono::milliseconds(20'000)},
      [&](comm::Backend& real) {
        FaultyBackend faulty(real, fault != nullptr ? *fault : Fault{.group = "no such group"});
        comm::ParallelContext context(faulty, make_grid(layout.grid));
        Stage stage(context, policy);
        ParameterStore store(stage.units, context, options_of(layout), policy);
        for (int step = 0; step < 2; ++step) {
          store.begin_step();
          for (int m = 0; m < kMicroBatches; ++m) {
            if (with_events && m + 1 == kMicroBatches) {
              store.begin_last_micro_batch(0, static_cast<int>(stage.units.size()));
            }
            backward(store, stage, real.rank(), m, policy, with_events, step == 1);
          }
          store.finish_step();
        }
        double deviation = 0;
        for (const Piece& piece : store.pieces()) {
          Tensor expected = expected_gradient(context, *piece.weight);
          if (piece.weight->local_name() == "head.norm") expected = expected.mul(0);
          const Tensor difference =
              piece.grad.to(DType::Double).sub(piece_of(expected, piece.box_begin, piece.length()));
          deviation = std::max(deviation, difference.abs().max().item<double>());
        }
        const std::lock_guard lock(mutex);
        worst = std::max(worst, deviation);
      });
  return worst;
}

std::vector<Layout> all_layouts() {
  std::vector<Layout> all = {{.grid = {}},
                             {.grid = {.dp_inner = 2}},
                             {.grid = {.tp = 2}},
                             {.grid = {.pp = 2}},
                             {.grid = {.dp_inner = 2, .pp = 2}}};
  for (const Sharding sharding :
       {Sharding::kOptimizer, Sharding::kGradients, Sharding::kParameters}) {
    all.push_back({.grid = {}, .sharding = sharding});
    all.push_back({.grid = {.dp_inner = 2}, .sharding = sharding});
    all.push_back({.grid = {.dp_inner = 3, .pp = 2}, .sharding = sharding});
    all.push_back({.grid = {.tp = 2, .dp_inner = 2, .pp = 2}, .sharding = sharding});
    all.push_back(
        {.grid = {.dp_inner = 2, .dp_outer = 2}, .sharding = sharding, .two_level = true});
    all.push_back({.grid = {.tp = 2, .dp_inner = 2, .dp_outer = 2, .pp = 2},
                   .sharding = sharding,
                   .two_level = true});
    all.push_back({.grid = {.dp_outer = 2}, .sharding = sharding, .two_level = true});
    all.push_back({.grid = {.dp_inner = 2}, .sharding = sharding, .cut = ShardCut::kMatrices});
  }
  return all;
}

class Reduction : public testing::TestWithParam<Layout> {};
INSTANTIATE_TEST_SUITE_P(
    Layouts, Reduction, testing::ValuesIn(all_layouts()), [](const auto& test) {
      std::string name = name_of(test.param);
      std::replace_if(
          name.begin(), name.end(),
          [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
      return name;
    });

TEST_P(Reduction, SumsOverRanksAndMicroBatches) {
  for (const bool with_events : {false, true}) {
    EXPECT_EQ(worst_deviation(GetParam(), precision_policy("fp64"), with_events), 0.0);
    EXPECT_EQ(worst_deviation(GetParam(), precision_policy("bf16"), with_events), 0.0);
  }
}

// Gradients travel in the reduction dtype: 257 is no bf16 number.
TEST(ParameterStore, ReducesInTheReductionDtype) {
  for (const Sharding sharding :
       {Sharding::kNothing, Sharding::kOptimizer, Sharding::kGradients, Sharding::kParameters}) {
    comm::run_threads({.world_size = 2}, [&](comm::Backend& backend) {
      comm::ParallelContext context(backend, make_grid({.dp_inner = 2}));
      PrecisionPolicy policy = precision_policy("fp32");
      policy.reduction = DType::BFloat16;
      nn::Parameter weight("w", make_spec("w", {128}), policy);
      ParameterStore store({{"unit", {&weight}}}, context, {.sharding = sharding}, policy);
      store.begin_step();
      write_grad(weight, tensor::full({128}, backend.rank() == 0 ? 257.0 : 1.0, DType::Float));
      store.finish_step();
      const Tensor mine = store.pieces().at(0).grad;
      EXPECT_EQ(mine.numel(), sharding == Sharding::kNothing ? 128 : 64);
      EXPECT_EQ(mine.min().item<double>(), 256.0);  // round(256 + 1) to 8 bits
      EXPECT_EQ(mine.max().item<double>(), 256.0);
    });
  }
}

// A weight that three of four stages hold, and a copy that a stage holds alone under another name.
TEST(ParameterStore, TiedWeightsAreSummedOverTheirHolders) {
  for (const Sharding sharding :
       {Sharding::kNothing, Sharding::kOptimizer, Sharding::kGradients, Sharding::kParameters}) {
    comm::run_threads({.world_size = 8}, [&](comm::Backend& backend) {
      comm::ParallelContext context(backend, make_grid({.dp_inner = 2, .pp = 4}));
      const PrecisionPolicy policy = precision_policy("fp64");
      const std::int64_t stage = context.coordinate("pp");
      nn::ShardSpec spec = make_spec(stage == 1 ? "other" : "shared", {40});
      spec.parts[0].tied = true;
      nn::Parameter weight("w", std::move(spec), policy);
      ParameterStore store({{"unit", {&weight}}}, context, {.sharding = sharding}, policy);
      store.begin_step();
      write_grad(weight, tensor::full({40}, static_cast<double>(1 << stage), DType::Double));
      store.finish_step();
      const double sum = stage == 1 ? 2 : 1 + 4 + 8;
      for (const Piece& piece : store.pieces()) {
        EXPECT_TRUE(piece.grad.eq(2 * sum).all().item<bool>()) << "stage " << stage;
      }
    });
  }
}

// A collective that is left out or divides is seen: the sums above are made where they claim to be.
TEST(ParameterStore, FaultyCollectivesAreSeen) {
  const auto deviation = [](const Fault& fault, const Layout& layout) {
    return worst_deviation(layout, precision_policy("fp64"), true, &fault);
  };
  const Layout sharded{.grid = {.dp_inner = 2}, .sharding = Sharding::kOptimizer};
  const Layout micro{.grid = {.dp_inner = 2}, .sharding = Sharding::kGradients};
  const Layout levels{
      .grid = {.dp_inner = 2, .dp_outer = 2}, .sharding = Sharding::kOptimizer, .two_level = true};
  const Layout micro_levels{
      .grid = {.dp_inner = 2, .dp_outer = 2}, .sharding = Sharding::kGradients, .two_level = true};
  EXPECT_GT(deviation({.group = "/tp:"}, {.grid = {.tp = 2}}), 0) << "summands over tp";
  EXPECT_GT(deviation({.group = "/tie-pp:"}, {.grid = {.pp = 2}}), 0);
  EXPECT_GT(deviation({.group = "dp:"}, {.grid = {.dp_inner = 2}}), 0);
  EXPECT_GT(deviation({.group = "dp:", .harm = Harm::kDivide}, {.grid = {.dp_inner = 2}}), 0);
  for (const Layout& layout : {sharded, micro}) {
    for (const Harm harm : {Harm::kLeaveOut, Harm::kDivide}) {
      EXPECT_GT(deviation({Collective::kReduceScatter, "dp:", harm}, layout), 0) << name_of(layout);
    }
  }
  for (const Layout& layout : {levels, micro_levels}) {
    EXPECT_GT(deviation({Collective::kReduceScatter, "/dp_inner:"}, layout), 0) << name_of(layout);
    EXPECT_GT(deviation({Collective::kAllReduce, "/dp_outer:"}, layout), 0) << name_of(layout);
    EXPECT_EQ(deviation({.group = "no such group"}, layout), 0);
  }
}

// A world of two without a peer: a bucket's all-reduce doubles it, which shows when it ran.
class Alone {
 public:
  Alone()
      : backend_(comm::make_fake_backend(0, 2)),
        context_(*backend_, make_grid({.dp_inner = 2})),
        policy_(precision_policy("fp64")) {
    std::vector<nn::Unit> units;
    for (int unit = 0; unit < 5; ++unit) {
      const std::string name = "w" + std::to_string(unit);
      weights_.push_back(std::make_unique<nn::Parameter>(name, make_spec(name, {32}), policy_));
      units.push_back({name, {weights_.back().get()}});
    }
    store_ =
        std::make_unique<ParameterStore>(units, context_, StoreOptions{.bucket_bytes = 8}, policy_);
  }

  void backward() {
    for (auto& weight : weights_) write_grad(*weight, tensor::ones({32}, DType::Double));
  }
  ParameterStore& store() { return *store_; }
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
  std::unique_ptr<ParameterStore> store_;
};

using Values = std::vector<double>;

TEST(ParameterStore, BucketsStartInOrderInTheLastMicroBatchOnly) {
  Alone alone;
  ParameterStore& store = alone.store();
  store.begin_step();
  alone.backward();
  for (int unit = 4; unit >= 0; --unit) store.on_backward_end(unit);
  EXPECT_EQ(alone.values(), (Values{1, 1, 1, 1, 1})) << "another micro-batch comes";
  alone.backward();
  store.begin_last_micro_batch(0, 5);
  // Unit 0 is done before the others: its bucket waits for its turn.
  store.on_backward_end(0);
  EXPECT_EQ(alone.values(), (Values{2, 2, 2, 2, 2}));
  store.on_backward_end(4);
  EXPECT_EQ(alone.values(), (Values{2, 2, 2, 2, 4}));
  store.on_backward_end(3);
  EXPECT_EQ(alone.values(), (Values{2, 2, 2, 4, 4}));
  store.on_backward_end(2);
  EXPECT_EQ(alone.values(), (Values{2, 2, 4, 4, 4}));
  store.on_backward_end(1);
  EXPECT_EQ(alone.values(), (Values{4, 4, 4, 4, 4})) << "unit 1, and unit 0 that waited";
  store.finish_step();
  EXPECT_EQ(alone.values(), (Values{4, 4, 4, 4, 4}));
  // A second step starts from nothing.
  store.begin_step();
  alone.backward();
  store.on_backward_end(4);
  EXPECT_EQ(alone.values(), (Values{1, 1, 1, 1, 1}));
  store.finish_step();
  EXPECT_EQ(alone.values(), (Values{2, 2, 2, 2, 2}));
}

// Two stages on one rank, units 0 to 2 and 3 to 4: the second is in its last micro-batch first.
TEST(ParameterStore, EachStageHasItsOwnLastMicroBatch) {
  Alone alone;
  ParameterStore& store = alone.store();
  store.begin_step();
  alone.backward();
  store.begin_last_micro_batch(3, 5);
  for (int unit = 4; unit >= 0; --unit) store.on_backward_end(unit);
  EXPECT_EQ(alone.values(), (Values{1, 1, 1, 2, 2})) << "another micro-batch comes to the first";
  store.begin_last_micro_batch(0, 3);
  store.on_backward_end(2);
  EXPECT_EQ(alone.values(), (Values{1, 1, 2, 2, 2}));
  store.finish_step();
  EXPECT_EQ(alone.values(), (Values{2, 2, 2, 2, 2}));
}

TEST(ParameterStore, PostponedWeightGradientsHoldTheirBucket) {
  Alone alone;
  ParameterStore& store = alone.store();
  WeightGradQueue queue;
  queue.set_postpone(true);
  // Others listen too, before and after: nobody pushes the store out or is pushed out by it.
  std::string heard;
  const auto before = queue.on_unit_done([&](int unit) { heard += "a" + std::to_string(unit); });
  store.listen_to(queue);
  const auto after = queue.on_unit_done([&](int unit) { heard += "b" + std::to_string(unit); });
  store.begin_step();
  alone.backward();
  store.begin_last_micro_batch(0, 5);
  queue.put({.unit = 4}, [] {});
  queue.put({.unit = 3, .micro_batch = 0}, [] {});
  queue.put({.unit = 3, .micro_batch = 1}, [] {});
  store.on_backward_end(4);
  store.on_backward_end(3);
  EXPECT_EQ(alone.values(), (Values{1, 1, 1, 1, 1}));
  queue.drain_micro_batch(0);
  EXPECT_EQ(alone.values(), (Values{1, 1, 1, 1, 2})) << "half of unit 3 is done";
  queue.drain();
  EXPECT_EQ(alone.values(), (Values{1, 1, 1, 2, 2}));
  EXPECT_EQ(heard, "a4b4a3b3");
  store.finish_step();
  EXPECT_EQ(alone.values(), (Values{2, 2, 2, 2, 2}));
}

// Sharded gradients: a unit's whole gradients exist between its first write and the end of its
// backward, in every micro-batch.
TEST(ParameterStore, ShardedGradientsLiveForAUnit) {
  const auto backend = comm::make_fake_backend(0, 2);
  comm::ParallelContext context(*backend, make_grid({.dp_inner = 2}));
  const PrecisionPolicy policy = precision_policy("fp64");
  Stage stage(context, policy);
  ParameterStore store(stage.units, context, {.sharding = Sharding::kGradients, .bucket_bytes = 1},
                       policy);
  for (int step = 0; step < 2; ++step) {
    store.begin_step();
    for (int m = 0; m < 3; ++m) {
      if (m == 2) store.begin_last_micro_batch(0, static_cast<int>(stage.units.size()));
      for (int unit = static_cast<int>(stage.units.size()); unit-- > 0;) {
        nn::Parameter& weight = *stage.units[static_cast<std::size_t>(unit)].parameters[0];
        EXPECT_FALSE(weight.main_grad().defined());
        write_grad(weight, tensor::ones(weight.spec().local_shape, DType::Double));
        EXPECT_TRUE(weight.main_grad().defined());
        store.on_backward_end(unit);
        EXPECT_FALSE(weight.main_grad().defined());
      }
    }
    store.finish_step();
    for (const Piece& piece : store.pieces()) {
      const bool written =
          piece.weight->spec().local_shape.size() > 1 || piece.weight->local_name() == "head.norm";
      EXPECT_EQ(piece.grad.max().item<double>(), written ? 6.0 : 0.0) << piece.part->name;
      EXPECT_EQ(piece.grad.min().item<double>(), written ? 6.0 : 0.0) << piece.part->name;
    }
  }
}

}  // namespace
}  // namespace pentatron::distributed
