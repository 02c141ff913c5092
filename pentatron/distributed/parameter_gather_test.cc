// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>

#include "pentatron/base/error.h"
#include "pentatron/comm/faulty_backend.h"
#include "pentatron/distributed/parameter_store.h"
#include "pentatron/distributed/test_support.h"
#include "pentatron/tensor/ops.h"

// Where parameters lie, when they are whole, and what they hold after an update of the pieces.
namespace pentatron::distributed {
namespace {

using testing_support::Grid;
using testing_support::make_grid;
using testing_support::make_spec;
using testing_support::piece_of;
using testing_support::Stage;

Tensor values_of(const nn::Parameter& parameter, double salt) {
  return tensor::arange(parameter.num_local_elements(), DType::Double)
      .mul(0.37)
      .add(salt + static_cast<double>(parameter.local_name().size()))
      .sin()
      .view(parameter.spec().local_shape);
}

constexpr Sharding kAll[] = {Sharding::kNothing, Sharding::kOptimizer, Sharding::kGradients,
                             Sharding::kParameters};

// Counts what it gives.
class CountingAllocator final : public BufferAllocator {
 public:
  struct Counts {
    std::vector<Tensor> lasting;
    std::int64_t transient = 0;
  };
  explicit CountingAllocator(Counts& counts) : counts_(counts) {}
  Tensor allocate(std::int64_t num_elements, DType dtype, Device device) override {
    counts_.lasting.push_back(tensor::zeros({num_elements}, dtype, device));
    return counts_.lasting.back();
  }
  Tensor allocate_transient(std::int64_t num_elements, DType dtype, Device device) override {
    ++counts_.transient;
    return tensor::full({num_elements}, std::nan(""), dtype, device);
  }

