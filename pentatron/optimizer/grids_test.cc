// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "pentatron/base/error.h"
#include "pentatron/optimizer/model_optimizer.h"
#include "pentatron/optimizer/optimizer.h"
#include "pentatron/tensor/ops.h"

// One model on two grids, each with its buffer, reducer and optimizer; frozen weights; steps that
// run again.
namespace pentatron::optimizer {
namespace {

using distributed::Sharding;

constexpr int kNumLayers = 2;

comm::RankGrid make_grid(std::int64_t ep, std::int64_t dp) {
  return comm::RankGrid(
      {{"tp", 1, {}}, {"cp", 1, {}}, {"ep", ep, {}}, {"dp", dp, {}}, {"pp", 1, {}}});
}

config::OptimizerConfig adam_config() {
  config::OptimizerConfig c;
  c.clip_grad = 1.0;
  c.adam_eps = 1e-8;
  return c;
}

// Fixed values by name, on the spot `salt`.
Tensor values_of(const std::string& name, const Shape& shape, int salt) {
  double phase = salt * 3.1;
  for (const char c : name) phase = std::fmod(phase * 1.7 + c, 97.0);
  return tensor::arange(tensor::num_elements(shape), DType::Double)
      .mul(0.83)
      .add(phase)
      .sin()
      .view(shape);
}

struct Weight {
  std::string grid;
  std::unique_ptr<nn::Parameter> parameter;
};

// Per layer a dense matrix (with a padding row) that all ranks share and an expert of this ep rank;
// optionally a frozen matrix.
struct Model {
  Model(comm::ParallelContext& context, const PrecisionPolicy& policy, bool with_frozen = false) {
    for (int layer = 0; layer < kNumLayers; ++layer) {
      const std::string prefix = "layers." + std::to_string(layer);
      add(layer, prefix + ".dense", "dense", {5, 3}, 1, policy);
      add(layer, prefix + ".experts." + std::to_string(context.coordinate("ep")), "expert", {4, 7},
          0, policy);
      if (with_frozen) {
        add(layer, prefix + ".frozen", "dense", {6, 2}, 2, policy).set_trainable(false);
      }
    }
  }

  nn::Parameter& add(int layer, const std::string& name, const std::string& grid,
                     const Shape& shape, std::int64_t padding, const PrecisionPolicy& policy) {
    nn::ShardPart part;
    part.name = name;
    part.logical_shape = shape;
    part.box = {Shape(shape.size(), 0), shape};
    part.local_rows = shape[0] + padding;
    part.grid = grid;
    Shape local = shape;
    local[0] += padding;
    weights.push_back(
        {grid, std::make_unique<nn::Parameter>(name, nn::ShardSpec{{part}, local}, policy)});
    nn::Parameter& parameter = *weights.back().parameter;
    nn::part_view(parameter.data(), part).copy_(values_of(name, shape, 0));
    const std::string unit = "unit" + std::to_string(layer);
    if (units.empty() || units.back().name != unit) units.push_back({unit, {}});
    units.back().parameters.push_back(&parameter);
    return parameter;
  }

  // What the backward of a rank brings in a micro-batch.
  void backward(std::int64_t rank, int micro_batch) {
    for (Weight& weight : weights) {
      if (!weight.parameter->trainable()) continue;
      Tensor grad = tensor::zeros(weight.parameter->spec().local_shape, DType::Double);
      const nn::ShardPart& part = weight.parameter->spec().parts[0];
      nn::part_view(grad, part).copy_(gradient_of(part, rank, micro_batch));
      write_grad(*weight.parameter, grad);
    }
  }
  static Tensor gradient_of(const nn::ShardPart& part, std::int64_t rank, int micro_batch) {
    return values_of(part.name, part.logical_shape, 1 + static_cast<int>(rank) * 10 + micro_batch);
  }

  std::vector<Weight> weights;
  std::vector<nn::Unit> units;
};

// The store and the optimizer of the dense grid.
struct Grid {
  Grid(Model& model, comm::ParallelContext& context, const PrecisionPolicy& policy,
       Sharding sharding)
      : store(model.units, context, {.sharding = sharding, .grid = "dense", .bucket_bytes = 100},
              policy),
        optimizer(store, context, adam_config(), policy) {}

