// SPDX-License-Identifier: Apache-2.0
#include "pentatron/optimizer/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>

#include "pentatron/base/error.h"
#include "pentatron/comm/faulty_backend.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::optimizer {
namespace {

using namespace comm::testing_support;  // NOLINT: test vocabulary
using distributed::Piece;
using distributed::Sharding;
using distributed::StoreOptions;

constexpr Sharding kOptimizerState = Sharding::kOptimizer;

constexpr int kNumLayers = 2;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Layout {
  std::int64_t tp = 1;
  std::int64_t dp = 1;
  std::int64_t pp = 1;
  Sharding sharding = Sharding::kNothing;
  bool two_level = false;  // shard over dp_inner (2), equal copies over dp_outer
  bool on_host = false;
  [[nodiscard]] bool sharded() const { return sharding != Sharding::kNothing; }
  [[nodiscard]] std::int64_t world() const { return tp * dp * pp; }
};

std::ostream& operator<<(std::ostream& out, const Layout& l) {
  return out << "tp " << l.tp << " dp " << l.dp << " pp " << l.pp << " sharding "
             << static_cast<int>(l.sharding) << (l.two_level ? " two levels" : "")
             << (l.on_host ? " on the host" : "");
}

comm::RankGrid make_grid(const Layout& l) {
  const std::int64_t inner = l.two_level ? 2 : l.dp;
  return comm::RankGrid({{"tp", l.tp, {}},
                         {"cp", 1, {}},
                         {"ep", 1, {}},
                         {"dp", l.dp, {{"dp_outer", l.dp / inner}, {"dp_inner", inner}}},
                         {"pp", l.pp, {}}});
}

// Fixed values of a whole logical tensor; `salt` tells parameters from the gradients of each step.
Tensor global_values(const nn::ShardPart& part, int salt) {
  double phase = salt * 7.7;
  for (const char c : part.name) phase = phase * 1.37 + c;
  return tensor::arange(tensor::num_elements(part.logical_shape), DType::Double)
      .mul(0.61)
      .add(std::fmod(phase, 50.0))
      .sin()
      .view(part.logical_shape);
}

Tensor box_values(const nn::ShardPart& part, int salt) {
  Tensor t = global_values(part, salt);
  for (std::size_t d = 0; d < part.box.size.size(); ++d) {
    t = t.narrow(static_cast<std::int64_t>(d), part.box.offset[d], part.box.size[d]);
  }
  return t;
}

// One model in every layout: a tied embedding with padding rows, fused parts of which tp cuts one
// and copies another, biases without decay, a head.
struct Stage {
  Stage(comm::ParallelContext& context, const PrecisionPolicy& the_policy,
        std::function<void(nn::ShardPart&)> change_part = {})
      : policy(the_policy), change(std::move(change_part)) {
    tp = context.size("tp");
    tp_rank = context.coordinate("tp");
    const std::int64_t pp = context.size("pp");
    const std::int64_t stage = context.coordinate("pp");
    if (context.is_first_stage()) add_embedding(-1, 0, pp > 1);
    for (std::int64_t layer = stage * kNumLayers / pp; layer < (stage + 1) * kNumLayers / pp;
         ++layer) {
      const std::string name = "layers." + std::to_string(layer);
      nn::ShardPart q = whole(name + ".q", {8, 3});
      q.box = {{tp_rank * 8 / tp, 0}, {8 / tp, 3}};
      q.local_rows = 8 / tp;
      q.split_axes = {"tp"};
      nn::ShardPart k = copied(name + ".k", {3, 3});
      k.local_row_begin = q.local_rows;
      k.local_rows = 4;
      add(static_cast<int>(layer), {{q, k}, {q.local_rows + 4, 3}});
      nn::ShardPart bias = copied(name + ".bias", {5});
      bias.role = nn::ShardRole::kVector;
      add(static_cast<int>(layer), {{bias}, {5}});
    }
    if (context.is_last_stage()) {
      if (pp > 1) add_embedding(kNumLayers, tp, true);
      add(kNumLayers, {{copied("head", {40, 3})}, {40, 3}});
    }
  }