 private:
  Counts& counts_;
};

// What was written before the store was made, or through fill(), is what forward sees and what
// pieces hold; padding is zero.
TEST(ParameterGather, ValuesMoveAlong) {
  for (const Sharding sharding : kAll) {
    for (const bool through_fill : {false, true}) {
      comm::run_threads({.world_size = 2}, [&](comm::Backend& backend) {
        comm::ParallelContext context(backend, make_grid({.dp_inner = 2}));
        const PrecisionPolicy policy = precision_policy("bf16");
        Stage stage(context, policy);
        if (!through_fill) {
          for (auto& p : stage.parameters) p->data().copy_(values_of(*p, 1));
        }
        CountingAllocator::Counts counts;
        ParameterStore store(stage.units, context, {.sharding = sharding}, policy, Device("cpu"),
                             std::make_unique<CountingAllocator>(counts));
        if (through_fill) {
          store.fill([](nn::Parameter& p) { p.data().copy_(values_of(p, 1)); });
        }
        for (auto& p : stage.parameters) {
          const Tensor expected = values_of(*p, 1).to(policy.parameter);
          EXPECT_TRUE(p->forward_weight().equal(expected)) << p->local_name();
          EXPECT_TRUE(p->backward_weight().equal(expected)) << p->local_name();
        }
        for (const Piece& piece : store.pieces()) {
          const Tensor box = nn::part_view(values_of(*piece.weight, 1), *piece.part)
                                 .to(policy.parameter)
                                 .to(policy.main_parameter);
          EXPECT_TRUE(piece.main.equal(piece_of(box, piece.box_begin, piece.length())));
        }
        // Gradients, parameters and main parameters, sharded or whole, and nothing else.
        EXPECT_EQ(counts.lasting.size(), 3U);
        const std::int64_t whole = store.layout().num_elements();
        EXPECT_EQ(counts.lasting[0].numel(), sharding == Sharding::kParameters ? whole / 2 : whole);
        EXPECT_EQ(counts.lasting[1].numel(), sharding >= Sharding::kGradients ? whole / 2 : whole);
      });
    }
  }
}

// A parameter that is bound before it is written has no storage of its own, and nothing is copied.
TEST(ParameterGather, BindingMakesNoCopyOfWhatIsNotThere) {
  const auto backend = comm::make_single_backend();
  comm::ParallelContext context(*backend, make_grid({}));
  const PrecisionPolicy policy = precision_policy("fp32");
  Stage stage(context, policy);
  for (auto& p : stage.parameters) EXPECT_FALSE(p->has_storage());
  CountingAllocator::Counts counts;
  ParameterStore store(stage.units, context, {}, policy, Device("cpu"),
                       std::make_unique<CountingAllocator>(counts));
  for (auto& p : stage.parameters) {
    EXPECT_TRUE(p->data().is_alias_of(counts.lasting[0]));
    EXPECT_TRUE(p->main_grad().is_alias_of(counts.lasting[1]));
  }
  EXPECT_EQ(counts.transient, 0);
}

// Every rank updates its pieces; the next forward sees all of them.
void update_and_check(Sharding sharding, bool overlap, bool two_level, ShardCut cut) {
  const Grid grid{.dp_inner = 2, .dp_outer = two_level ? 2 : 1};
  comm::run_threads({.world_size = grid.world()}, [&](comm::Backend& backend) {
    comm::ParallelContext context(backend, make_grid(grid));
    const PrecisionPolicy policy = precision_policy("fp64");
    Stage stage(context, policy);
    StoreOptions options{
        .sharding = sharding, .cut = cut, .bucket_bytes = 100, .overlap_gather = overlap};
    if (two_level) {
      options.shard_over = {"dp_inner"};
      options.replicate_over = {"dp_outer"};
    }
    ParameterStore store(stage.units, context, options, policy);
    store.fill([](nn::Parameter& p) { p.data().copy_(values_of(p, 1)); });
    for (double salt = 2; salt < 5; ++salt) {
      for (Piece& piece : store.pieces()) {
        const Tensor box = nn::part_view(values_of(*piece.weight, salt), *piece.part);
        piece.main.copy_(piece_of(box, piece.box_begin, piece.length()));
      }
      store.publish();
      for (int unit = 0; unit < static_cast<int>(stage.units.size()); ++unit) {
        store.on_forward_begin(unit);
        for (nn::Parameter* p : stage.units[static_cast<std::size_t>(unit)].parameters) {
          const Tensor real = nn::part_view(p->forward_weight(), p->spec().parts[0]);
          EXPECT_TRUE(real.equal(nn::part_view(values_of(*p, salt), p->spec().parts[0])))
              << p->local_name();
        }
        store.on_forward_end(unit);
      }
      store.settle();
    }
  });
}

TEST(ParameterGather, UpdatesReachEveryRank) {
  for (const Sharding sharding : kAll) {
    for (const bool overlap : {false, true}) {
      for (const ShardCut cut : {ShardCut::kElements, ShardCut::kMatrices}) {
        SCOPED_TRACE(testing::Message() << static_cast<int>(sharding) << overlap);
        update_and_check(sharding, overlap, /*two_level=*/false, cut);
        update_and_check(sharding, overlap, /*two_level=*/true, cut);
      }
    }
  }
}

// The events of a fake world: an all-gather copies this rank's part to all places at once, so
// whether a parameter is bound tells what was asked for.
class Alone {
 public:
  Alone()
      : backend_(comm::make_fake_backend(0, 2)), context_(*backend_, make_grid({.dp_inner = 2})) {
    const PrecisionPolicy policy = precision_policy("fp64");
    std::vector<nn::Unit> units;
    for (int unit = 0; unit < 4; ++unit) {
      const std::string name = "w" + std::to_string(unit);
      weights_.push_back(std::make_unique<nn::Parameter>(name, make_spec(name, {64}), policy));
      units.push_back({name, {weights_.back().get()}});
    }
    store_ = std::make_unique<ParameterStore>(
        units, context_, StoreOptions{.sharding = Sharding::kParameters, .bucket_bytes = 8}, policy,
        Device("cpu"), std::make_unique<CountingAllocator>(counts_));
    counts_.transient = 0;
  }
  ParameterStore& store() { return *store_; }
  nn::Parameter& weight(int unit) { return *weights_[static_cast<std::size_t>(unit)]; }
  void use(int unit) { static_cast<void>(weight(unit).forward_weight()); }
  // Gathers begun since the last call.
  std::int64_t gathers() { return std::exchange(counts_.transient, 0); }
  std::set<int> bound() {
    std::set<int> all;
    for (int unit = 0; unit < 4; ++unit) {
      if (weight(unit).has_storage()) all.insert(unit);
    }
    return all;
  }
  void forward() {
    for (int unit = 0; unit < 4; ++unit) {
      store().on_forward_begin(unit);
      use(unit);
      store().on_forward_end(unit);
    }
  }
  // Unit 0 is an embedding: its backward uses no weight.
  void backward() {
    for (int unit = 4; unit-- > 0;) {
      store().on_backward_begin(unit);
      if (unit > 0) use(unit);
      store().on_backward_end(unit);
    }
  }