  distributed::ParameterStore store;
  Optimizer optimizer;
};

// The options of a run that shards so much.
config::RunConfig run_config(const std::string& strategy) {
  config::RunConfig config;
  config.optimizer = adam_config();
  config.parallel.use_megatron_fsdp = true;
  config.parallel.data_parallel_sharding_strategy = strategy;
  return config;
}

// Adam's first step and the norm, from the plain sums over the ranks that hold a weight.
struct Reference {
  Reference(std::int64_t ep, std::int64_t dp) {
    double squares = 0;
    std::map<std::string, Tensor> sums;
    for (std::int64_t rank = 0; rank < ep * dp; ++rank) {
      const auto backend = comm::make_fake_backend(rank, ep * dp);
      comm::ParallelContext context(*backend, make_grid(ep, dp));
      Model model(context, precision_policy("fp64"));
      for (const Weight& weight : model.weights) {
        const nn::ShardPart& part = weight.parameter->spec().parts[0];
        const Tensor g = Model::gradient_of(part, rank, 0);
        Tensor& sum = sums[part.name];
        sum = sum.defined() ? sum.add(g) : g;
      }
    }
    for (const auto& [name, sum] : sums) squares += sum.square().sum().item<double>();
    norm = std::sqrt(squares);
    const double clip = std::min(1.0, 1.0 / (norm + 1e-6));
    for (const auto& [name, sum] : sums) {
      const Tensor g = sum.mul(clip);
      const Tensor p = values_of(name, tensor::shape_of(sum), 0);
      updated[name] = p.sub(p.mul(0.1).add(g.div(g.abs().add(1e-8))).mul(0.01));
    }
  }
  double norm = 0;
  std::map<std::string, Tensor> updated;
};

// Dense weights are summed over all four ranks, experts over the two that hold the same; the norm
// that clips is the whole model's.
TEST(ModelOptimizer, TwoGridsOfOneModelReduceOverTheirOwnAxes) {
  const Reference reference(2, 2);
  ASSERT_EQ(reference.updated.size(), 6U);
  const PrecisionPolicy policy = precision_policy("fp64");
  for (const char* strategy : {"no_shard", "optim", "optim_grads", "optim_grads_params"}) {
    for (const bool with_events : {false, true}) {
      SCOPED_TRACE(testing::Message() << strategy << " events " << with_events);
      comm::run_threads({.world_size = 4}, [&](comm::Backend& backend) {
        comm::ParallelContext context(backend, make_grid(2, 2));
        Model model(context, policy);
        ModelOptimizer optimizer(
            model.units,
            {{.grid = "dense", .context = &context, .shard_over = {"dp", "cp", "ep"}},
             {.grid = "expert", .context = &context, .shard_over = {"dp", "cp"}}},
            run_config(strategy), policy);
        ASSERT_EQ(optimizer.num_stores(), 2U);
        optimizer.begin_step();
        model.backward(backend.rank(), 0);
        if (with_events) {
          optimizer.begin_last_micro_batch(0, kNumLayers);
          for (int unit = kNumLayers; unit-- > 0;) {
            optimizer.on_backward_begin(unit);
            optimizer.on_backward_end(unit);
          }
        }
        optimizer.finish_step();
        const auto scalar = [](double value) { return tensor::scalar(value, DType::Double); };
        const DeviceStepResult result =
            optimizer.launch_step({.lr = scalar(0.01), .weight_decay = scalar(0.1)});
        EXPECT_NEAR(result.grad_norm.item<double>(), reference.norm, 1e-12 * reference.norm);
        EXPECT_EQ(optimizer.num_updates(), 1);
        for (const Weight& weight : model.weights) {
          const nn::ShardPart& part = weight.parameter->spec().parts[0];
          const Tensor difference =
              nn::part_view(weight.parameter->data(), part).sub(reference.updated.at(part.name));
          EXPECT_LT(difference.abs().max().item<double>(), 1e-12) << part.name;
        }
      });
    }
  }
}

TEST(ModelOptimizer, EveryGridNeedsAPlace) {
  const auto backend = comm::make_single_backend();
  comm::ParallelContext context(*backend, make_grid(1, 1));
  const PrecisionPolicy policy = precision_policy("fp64");
  Model model(context, policy);
  EXPECT_THROW(ModelOptimizer(model.units, {{.grid = "dense", .context = &context}},
                              run_config("optim"), policy),
               Error);
  EXPECT_THROW(static_cast<void>(store_options(run_config("everything"), {})), Error);
}

// Checkpoints hold frozen weights too: whole, once, without padding, and a load writes into them.
TEST(FrozenParameters, AreInTheStateAndStay) {
  for (const Sharding sharding : {Sharding::kNothing, Sharding::kOptimizer}) {
    std::map<std::string, std::int64_t> held;
    std::mutex mutex;
    comm::run_threads({.world_size = 2}, [&](comm::Backend& backend) {
      const PrecisionPolicy policy = precision_policy("bf16");
      comm::ParallelContext context(backend, make_grid(1, 2));
      Model model(context, policy, /*with_frozen=*/true);
      Grid grid(model, context, policy, sharding);
      nn::Parameter& frozen = *model.weights[2].parameter;
      ASSERT_EQ(frozen.local_name(), "layers.0.frozen");
      const Tensor before = frozen.data().clone();
      double squares = 0;
      for (const Weight& weight : model.weights) {
        if (weight.grid != "dense") continue;
        squares += weight.parameter->data().to(DType::Double).square().sum().item<double>();
      }
      EXPECT_NEAR(grid.optimizer.parameter_norm(), std::sqrt(squares), 1e-12 * squares);
      grid.store.begin_step();
      model.weights[0].parameter->main_grad().fill_(0.5);
      grid.store.finish_step();
      (void)grid.optimizer.step(0.1, 0.1);
      EXPECT_TRUE(frozen.data().equal(before));
      {
        const std::lock_guard lock(mutex);
        for (const StateSlice& slice : grid.optimizer.state_slices(/*owner_only=*/true)) {
          held[slice.part->name + "/" + slice.kind] += slice.values.numel();
        }
      }
      // A load on every rank, as of a checkpoint.
      int found = 0;
      for (StateSlice& slice : grid.optimizer.state_slices(/*owner_only=*/false)) {
        if (slice.part->name != "layers.0.frozen") continue;
        ++found;
        EXPECT_EQ(slice.kind, "main_param");
        EXPECT_EQ(slice.box_begin, 0);
        EXPECT_TRUE(slice.values.equal(before.narrow(0, 0, 6).reshape({-1})));
        slice.values.fill_(3.0);
      }
      EXPECT_EQ(found, 1);
      grid.optimizer.refresh_parameters();
      EXPECT_EQ(frozen.data().narrow(0, 0, 6).min().item<double>(), 3.0);
      EXPECT_EQ(frozen.data().narrow(0, 6, 2).abs().max().item<double>(), 0.0) << "padding";
    });
    EXPECT_EQ(held["layers.0.frozen/main_param"], 12);
    EXPECT_EQ(held["layers.1.frozen/main_param"], 12);
    EXPECT_EQ(held.count("layers.0.frozen/exp_avg"), 0U);
    EXPECT_EQ(held["layers.0.dense/main_param"], 15);
    EXPECT_EQ(held["layers.0.dense/exp_avg"], 15);
  }
}

// Bits of everything that a step may change.
std::vector<Tensor> state_of(Model& model, Grid& grid) {
  std::vector<Tensor> all;
  for (Weight& weight : model.weights) {
    if (weight.grid == "dense") all.push_back(weight.parameter->data().clone());
  }
  for (const StateSlice& slice : grid.optimizer.state_slices(false)) {
    all.push_back(slice.values.clone());
  }
  return all;
}

void expect_same(const std::vector<Tensor>& actual, const std::vector<Tensor>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) EXPECT_TRUE(actual[i].equal(expected[i])) << i;
}

// Until the optimizer steps a step changes nothing but gradients, so it can run again in place: the
// same gradients, and after the update the same state, as if it had run once.
TEST(Step, RunsAgainInPlaceBitForBit) {
  for (const char* precision : {"fp32", "bf16"}) {
    for (const Sharding sharding :
         {Sharding::kNothing, Sharding::kOptimizer, Sharding::kGradients, Sharding::kParameters}) {
      SCOPED_TRACE(testing::Message() << precision << " sharding " << static_cast<int>(sharding));
      comm::run_threads({.world_size = 2}, [&](comm::Backend& backend) {
        const PrecisionPolicy policy = precision_policy(precision);
        comm::ParallelContext context(backend, make_grid(1, 2));
        const auto run_micro_batches = [&](Model& model, Grid& grid, int step, int count) {
          grid.store.begin_step();
          for (int i = 0; i < count; ++i) {
            if (i == 2) grid.store.begin_last_micro_batch(0, kNumLayers);
            for (Weight& weight : model.weights) {
              if (weight.grid != "dense") continue;
              const nn::ShardPart& part = weight.parameter->spec().parts[0];
              Tensor grad = tensor::zeros(weight.parameter->spec().local_shape, policy.main_grad);
              nn::part_view(grad, part)
                  .copy_(Model::gradient_of(part, backend.rank(), step * 3 + i));
              write_grad(*weight.parameter, grad);
            }
          }
        };
        const auto finish = [](Grid& grid) {
          for (int layer = kNumLayers; layer-- > 0;) grid.store.on_backward_end(layer);
          grid.store.finish_step();
        };
        Model once(context, policy);
        Grid once_grid(once, context, policy, sharding);
        Model again(context, policy);
        Grid again_grid(again, context, policy, sharding);
        for (int step = 0; step < 3; ++step) {
          run_micro_batches(once, once_grid, step, 3);
          finish(once_grid);
          const std::vector<Tensor> before = state_of(again, again_grid);
          // Broken off after two micro-batches, then run to its end twice.
          run_micro_batches(again, again_grid, step, 2);
          for (int run = 0; run < 2; ++run) {
            run_micro_batches(again, again_grid, step, 3);
            finish(again_grid);
            for (std::size_t i = 0; i < once_grid.store.pieces().size(); ++i) {
              EXPECT_TRUE(
                  again_grid.store.pieces()[i].grad.equal(once_grid.store.pieces()[i].grad));
            }
          }
          expect_same(state_of(again, again_grid), before);
          EXPECT_EQ(again_grid.optimizer.num_updates(), step);
          const OptimizerStepResult a = once_grid.optimizer.step(0.01, 0.1);
          const OptimizerStepResult b = again_grid.optimizer.step(0.01, 0.1);
          EXPECT_EQ(a.grad_norm, b.grad_norm);
          expect_same(state_of(again, again_grid), state_of(once, once_grid));
        }
        EXPECT_FALSE(state_of(once, once_grid)[0].equal(
            Model(context, policy).weights[0].parameter->data()));
      });
    }
  }
}

}  // namespace
}  // namespace pentatron::optimizer