  static nn::ShardPart whole(const std::string& name, const Shape& shape) {
    nn::ShardPart part;
    part.name = name;
    part.logical_shape = shape;
    part.box = {Shape(shape.size(), 0), shape};
    part.local_rows = shape[0];
    return part;
  }

  nn::ShardPart copied(const std::string& name, const Shape& shape) const {
    nn::ShardPart part = whole(name, shape);
    part.replicate_axes = {"tp"};
    part.replica = tp_rank;
    return part;
  }

  void add_embedding(int layer, std::int64_t first_replica, bool tied) {
    nn::ShardPart part = copied("embedding", {6, 3});
    part.replica += first_replica;
    part.tied = tied;
    part.local_rows = 8;
    add(layer, {{part}, {8, 3}});
  }

  void add(int layer, nn::ShardSpec spec) {
    const std::string name = spec.parts[0].name;
    for (nn::ShardPart& part : spec.parts) {
      if (change) change(part);
    }
    parameters.push_back(std::make_unique<nn::Parameter>(name, std::move(spec), policy));
    nn::Parameter& parameter = *parameters.back();
    for (const nn::ShardPart& part : parameter.spec().parts) {
      nn::part_view(parameter.data(), part).copy_(box_values(part, 0));
    }
    const std::string unit = "unit" + std::to_string(layer);
    if (units.empty() || units.back().name != unit) units.push_back({unit, {}});
    units.back().parameters.push_back(&parameter);
  }

  PrecisionPolicy policy;
  std::function<void(nn::ShardPart&)> change;
  std::int64_t tp = 1;
  std::int64_t tp_rank = 0;
  std::vector<std::unique_ptr<nn::Parameter>> parameters;
  std::vector<nn::Unit> units;
};

// One rank's stage with its store and optimizer. `spoil` makes a wrong model of it first.
struct Rig {
  Rig(comm::Backend& backend, const Layout& layout, const PrecisionPolicy& policy,
      const config::OptimizerConfig& config, const std::function<void(nn::ShardPart&)>& spoil = {})
      : context(backend, make_grid(layout)), stage(context, policy, spoil) {
    StoreOptions options{
        .sharding = layout.sharding, .bucket_bytes = 200, .state_on_host = layout.on_host};
    if (layout.two_level) {
      options.shard_over = {"dp_inner"};
      options.replicate_over = {"dp_outer"};
    }
    if (config.optimizer == "muon") options.cut = distributed::ShardCut::kMatrices;
    store = std::make_unique<distributed::ParameterStore>(stage.units, context, options, policy);
    optimizer = std::make_unique<Optimizer>(*store, context, config, policy);
  }

  // Final gradients of a step. Everything that is no real element holds NaN: padding may not enter
  // anything.
  void set_gradients(int step) {
    for (auto& parameter : stage.parameters) {
      if (parameter->main_grad().defined()) parameter->main_grad().fill_(kNaN);
    }
    for (Piece& piece : store->pieces()) {
      piece.grad.copy_(
          box_values(*piece.part, step).reshape({-1}).narrow(0, piece.box_begin, piece.length()));
    }
  }

