// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>

#include "pentatron/base/error.h"
#include "pentatron/base/temp_folder.h"
#include "pentatron/checkpoint/reader.h"
#include "pentatron/checkpoint/store.h"
#include "pentatron/training/checkpointing.h"
#include "pentatron/training/test_support.h"

// What a run's options make of its stores, and checkpoints between all of them.
namespace pentatron::training {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary
using distributed::ShardCut;
using distributed::Sharding;
namespace fs = std::filesystem;

ChangeConfig strategy(const std::string& name) {
  return [name](config::RunConfig& c) {
    c.parallel.use_megatron_fsdp = true;
    c.parallel.data_parallel_sharding_strategy = name;
  };
}

distributed::StoreOptions options_under(const Layout& layout, const ChangeConfig& change) {
  distributed::StoreOptions options;
  with_engine(tiny_config(layout, change), [&](Engine& engine) {
    if (engine.context().rank() == 0) options = engine.optimizer().store(0).options();
  });
  return options;
}

TEST(EngineStore, ShardingFollowsTheOptions) {
  const Layout dp{.dp = 2};
  const Layout sharded{.dp = 2, .sharded = true};
  EXPECT_EQ(options_under(dp, {}).sharding, Sharding::kNothing);
  EXPECT_EQ(options_under(sharded, {}).sharding, Sharding::kOptimizer);
  EXPECT_EQ(options_under(dp, strategy("no_shard")).sharding, Sharding::kNothing);
  // The strategy alone decides, whatever else asks for shards.
  EXPECT_EQ(options_under(sharded, strategy("no_shard")).sharding, Sharding::kNothing);
  EXPECT_EQ(options_under(sharded, strategy("optim_grads")).sharding, Sharding::kGradients);
  EXPECT_EQ(options_under(dp, strategy("optim")).sharding, Sharding::kOptimizer);
  EXPECT_EQ(options_under(dp, strategy("optim_grads")).sharding, Sharding::kGradients);
  EXPECT_EQ(options_under(dp, strategy("optim_grads_params")).sharding, Sharding::kParameters);
  // Without the switch the strategy says nothing.
  EXPECT_EQ(options_under(dp,
                          [](config::RunConfig& c) {
                            c.parallel.data_parallel_sharding_strategy = "optim_grads";
                          })
                .sharding,
            Sharding::kNothing);
  EXPECT_FALSE(options_under(sharded, {}).overlap_gather);
  EXPECT_TRUE(options_under(sharded, [](config::RunConfig& c) {
                c.parallel.overlap_param_gather = true;
              }).overlap_gather);
  EXPECT_EQ(options_under(dp, {}).bucket_elements, 0);
  EXPECT_EQ(options_under(dp, [](config::RunConfig& c) { c.parallel.ddp_bucket_size = 700; })
                .bucket_elements,
            700);
  EXPECT_EQ(
      options_under(dp, [](config::RunConfig& c) { c.parallel.ddp_num_buckets = 3; }).num_buckets,
      3);
  EXPECT_FALSE(options_under({}, {}).state_on_host);
  EXPECT_TRUE(options_under({}, [](config::RunConfig& c) {
                c.optimizer.optimizer_cpu_offload = true;
              }).state_on_host);
  EXPECT_EQ(options_under(sharded, {}).cut, ShardCut::kElements);
  EXPECT_EQ(
      options_under(sharded, [](config::RunConfig& c) { c.optimizer.optimizer = "muon"; }).cut,
      ShardCut::kMatrices);
}

// Between steps a rank holds its shard of the parameters and nothing more; evaluation and training
// find them whole.
TEST(EngineStore, ShardedParametersAreFreeBetweenSteps) {
  std::map<std::string, std::pair<double, double>> losses;  // training, evaluation
  for (const char* name : {"no_shard", "optim_grads_params"}) {
    with_engine(tiny_config({.dp = 2}, strategy(name)), [&](Engine& engine) {
      const bool free = std::string(name) == "optim_grads_params";
      const auto whole = [&] {
        std::size_t count = 0;
        for (nn::Parameter* p : engine.stages().parameters()) count += p->has_storage() ? 1 : 0;
        return count;
      };
      const std::size_t expected = free ? 0 : engine.stages().parameters().size();
      EXPECT_EQ(whole(), expected);
      const double trained = train_steps(engine, 0, 3).back();
      EXPECT_EQ(whole(), expected);
      const EvaluationResult result = engine.evaluate(micro_batches(engine, 7));
      EXPECT_EQ(whole(), expected);
      if (engine.context().rank() == 0) losses[name] = {trained, result.loss_sum};
    });
  }
  EXPECT_NEAR(losses["no_shard"].first, losses["optim_grads_params"].first, 1e-5);
  EXPECT_NEAR(losses["no_shard"].second, losses["optim_grads_params"].second, 1e-3);
}

TEST(EngineStore, ShardedGradientsNeedAsManyMicroBatchesEverywhere) {
  for (const char* name : {"optim", "optim_grads", "optim_grads_params"}) {
    const bool refused = std::string(name) != "optim";
    with_engine(tiny_config({.dp = 2}, strategy(name)), [&](Engine& engine) {
      std::vector<Batch> batches = micro_batches(engine, 0);
      if (engine.context().rank() == 1) batches.pop_back();
      if (!refused) {
        EXPECT_TRUE(engine.train_step(batches, 0.01, 0.0).finite);
        return;
      }
      EXPECT_THROW((void)engine.train_step(batches, 0.01, 0.0), Error);
      EXPECT_EQ(engine.evaluate(micro_batches(engine, 1)).num_valid_tokens > 0, true);
    });
  }
}

struct Kind {
  std::string name;
  Layout layout;
  ChangeConfig change;
};

// No weight, moment or gradient in more than 16 bits.
void keep_in_bf16(config::OptimizerConfig& optimizer) {
  optimizer.optimizer = "adam";
  optimizer.use_precision_aware_optimizer = true;
  optimizer.main_params_dtype = optimizer.main_grads_dtype = "bf16";
  optimizer.exp_avg_dtype = optimizer.exp_avg_sq_dtype = "bf16";
}

// Everything that a state can be stored from or loaded into.
std::vector<Kind> kinds(const std::string& optimizer) {
  const auto with = [optimizer](const ChangeConfig& more) -> ChangeConfig {
    return [optimizer, more](config::RunConfig& c) {
      c.optimizer.optimizer = optimizer;
      c.training.precision = "bf16";  // main parameters of their own
      if (optimizer == "adam in bf16") keep_in_bf16(c.optimizer);
      if (more) more(c);
    };
  };
  const auto host = [](config::RunConfig& c) { c.optimizer.optimizer_cpu_offload = true; };
  return {{"alone", {}, with({})},
          {"state on the host", {}, with(host)},
          {"optimizer", {.dp = 2, .sharded = true}, with({})},
          {"gradients", {.tp = 2, .dp = 2}, with(strategy("optim_grads"))},
          {"parameters", {.pp = 2, .dp = 2}, with(strategy("optim_grads_params"))}};
}

config::RunConfig in_folder(const Kind& kind, const fs::path& save, const fs::path& load) {
  config::RunConfig config = tiny_config(kind.layout, kind.change);
  config.checkpoint.save = save.string();
  config.checkpoint.load = load.string();
  return config;
}

std::string saved_hash(const fs::path& root, std::int64_t iteration) {
  checkpoint::CheckpointReader reader(root / checkpoint::iteration_folder(iteration));
  return checkpoint::state_hash(reader);
}

// Saved from each kind and loaded into each other: saved again it is the same state.
TEST(EngineStore, CheckpointsGoFromAnyToAny) {
  for (const char* optimizer : {"adam", "adam in bf16", "sgd", "lion", "muon", "soap"}) {
    const TempFolder folder;
    const std::vector<Kind> all = kinds(optimizer);
    for (const Kind& from : all) {
      const fs::path origin = folder.path() / from.name;
      const config::RunConfig config = in_folder(from, origin, "");
      with_engine(config, [&](Engine& engine) {
        (void)train_steps(engine, 0, 2);
        save_engine(engine, state_after(config, 2), -1);
      });
      for (const Kind& to : all) {
        const fs::path copy = folder.path() / (from.name + " to " + to.name);
        const config::RunConfig target = in_folder(to, copy, origin);
        with_engine(target, [&](Engine& engine) {
          const LoadResult loaded = load_engine(engine, state_after(target, 0));
          EXPECT_TRUE(loaded.loaded);
          save_engine(engine, loaded.state, -1);
        });
        EXPECT_EQ(saved_hash(copy, 2), saved_hash(origin, 2))
            << optimizer << " from " << from.name << " to " << to.name;
      }
    }
  }
}

// Saved after two steps and resumed for two more in the same layout: the state of four steps.
TEST(EngineStore, ResumesToTheSameStateHash) {
  for (const char* optimizer : {"adam", "adam in bf16", "lion", "muon", "soap"}) {
    for (const Kind& kind : kinds(optimizer)) {
      const TempFolder folder;
      const config::RunConfig straight = in_folder(kind, folder.path() / "straight", "");
      with_engine(straight, [&](Engine& engine) {
        (void)train_steps(engine, 0, 4);
        save_engine(engine, state_after(straight, 4), -1);
      });
      const config::RunConfig broken = in_folder(kind, folder.path() / "broken", "");
      with_engine(broken, [&](Engine& engine) {
        (void)train_steps(engine, 0, 2);
        save_engine(engine, state_after(broken, 2), -1);
      });
      const config::RunConfig resumed =
          in_folder(kind, folder.path() / "broken", folder.path() / "broken");
      with_engine(resumed, [&](Engine& engine) {
        EXPECT_TRUE(load_engine(engine, state_after(resumed, 0)).loaded);
        (void)train_steps(engine, 2, 4);
        save_engine(engine, state_after(resumed, 4), -1);
      });
      EXPECT_EQ(saved_hash(folder.path() / "broken", 4), saved_hash(folder.path() / "straight", 4))
          << optimizer << ", " << kind.name;
    }
  }
}

}  // namespace
}  // namespace pentatron::training