 private:
  std::unique_ptr<comm::Backend> backend_;
  comm::ParallelContext context_;
  CountingAllocator::Counts counts_;
  std::vector<std::unique_ptr<nn::Parameter>> weights_;
  std::unique_ptr<ParameterStore> store_;
};

using Units = std::set<int>;

TEST(ParameterGather, ShardedOnesAreThereForTheirUnitOnly) {
  Alone alone;
  EXPECT_EQ(alone.bound(), Units{});
  for (int round = 0; round < 2; ++round) {
    for (int unit = 0; unit < 4; ++unit) {
      alone.store().on_forward_begin(unit);
      alone.use(unit);
      EXPECT_EQ(alone.bound(), Units{unit});
      alone.store().on_forward_end(unit);
      EXPECT_EQ(alone.bound(), Units{});
    }
    for (int unit = 4; unit-- > 0;) {
      alone.store().on_backward_begin(unit);
      alone.use(unit);
      EXPECT_EQ(alone.bound(), Units{unit});
      // A unit that is run again in its backward keeps its weights to the end.
      alone.store().on_forward_begin(unit);
      alone.store().on_forward_end(unit);
      EXPECT_EQ(alone.bound(), Units{unit});
      alone.store().on_backward_end(unit);
      EXPECT_EQ(alone.bound(), Units{});
    }
  }
}

TEST(ParameterGather, TheNextUnitIsAskedForAhead) {
  Alone alone;
  alone.forward();
  alone.backward();
  alone.store().publish();
  static_cast<void>(alone.gathers());
  // Known by now: every unit uses its weights in forward, all but the first in backward.
  alone.store().on_forward_begin(0);
  EXPECT_EQ(alone.gathers(), 2) << "its own and the next one's";
  alone.use(0);
  alone.store().on_forward_end(0);
  alone.store().on_forward_begin(1);
  EXPECT_EQ(alone.gathers(), 1);
  alone.store().on_forward_end(1);
  alone.store().settle();
  static_cast<void>(alone.gathers());
  alone.store().on_backward_begin(2);
  EXPECT_EQ(alone.gathers(), 2);
  alone.store().on_backward_end(2);
  static_cast<void>(alone.gathers());  // its gradients' memory
  alone.store().on_backward_begin(1);
  EXPECT_EQ(alone.gathers(), 0) << "unit 0 needs no weight in backward";
}

// A weight that another unit uses (the embedding's, by the head) comes with that use and goes with
// that unit.
TEST(ParameterGather, BorrowedOnesGoWithTheirUser) {
  Alone alone;
  alone.store().on_forward_begin(3);
  alone.use(3);
  alone.use(0);
  EXPECT_EQ(alone.bound(), (Units{0, 3}));
  alone.store().on_forward_end(3);
  EXPECT_EQ(alone.bound(), Units{});
  // Outside of all units: until it is given back.
  alone.use(1);
  EXPECT_EQ(alone.bound(), Units{1});
  alone.store().settle();
  EXPECT_EQ(alone.bound(), Units{});
}

// Gathers that end only when they are waited for, and say so.
class LateGroup final : public comm::testing_support::ForwardingGroup {
 public:
  LateGroup(std::unique_ptr<comm::Group> real, std::vector<std::string>& log)
      : ForwardingGroup(std::move(real)), log_(log) {}
  [[nodiscard]] comm::WorkPtr all_gather(Tensor out, Tensor in) override {
    log_.push_back("start");
    return std::make_unique<Late>(*this, std::move(out), std::move(in));
  }