  comm::ParallelContext context;
  Stage stage;
  std::unique_ptr<distributed::ParameterStore> store;
  std::unique_ptr<Optimizer> optimizer;
};

config::OptimizerConfig adam_config() {
  config::OptimizerConfig c;
  c.adam_beta1 = 0.9;
  c.adam_beta2 = 0.95;
  c.adam_eps = 1e-8;
  c.clip_grad = 1.0;
  return c;
}

config::OptimizerConfig sgd_config(double momentum) {
  config::OptimizerConfig c;
  c.optimizer = "sgd";
  c.sgd_momentum = momentum;
  c.clip_grad = 1.0;
  return c;
}

constexpr int kSteps = 3;
double lr_of(int step) { return 0.01 * step; }
double decay_of(int step) { return 0.1 + 0.02 * step; }

// The same steps on whole tensors, by the textbook.
struct Reference {
  explicit Reference(const config::OptimizerConfig& config) {
    const auto backend = comm::make_single_backend();
    comm::ParallelContext context(*backend, make_grid({}));
    Stage stage(context, precision_policy("fp64"));
    for (const auto& parameter : stage.parameters) {
      for (const nn::ShardPart& part : parameter->spec().parts) parts.push_back(part);
    }
    std::map<std::string, Tensor> m;
    std::map<std::string, Tensor> v;
    for (const nn::ShardPart& part : parts) {
      values[part.name] = global_values(part, 0);
      m[part.name] = tensor::zeros(part.logical_shape, DType::Double);
      v[part.name] = tensor::zeros(part.logical_shape, DType::Double);
    }
    for (int step = 1; step <= kSteps; ++step) {
      double squares = 0;
      for (const nn::ShardPart& part : parts) {
        squares += global_values(part, step).square().sum().item<double>();
      }
      norms.push_back(std::sqrt(squares));
      const double clip = std::min(1.0, config.clip_grad / (norms.back() + 1e-6));
      for (const nn::ShardPart& part : parts) {
        const Tensor g = global_values(part, step).mul(clip);
        const double wd = nn::decays(part.role) ? decay_of(step) : 0.0;
        Tensor& p = values[part.name];
        Tensor& first = m[part.name];
        Tensor& second = v[part.name];
        if (config.optimizer == "sgd") {
          first = first.mul(config.sgd_momentum).add(g).add(p.mul(wd));
          p = p.sub(first.mul(lr_of(step)));
          continue;
        }
        first = first.mul(config.adam_beta1).add(g.mul(1 - config.adam_beta1));
        second = second.mul(config.adam_beta2).add(g.square().mul(1 - config.adam_beta2));
        const Tensor m_hat = first.div(1 - std::pow(config.adam_beta1, step));
        const Tensor v_hat = second.div(1 - std::pow(config.adam_beta2, step));
        p = p.sub(p.mul(wd).add(m_hat.div(v_hat.sqrt().add(config.adam_eps))).mul(lr_of(step)));
      }
    }
    double squares = 0;
    for (const auto& [name, value] : values) squares += value.square().sum().item<double>();
    parameter_norm = std::sqrt(squares);
  }

  std::vector<nn::ShardPart> parts;
  std::map<std::string, Tensor> values;
  std::vector<double> norms;
  double parameter_norm = 0;
};

// Largest deviation of parameters and norms from the reference over all ranks.
double worst_deviation(const Layout& layout, const config::OptimizerConfig& config,
                       const std::function<void(nn::ShardPart&)>& spoil = {},
                       const Fault& fault = {.group = "no such group"},
                       std::int64_t updates_before = 0) {
  const Reference reference(config);
  double worst = 0;
  std::mutex mutex;
  comm::run_threads({.world_size = layout.world()}, [&](comm::Backend& real) {
    FaultyBackend backend(real, fault);
    Rig rig(backend, layout, precision_policy("fp64"), config, spoil);
    rig.optimizer->set_num_updates(updates_before);
    double deviation = 0;
    for (int step = 1; step <= kSteps; ++step) {
      rig.set_gradients(step);
      const OptimizerStepResult result = rig.optimizer->step(lr_of(step), decay_of(step));
      const double norm = reference.norms[static_cast<std::size_t>(step) - 1];
      EXPECT_FALSE(result.skipped);
      deviation = std::max(deviation, std::abs(result.grad_norm - norm));
      deviation = std::max(deviation, std::abs(result.clip_factor - 1.0 / (norm + 1e-6)));
    }
    deviation =
        std::max(deviation, std::abs(rig.optimizer->parameter_norm() - reference.parameter_norm));
    for (auto& parameter : rig.stage.parameters) {
      for (const nn::ShardPart& part : parameter->spec().parts) {
        Tensor expected = reference.values.at(part.name);
        for (std::size_t d = 0; d < part.box.size.size(); ++d) {
          expected =
              expected.narrow(static_cast<std::int64_t>(d), part.box.offset[d], part.box.size[d]);
        }
        const Tensor difference = nn::part_view(parameter->data(), part).sub(expected);
        deviation = std::max(deviation, difference.abs().max().item<double>());
      }
      if (parameter->local_name() == "embedding") {
        EXPECT_EQ(parameter->data().narrow(0, 6, 2).abs().max().item<double>(), 0.0);
      }
    }
    const std::lock_guard lock(mutex);
    worst = std::max(worst, deviation);
  });
  return worst;
}

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> kAll = {
      {},
      {.tp = 2},
      {.pp = 2},
      {.dp = 2},
      {.dp = 2, .sharding = Sharding::kOptimizer},
      {.tp = 2, .pp = 2},
      {.tp = 2, .dp = 2, .sharding = Sharding::kOptimizer},
      {.dp = 2, .pp = 2, .sharding = Sharding::kOptimizer},
      {.tp = 2, .dp = 2, .pp = 2},
      {.tp = 2, .dp = 2, .sharding = Sharding::kGradients},
      {.dp = 2, .pp = 2, .sharding = Sharding::kParameters},
      {.dp = 4, .sharding = Sharding::kOptimizer, .two_level = true},
      {.tp = 2, .dp = 4, .sharding = Sharding::kParameters, .two_level = true},
      {.on_host = true},
      {.tp = 2, .dp = 2, .sharding = Sharding::kOptimizer, .on_host = true}};
  return kAll;
}

// Updates, clip factor, gradient and parameter norm with tied, copied, cut and padded parts.
TEST(Optimizer, EveryLayoutEqualsTheFormulas) {
  for (const Layout& layout : layouts()) {
    SCOPED_TRACE(testing::Message() << layout);
    EXPECT_LT(worst_deviation(layout, adam_config()), 1e-12);
    EXPECT_LT(worst_deviation(layout, sgd_config(0.9)), 1e-12);
  }
  EXPECT_LT(worst_deviation({}, sgd_config(0.0)), 1e-12);
}

// A wrong model or a faulty collective moves the numbers above: they would show it.
TEST(Optimizer, WhatIsWrongIsSeen) {
  const auto counts_twice = [](nn::ShardPart& part) { part.replica = 0; };
  EXPECT_GT(worst_deviation({.tp = 2}, adam_config(), counts_twice), 1e-6);
  EXPECT_GT(worst_deviation({.pp = 2}, adam_config(), counts_twice), 1e-6);
  const auto all_decay = [](nn::ShardPart& part) { part.role = nn::ShardRole::kMatrix; };
  EXPECT_GT(worst_deviation({}, adam_config(), all_decay), 1e-6);
  EXPECT_GT(worst_deviation({}, adam_config(), {}, {.group = "no such group"}, 1), 1e-6)
      << "a step too many";
  const Layout sharded{.dp = 2, .sharding = Sharding::kOptimizer};
  EXPECT_GT(worst_deviation(sharded, adam_config(), {}, {Collective::kAllGather, "dp:"}), 1e-6);
  const Fault no_norm{.group = "/world", .least_elements = 1};
  EXPECT_GT(worst_deviation(sharded, adam_config(), {}, no_norm), 1e-6);
}

// Everything that a rank's state says, put together: "name/kind" to the whole box.
using Gathered = std::map<std::string, Tensor>;

void gather_into(Gathered& all, const std::vector<StateSlice>& slices) {
  for (const StateSlice& slice : slices) {
    Tensor& whole = all[slice.part->name + "/" + slice.kind];
    if (!whole.defined()) {
      whole = tensor::full({slice.part->box.num_elements()}, kNaN, slice.values.scalar_type());
    }
    Tensor target = whole.narrow(0, slice.box_begin, slice.values.numel());
    EXPECT_TRUE(target.isnan().all().item<bool>()) << "held twice: " << slice.part->name;
    target.copy_(slice.values);
  }
}