 private:
  class Late final : public comm::Work {
   public:
    Late(LateGroup& group, Tensor out, Tensor in)
        : group_(group), out_(std::move(out)), in_(std::move(in)) {}
    void wait() override {
      group_.log_.push_back("wait");
      group_.real().all_gather(out_, in_)->wait();
    }

   private:
    LateGroup& group_;
    Tensor out_, in_;
  };
  std::vector<std::string>& log_;
};
class LateBackend final : public comm::testing_support::ForwardingBackend {
 public:
  LateBackend(comm::Backend& real, std::vector<std::string>& log)
      : ForwardingBackend(real), log_(log) {}

 private:
  std::unique_ptr<comm::Group> wrap(std::unique_ptr<comm::Group> real) override {
    return std::make_unique<LateGroup>(std::move(real), log_);
  }
  std::vector<std::string>& log_;
};

// Overlapped: publish() starts every bucket, in the order of forward, and waits for none; a bucket
// is waited for where its first weight is used. Otherwise all are waited for at once.
TEST(ParameterGather, OverlappedEndsAtFirstUse) {
  for (const bool overlap : {true, false}) {
    std::vector<std::string> log;
    const auto fake = comm::make_fake_backend(0, 2);
    LateBackend backend(*fake, log);
    comm::ParallelContext context(backend, make_grid({.dp_inner = 2}));
    const PrecisionPolicy policy = precision_policy("fp64");
    nn::Parameter first("a", make_spec("a", {64}), policy);
    nn::Parameter second("b", make_spec("b", {64}), policy);
    ParameterStore store(
        {{"a", {&first}}, {"b", {&second}}}, context,
        {.sharding = Sharding::kOptimizer, .bucket_bytes = 8, .overlap_gather = overlap}, policy);
    store.publish();
    using Log = std::vector<std::string>;
    if (!overlap) {
      EXPECT_EQ(log, (Log{"start", "start", "wait", "wait"}));
      continue;
    }
    EXPECT_EQ(log, (Log{"start", "start"}));
    static_cast<void>(first.forward_weight());
    EXPECT_EQ(log, (Log{"start", "start", "wait"}));
    static_cast<void>(first.backward_weight());
    EXPECT_EQ(log, (Log{"start", "start", "wait"})) << "once";
    // The next update waits for what nobody used.
    store.settle();
    EXPECT_EQ(log, (Log{"start", "start", "wait", "wait"}));
  }
}

// What is kept on the host: main parameters and the gradients that updates read.
TEST(ParameterGather, StateOnTheHostHasCopiesOfItsOwn) {
  const auto backend = comm::make_single_backend();
  comm::ParallelContext context(*backend, make_grid({}));
  const PrecisionPolicy policy = precision_policy("fp64");
  Stage stage(context, policy);
  ParameterStore store(stage.units, context, {.state_on_host = true}, policy);
  store.fill([](nn::Parameter& p) { p.data().copy_(values_of(p, 1)); });
  store.begin_step();
  for (auto& p : stage.parameters) write_grad(*p, values_of(*p, 2));
  store.finish_step();
  store.fetch_gradients();
  for (Piece& piece : store.pieces()) {
    EXPECT_FALSE(piece.main.is_alias_of(piece.parameter));
    EXPECT_FALSE(piece.update_grad.is_alias_of(piece.grad));
    EXPECT_TRUE(piece.update_grad.equal(piece.grad));
    EXPECT_TRUE(piece.main.equal(piece.parameter));
    piece.main.add_(1);
  }
  store.publish();
  for (const Piece& piece : store.pieces()) EXPECT_TRUE(piece.main.equal(piece.parameter));
}

TEST(ParameterGather, RefusesTwoTiedPartsOfOneName) {
  comm::run_threads({.world_size = 2}, [&](comm::Backend& backend) {
    comm::ParallelContext context(backend, make_grid({.pp = 2}));
    const PrecisionPolicy policy = precision_policy("fp64");
    nn::ShardSpec spec = make_spec("w", {8});
    spec.parts[0].tied = true;
    nn::Parameter a("a", spec, policy);
    nn::Parameter b("b", spec, policy);
    EXPECT_THROW(ParameterStore({{"u", {&a, &b}}}, context, {}, policy), Error);
  });
}

}  // namespace
}  // namespace pentatron::distributed