void gather_parameters(Gathered& all, Stage& stage) {
  for (auto& parameter : stage.parameters) {
    for (const nn::ShardPart& part : parameter->spec().parts) {
      all[part.name] = nn::part_view(parameter->data(), part).reshape({-1}).clone();
    }
  }
}

// State and parameters after all steps, without clipping (the norm's last bit may depend on the
// cut).
Gathered run_and_gather(const Layout& layout, const char* precision,
                        const config::OptimizerConfig& config, int steps) {
  Gathered all;
  std::mutex mutex;
  comm::run_threads({.world_size = layout.world()}, [&](comm::Backend& backend) {
    Rig rig(backend, layout, precision_policy(precision), config);
    for (int step = 1; step <= steps; ++step) {
      rig.set_gradients(step);
      (void)rig.optimizer->step(lr_of(step), decay_of(step));
    }
    Gathered parameters;
    gather_parameters(parameters, rig.stage);  // all ranks together where they are sharded
    const std::lock_guard lock(mutex);
    gather_into(all, rig.optimizer->state_slices(/*owner_only=*/true));
    for (auto& [name, value] : parameters) {
      const auto [at, fresh] = all.emplace(name, value);
      EXPECT_TRUE(fresh || at->second.equal(value)) << "ranks differ in " << name;
    }
  });
  return all;
}

void expect_same_bits(const Gathered& actual, const Gathered& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, value] : expected) {
    EXPECT_FALSE(value.isnan().any().item<bool>()) << name;
    ASSERT_TRUE(actual.count(name)) << name;
    EXPECT_TRUE(actual.at(name).equal(value)) << name;
  }
}

TEST(ShardedOptimizer, BitEqualToTheWholeOne) {
  for (const char* precision : {"fp32", "bf16", "fp64"}) {
    for (config::OptimizerConfig config : {adam_config(), sgd_config(0.9)}) {
      config.clip_grad = 0;
      const Gathered expected = run_and_gather({}, precision, config, kSteps);
      for (const Layout& layout :
           {Layout{.dp = 2}, Layout{.dp = 2, .sharding = kOptimizerState},
            Layout{.dp = 4, .sharding = kOptimizerState},
            Layout{.dp = 3, .sharding = Sharding::kGradients},
            Layout{.dp = 2, .sharding = Sharding::kParameters},
            Layout{.dp = 4, .sharding = Sharding::kParameters, .two_level = true},
            Layout{.dp = 2, .sharding = kOptimizerState, .on_host = true}}) {
        SCOPED_TRACE(testing::Message() << precision << " " << config.optimizer << " " << layout);
        expect_same_bits(run_and_gather(layout, precision, config, kSteps), expected);
      }
    }
  }
}

// Owners hold every element of every logical part and kind once, in every layout.
TEST(ShardedOptimizer, OwnersTileTheState) {
  const Reference reference(adam_config());
  for (const Layout& layout : layouts()) {
    SCOPED_TRACE(testing::Message() << layout);
    std::map<std::string, std::int64_t> held;
    std::mutex mutex;
    comm::run_threads({.world_size = layout.world()}, [&](comm::Backend& backend) {
      Rig rig(backend, layout, precision_policy("bf16"), adam_config());
      const std::lock_guard lock(mutex);
      for (const StateSlice& slice : rig.optimizer->state_slices(true)) {
        held[slice.part->name + "/" + slice.kind] += slice.values.numel();
      }
    });
    EXPECT_EQ(held.size(), reference.parts.size() * 3);
    for (const nn::ShardPart& part : reference.parts) {
      for (const char* kind : {"/main_param", "/exp_avg", "/exp_avg_sq"}) {
        EXPECT_EQ(held[part.name + kind], tensor::num_elements(part.logical_shape)) << part.name;
      }
    }
  }
}

// A state saved by two sharded ranks goes on in one process, bit for bit.
TEST(ShardedOptimizer, StateLoadsIntoAnotherLayout) {
  config::OptimizerConfig config = adam_config();
  config.clip_grad = 0;
  for (const char* precision : {"fp32", "bf16"}) {
    const Gathered saved =
        run_and_gather({.dp = 2, .sharding = kOptimizerState}, precision, config, 2);
    const Gathered expected = run_and_gather({}, precision, config, 3);
    for (const Layout& layout :
         {Layout{}, Layout{.dp = 2, .sharding = kOptimizerState},
          Layout{.dp = 2, .sharding = Sharding::kParameters},
          Layout{.dp = 4, .sharding = Sharding::kGradients, .two_level = true},
          Layout{.dp = 2, .on_host = true}}) {
      Gathered resumed;
      std::mutex mutex;
      comm::run_threads({.world_size = layout.world()}, [&](comm::Backend& backend) {
        Rig rig(backend, layout, precision_policy(precision), config);
        rig.store->fill([](nn::Parameter& parameter) { parameter.data().zero_(); });
        for (StateSlice& slice : rig.optimizer->state_slices(/*owner_only=*/false)) {
          slice.values.copy_(saved.at(slice.part->name + "/" + slice.kind)
                                 .narrow(0, slice.box_begin, slice.values.numel()));
        }
        rig.optimizer->set_num_updates(2);
        rig.optimizer->refresh_parameters();
        Gathered loaded;
        gather_parameters(loaded, rig.stage);
        for (const auto& [name, value] : loaded) EXPECT_TRUE(value.equal(saved.at(name))) << name;
        rig.set_gradients(3);
        (void)rig.optimizer->step(lr_of(3), decay_of(3));
        EXPECT_EQ(rig.optimizer->num_updates(), 3);
        Gathered parameters;
        gather_parameters(parameters, rig.stage);
        const std::lock_guard lock(mutex);
        gather_into(resumed, rig.optimizer->state_slices(true));
        for (const auto& [name, value] : parameters) resumed[name] = value;
      });
      expect_same_bits(resumed, expected);
    }
  }
}

TEST(ShardedOptimizer, StateBytesPerRank) {
  for (const auto& [precision, tensors] : std::map<std::string, int>{{"fp32", 2}, {"bf16", 3}}) {
    std::int64_t whole = 0;
    std::int64_t elements = 0;
    std::vector<std::int64_t> shards(4);
    for (const bool sharded : {false, true}) {
      comm::run_threads({.world_size = 4}, [&, precision = precision](comm::Backend& backend) {
        Rig rig(backend, {.dp = 4, .sharding = sharded ? kOptimizerState : Sharding::kNothing},
                precision_policy(precision), adam_config());
        const std::int64_t bytes = rig.optimizer->state_bytes();
        if (sharded) shards[static_cast<std::size_t>(backend.rank())] = bytes;
        if (!sharded && backend.rank() == 0) {
          whole = bytes;
          for (const Piece& piece : rig.store->pieces()) elements += piece.length();
        }
      });
    }
    EXPECT_EQ(whole, elements * 4 * tensors) << "moments, and main parameters only with bf16";
    EXPECT_EQ(std::accumulate(shards.begin(), shards.end(), std::int64_t{0}), whole);
    // Shards are lines of 256 bytes, so that ranks share so small a model unevenly.
    EXPECT_LT(*std::max_element(shards.begin(), shards.end()), whole);
  }
}

TEST(Optimizer, NonFiniteGradientsSkipTheStepOnEveryRank) {
  for (const double bad : {std::numeric_limits<double>::infinity(), kNaN}) {
    for (const Layout& layout :
         {Layout{.dp = 2, .sharding = kOptimizerState}, Layout{.tp = 2}, Layout{.pp = 2},
          Layout{.dp = 2, .sharding = Sharding::kParameters}}) {
      SCOPED_TRACE(testing::Message() << layout);
      comm::run_threads({.world_size = 2}, [&](comm::Backend& backend) {
        Rig rig(backend, layout, precision_policy("bf16"), adam_config());
        rig.set_gradients(1);
        (void)rig.optimizer->step(0.1, 0.1);
        Gathered before;
        gather_into(before, rig.optimizer->state_slices(false));
        gather_parameters(before, rig.stage);
        rig.set_gradients(2);
        // Only one rank sees it: the owner of the element, or where all hold it, rank 0.
        for (Piece& piece : rig.store->pieces()) {
          const bool here = layout.sharded() || backend.rank() == 0;
          const bool wanted = piece.part->name == "layers.0.q" && piece.box_begin == 0;
          if (here && wanted) piece.grad.narrow(0, 0, 1).fill_(bad);
        }
        const OptimizerStepResult result = rig.optimizer->step(0.1, 0.1);
        EXPECT_TRUE(result.skipped);
        EXPECT_EQ(rig.optimizer->num_updates(), 1);
        Gathered after;
        gather_into(after, rig.optimizer->state_slices(false));
        gather_parameters(after, rig.stage);
        ASSERT_EQ(before.size(), after.size());
        for (const auto& [name, value] : before) {
          EXPECT_TRUE(after.at(name).nan_to_num(-1).equal(value.nan_to_num(-1))) << name;
        }
      });
    }
  }
}

// Main parameters and moments of their own on the host: equal to the bit, and not the parameters'.
TEST(Optimizer, StateOnTheHost) {
  config::OptimizerConfig config = adam_config();
  config.clip_grad = 0;
  for (const char* precision : {"fp32", "bf16"}) {
    expect_same_bits(run_and_gather({.on_host = true}, precision, config, kSteps),
                     run_and_gather({}, precision, config, kSteps));
  }
  const auto backend = comm::make_single_backend();
  Rig usual(*backend, {}, precision_policy("fp32"), config);
  Rig on_host(*backend, {.on_host = true}, precision_policy("fp32"), config);
  EXPECT_EQ(on_host.optimizer->state_bytes(), usual.optimizer->state_bytes() * 2)
      << "main parameters and gradients besides two moments";
}

TEST(Optimizer, SmallGradientsAreNotClipped) {
  const auto backend = comm::make_single_backend();
  config::OptimizerConfig config = adam_config();
  config.clip_grad = 1e6;
  Rig rig(*backend, {}, precision_policy("fp64"), config);
  rig.set_gradients(1);
  EXPECT_EQ(rig.optimizer->step(0.1, 0).clip_factor, 1.0);
}

TEST(Optimizer, ResetStartsFromTheParameters) {
  const auto backend = comm::make_single_backend();
  Rig rig(*backend, {}, precision_policy("bf16"), adam_config());
  rig.set_gradients(1);
  (void)rig.optimizer->step(0.1, 0.1);
  for (auto& parameter : rig.stage.parameters) parameter->data().fill_(0.5);
  rig.optimizer->reset_from_parameters();
  EXPECT_EQ(rig.optimizer->num_updates(), 0);
  for (const StateSlice& slice : rig.optimizer->state_slices(true)) {
    const double expected = slice.kind == "main_param" ? 0.5 : 0.0;
    EXPECT_EQ(slice.values.min().item<double>(), expected);
    EXPECT_EQ(slice.values.max().item<double>(), expected);
  }
}

TEST(Optimizer, RefusesUnknownKinds) {
  const auto backend = comm::make_single_backend();
  config::OptimizerConfig config = adam_config();
  config.optimizer = "adaptive_muon";
  EXPECT_THROW(Rig(*backend, {}, precision_policy("fp32"), config), Error);
  EXPECT_THROW(Rig(*backend, {}, precision_policy("bf16_state"), sgd_config(0.9)), Error);
}

}  // namespace
}  // namespace pentatron::optimizer
