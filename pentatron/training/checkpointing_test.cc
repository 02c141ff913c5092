// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/checkpointing.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "pentatron/base/temp_folder.h"
#include "pentatron/base/test_support.h"
#include "pentatron/checkpoint/reader.h"
#include "pentatron/checkpoint/store.h"
#include "pentatron/models/registry.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/training/llama_test_support.h"

namespace pentatron::training {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary
namespace fs = std::filesystem;

config::RunConfig with_folders(config::RunConfig config, const fs::path& save,
                               const fs::path& load) {
  config.checkpoint.save = save.string();
  config.checkpoint.load = load.string();
  return config;
}

std::string hash_of(const fs::path& root, std::int64_t iteration) {
  checkpoint::CheckpointReader reader(root / checkpoint::iteration_folder(iteration));
  return checkpoint::state_hash(reader);
}

// Largest moment (first and second) of this rank's optimizer state.
double largest_moment(Engine& engine) {
  double largest = 0;
  for (const optimizer::StateSlice& slice : engine.optimizer().state_slices(false)) {
    if (slice.kind == "main_param" || slice.values.numel() == 0) continue;
    largest = std::max(largest, slice.values.abs().max().item<double>());
  }
  return largest;
}

// Trains `steps` from scratch and saves under `root`; the weights that were saved.
Tensors save_run(const config::RunConfig& config, const fs::path& root, std::int64_t steps) {
  Tensors weights;
  with_engine(with_folders(config, root, ""), [&](Engine& engine) {
    (void)train_steps(engine, 0, steps);
    Tensors mine = engine.gather_parameters();
    save_engine(engine, state_after(config, steps), -1);
    if (engine.context().rank() == 0) weights = std::move(mine);
  });
  return weights;
}

// What loading into `config` gives on one rank or more.
struct Loaded {
  LoadResult result;
  Tensors weights;
  std::int64_t num_updates = 0;
  double largest_moment = 0;
};
Loaded load_run(const config::RunConfig& config, const TrainState& asked) {
  Loaded loaded;
  with_engine(config, [&](Engine& engine) {
    LoadResult result = load_engine(engine, asked);
    Tensors weights = engine.gather_parameters();
    if (engine.context().rank() != 0) return;
    loaded = {.result = std::move(result),
              .weights = std::move(weights),
              .num_updates = engine.optimizer().num_updates(),
              .largest_moment = largest_moment(engine)};
  });
  return loaded;
}

void expect_refused(const config::RunConfig& config, const TrainState& asked,
                    std::string_view part) {
  expect_error(ErrorKind::kCheckpoint, part, [&] { (void)load_run(config, asked); });
}

Tensors initial_weights(const config::RunConfig& config) {
  Tensors weights;
  with_engine(config, [&](Engine& engine) { weights = engine.gather_parameters(); });
  return weights;
}

TEST(LoadRules, FromScratchOnlyWhenLoadIsSaveAndNothingIsThere) {
  const TempFolder folder;
  const fs::path root = folder.path() / "run";
  const config::RunConfig base = tiny_config();
  const TrainState asked = state_after(base, 0);
  // The same folder, spelled in another way too; absent or empty.
  for (const fs::path& spelling : {root, folder.path() / "x" / ".." / "run"}) {
    const Loaded loaded = load_run(with_folders(base, root, spelling), asked);
    EXPECT_FALSE(loaded.result.loaded);
    EXPECT_EQ(to_json_text(loaded.result.state), to_json_text(asked));
    EXPECT_EQ(first_difference(loaded.weights, initial_weights(base)), "");
    fs::create_directories(root);
  }
  // Nothing to load at all.
  EXPECT_FALSE(load_run(with_folders(base, root, ""), asked).result.loaded);
  // Elsewhere: refused, whether --save is given or not.
  const fs::path elsewhere = folder.path() / "elsewhere";
  expect_refused(with_folders(base, root, elsewhere), asked, "no checkpoint there");
  expect_refused(with_folders(base, "", elsewhere), asked, elsewhere.string());
  config::RunConfig strict = with_folders(base, root, root);
  strict.checkpoint.exit_on_missing_checkpoint = true;
  expect_refused(strict, asked, "--exit-on-missing-checkpoint");
}

TEST(LoadRules, ADamagedCheckpointIsNeverScratch) {
  const TempFolder folder;
  const fs::path root = folder.path() / "run";
  const config::RunConfig base = tiny_config();
  (void)save_run(base, root, 1);
  const config::RunConfig again = with_folders(base, root, root);
  const TrainState asked = state_after(base, 0);
  EXPECT_TRUE(load_run(again, asked).result.loaded);
  const fs::path iteration = root / checkpoint::iteration_folder(1);
  // A flipped byte in the middle of the tensors is found by the checksum.
  const fs::path shard = iteration / "rank_00000.safetensors";
  {
    std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
    ASSERT_TRUE(file.good());
    file.seekg(static_cast<std::streamoff>(fs::file_size(shard) / 2));
    const char byte = static_cast<char>(file.peek() ^ 1);
    file.seekp(static_cast<std::streamoff>(fs::file_size(shard) / 2));
    file.put(byte);
  }
  expect_refused(again, asked, "rank_00000.safetensors");
  fs::remove(iteration / "manifest.json");
  expect_refused(again, asked, root.string());
}

TEST(LoadRules, ResumeTakesStateCountersAndMoments) {
  const TempFolder folder;
  const config::RunConfig base = tiny_config();
  const Tensors saved = save_run(base, folder.path(), 2);
  const Loaded loaded =
      load_run(with_folders(base, folder.path(), folder.path()), state_after(base, 0));
  EXPECT_TRUE(loaded.result.loaded);
  TrainState expected = state_after(base, 2);
  expected.loss_scaler.hysteresis_left = base.optimizer.hysteresis;  // of a scale that never moved
  EXPECT_EQ(to_json_text(loaded.result.state), to_json_text(expected));
  EXPECT_EQ(loaded.num_updates, 2);
  EXPECT_GT(loaded.largest_moment, 0);
  EXPECT_EQ(first_difference(loaded.weights, saved), "");
  // So that equality above means something.
  EXPECT_NE(first_difference(loaded.weights, initial_weights(base)), "");
}

TEST(LoadRules, FinetuneTakesTheWeightsAlone) {
  const TempFolder folder;
  const config::RunConfig base = tiny_config();
  const Tensors saved = save_run(base, folder.path(), 2);
  TrainState asked = state_after(base, 0);
  asked.data_identity = "corpus B";
  config::RunConfig config = with_folders(base, "", folder.path());
  expect_refused(config, asked, "--finetune");
  config.checkpoint.finetune = true;
  asked.schedule = R"({"max_lr":7})";
  asked.finetune = true;  // what is saved from here on says so
  const Loaded loaded = load_run(config, asked);
  EXPECT_TRUE(loaded.result.loaded);
  EXPECT_EQ(to_json_text(loaded.result.state), to_json_text(asked));
  EXPECT_EQ(loaded.num_updates, 0);
  EXPECT_EQ(loaded.largest_moment, 0);
  EXPECT_EQ(first_difference(loaded.weights, saved), "");
}

TEST(LoadRules, AnotherModelIsNamedFieldByField) {
  const TempFolder folder;
  (void)save_run(tiny_config(), folder.path(), 1);
  const config::RunConfig other = tiny_config({}, [](config::RunConfig& c) {
    c.model.num_layers = 1;
    c.model.ffn_hidden_size = 48;
  });
  config::RunConfig config = with_folders(other, "", folder.path());
  for (const bool finetune : {false, true}) {
    config.checkpoint.finetune = finetune;
    expect_refused(config, state_after(other, 0),
                   "another model: ffn_hidden_size 128 in the checkpoint, 48 asked; num_layers 2 "
                   "in the checkpoint, 1 asked.");
  }
}

TEST(LoadRules, AnotherSeedOrDropoutIsANewRun) {
  const TempFolder folder;
  const Tensors saved = save_run(tiny_config(), folder.path(), 1);
  const config::RunConfig other = tiny_config({}, [](config::RunConfig& c) {
    c.model.seed = 5;
    c.model.hidden_dropout = 0;
  });
  config::RunConfig config = with_folders(other, "", folder.path());
  expect_refused(config, state_after(other, 0),
                 "hidden_dropout 0.1 in the checkpoint, 0.0 asked; seed 1234 in the checkpoint, 5 "
                 "asked.");
  config.checkpoint.finetune = true;
  EXPECT_EQ(first_difference(load_run(config, state_after(other, 0)).weights, saved), "");
}

TEST(LoadRules, EvaluationAloneMayUseOtherDataAndSchedules) {
  const TempFolder folder;
  const Tensors saved = save_run(tiny_config(), folder.path(), 1);
  config::RunConfig config = with_folders(tiny_config(), "", folder.path());
  TrainState asked = state_after(config, 0);
  asked.data_identity = "corpus B";
  asked.schedule = R"({"max_lr":7})";
  expect_refused(config, asked, "other data");
  config.training.skip_train = true;
  const Loaded loaded = load_run(config, asked);
  EXPECT_EQ(loaded.result.state.iteration, 1);
  EXPECT_EQ(first_difference(loaded.weights, saved), "");
}

TEST(LoadRules, AnotherScheduleNeedsTheOverride) {
  const TempFolder folder;
  const Tensors saved = save_run(tiny_config(), folder.path(), 1);
  const config::RunConfig other =
      tiny_config({}, [](config::RunConfig& c) { c.optimizer.lr = 0.02; });
  config::RunConfig config = with_folders(other, "", folder.path());
  const TrainState asked = state_after(other, 0);
  expect_refused(config, asked, "max_lr 0.01 in the checkpoint, 0.02 asked.");
  expect_refused(config, asked, "--override-opt_param-scheduler");
  config.optimizer.override_opt_param_scheduler = true;
  const Loaded loaded = load_run(config, asked);
  EXPECT_EQ(loaded.result.state.schedule, asked.schedule);
  EXPECT_EQ(loaded.result.state.iteration, 1);
  EXPECT_EQ(loaded.num_updates, 1);
  EXPECT_EQ(first_difference(loaded.weights, saved), "");
}

TEST(LoadRules, TheScheduleOfTheCheckpointIsTakenWhenAsked) {
  const TempFolder folder;
  (void)save_run(tiny_config(), folder.path(), 1);
  config::RunConfig config = tiny_config({}, [](config::RunConfig& c) {
    c.optimizer.lr = 0.02;
    c.optimizer.use_checkpoint_opt_param_scheduler = true;
  });
  config = with_folders(config, "", folder.path());
  const Loaded loaded = load_run(config, state_after(config, 0));
  EXPECT_EQ(loaded.result.state.schedule, schedule_identity(tiny_config()));
  EXPECT_EQ(loaded.num_updates, 1);
  // What the learning rate's schedule does not decide must still agree.
  config.optimizer.clip_grad = 3;
  expect_refused(config, state_after(config, 0), "clip_grad 1.0 in the checkpoint, 3.0 asked.");
}

TEST(LoadRules, RanksMustAgree) {
  const config::RunConfig config = tiny_config({.dp = 2});
  with_engine(config, [](Engine& engine) {
    EXPECT_NO_THROW(check_agreement(engine.context(), "same", "their options"));
    expect_error(ErrorKind::kConfig, "rank 1 and rank 0 differ in their options: 1 and 0", [&] {
      check_agreement(engine.context(), std::to_string(engine.context().rank()), "their options");
    });
  });
}

// One rank's disk lacks the checkpoint: no rank may start from scratch or wait for the others.
TEST(LoadRules, ARankThatSeesNoCheckpointStopsAll) {
  const TempFolder folder;
  const fs::path there = folder.path() / "there";
  const fs::path empty = folder.path() / "empty";
  (void)save_run(tiny_config(), there, 2);
  const config::RunConfig config = tiny_config({.dp = 2});
  const TrainState asked = state_after(config, 0);
  const comm::ThreadsOptions world{
      .world_size = 2, .threads_per_rank = 1, .timeout = std::chrono::seconds(10)};
  comm::run_threads(world, [&](comm::Backend& backend) {
    const fs::path& seen = backend.rank() == 0 ? there : empty;
    comm::ParallelContext context(backend, comm::make_grids(config.parallel));
    Engine engine(with_folders(config, seen, seen), context);
    expect_error(ErrorKind::kConfig, "no checkpoint and iteration 2",
                 [&] { (void)load_engine(engine, asked); });
  });
}

TEST(LoadRules, WithoutOptimizerStateOnlyTheWeightsCanBeLoaded) {
  const TempFolder folder;
  config::RunConfig without = tiny_config();
  without.checkpoint.no_save_optim = true;
  const Tensors saved = save_run(without, folder.path() / "bare", 2);
  (void)save_run(tiny_config(), folder.path() / "full", 2);
  const TrainState asked = state_after(without, 0);
  expect_refused(with_folders(tiny_config(), "", folder.path() / "bare"), asked,
                 "holds no state of --optimizer adam");
  for (const char* name : {"bare", "full"}) {
    config::RunConfig config = with_folders(tiny_config(), "", folder.path() / name);
    config.checkpoint.no_load_optim = true;
    const Loaded loaded = load_run(config, asked);
    EXPECT_EQ(loaded.result.state.iteration, 2) << name;  // the place in the run is kept
    EXPECT_EQ(loaded.result.state.num_updates, 0) << name;
    EXPECT_EQ(loaded.num_updates, 0) << name;
    EXPECT_EQ(loaded.largest_moment, 0) << name;
    EXPECT_EQ(first_difference(loaded.weights, saved), "") << name;
  }
}

TEST(LoadRules, Bf16KeepsMainParametersExactly) {
  const TempFolder folder;
  const ChangeConfig bf16 = [](config::RunConfig& c) { c.training.precision = "bf16"; };
  const config::RunConfig base = tiny_config({.dp = 2, .sharded = true}, bf16);
  (void)save_run(base, folder.path() / "a", 2);
  // Loaded, saved again without a step, in another layout: the fp32 copies are the same bits.
  const config::RunConfig alone =
      with_folders(tiny_config({}, bf16), folder.path() / "b", folder.path() / "a");
  with_engine(alone, [&](Engine& engine) {
    const LoadResult result = load_engine(engine, state_after(base, 0));
    save_engine(engine, result.state, -1);
    // The bf16 weights are the rounded main parameters, not the initial ones.
    const optimizer::StateSlice slice = engine.optimizer().state_slices(false).at(0);
    EXPECT_EQ(slice.values.scalar_type(), DType::Float);
  });
  EXPECT_EQ(hash_of(folder.path() / "a", 2), hash_of(folder.path() / "b", 2));
}

// Steps 0 .. 6 in one go against 0 .. 3, a new process' worth of objects, and 3 .. 6.
TEST(ExactResume, HalfAndHalfEqualsTheWhole) {
  const TempFolder folder;
  const config::RunConfig base = tiny_config({.dp = 2, .sharded = true});
  const Tensors whole = save_run(base, folder.path() / "whole", 6);
  (void)save_run(base, folder.path() / "half", 3);
  const config::RunConfig again =
      with_folders(base, folder.path() / "half", folder.path() / "half");
  with_engine(again, [&](Engine& engine) {
    const LoadResult result = load_engine(engine, state_after(base, 0));
    EXPECT_EQ(result.state.iteration, 3);
    (void)train_steps(engine, 3, 6);
    EXPECT_EQ(first_difference(engine.gather_parameters(), whole), "");
    save_engine(engine, state_after(base, 6), 3);
  });
  EXPECT_EQ(hash_of(folder.path() / "half", 6), hash_of(folder.path() / "whole", 6));
}

TEST(ExactResume, WithoutMomentsItWouldDiffer) {
  // Shows that the test above can fail.
  const TempFolder folder;
  const config::RunConfig base = tiny_config();
  const Tensors whole = save_run(base, folder.path() / "whole", 4);
  (void)save_run(base, folder.path() / "half", 2);
  config::RunConfig again = with_folders(base, "", folder.path() / "half");
  again.checkpoint.no_load_optim = true;
  with_engine(again, [&](Engine& engine) {
    (void)load_engine(engine, state_after(base, 0));
    (void)train_steps(engine, 2, 4);
    EXPECT_NE(first_difference(engine.gather_parameters(), whole), "");
  });
}

TEST(Reshard, EightRanksToOneAndBack) {
  const TempFolder folder;
  const ChangeConfig llama = [](config::RunConfig& c) {
    c.model.group_query_attention = true;
    c.model.num_query_groups = 2;
    make_llama(c.model);
    c.model.ffn_hidden_size = 48;
  };
  int kind = 0;
  for (const ChangeConfig& change : {ChangeConfig{}, llama}) {
    const fs::path root = folder.path() / std::to_string(kind++);
    const config::RunConfig many =
        tiny_config({.tp = 2, .pp = 2, .dp = 2, .sharded = true}, change);
    const config::RunConfig one = tiny_config({}, change);
    const Tensors saved = save_run(many, root / "many", 2);
    const auto copy = [&](const config::RunConfig& config, const char* from, const char* to) {
      with_engine(with_folders(config, root / to, root / from), [&](Engine& engine) {
        const LoadResult result = load_engine(engine, state_after(config, 0));
        EXPECT_EQ(first_difference(engine.gather_parameters(), saved), "");
        save_engine(engine, result.state, -1);
      });
    };
    copy(one, "many", "one");
    copy(many, "one", "back");
    EXPECT_EQ(hash_of(root / "one", 2), hash_of(root / "many", 2));
    EXPECT_EQ(hash_of(root / "back", 2), hash_of(root / "many", 2));
  }
}

TEST(SaveEngine, RetentionAndTracker) {
  const TempFolder folder;
  config::RunConfig config = tiny_config();
  config.checkpoint.keep_checkpoints = 2;
  with_engine(with_folders(config, folder.path(), ""), [&](Engine& engine) {
    for (std::int64_t iteration = 1; iteration <= 4; ++iteration) {
      save_engine(engine, state_after(config, iteration), /*protect_iteration=*/1);
    }
  });
  EXPECT_EQ(checkpoint::list_iterations(folder.path()), (std::vector<std::int64_t>{1, 3, 4}));
  EXPECT_EQ(checkpoint::find_checkpoint(folder.path(), 0).iteration, 4);
}

// A GPT stage with a Buffer that tensor parallelism splits and one that it copies.
class StageWithBuffers final : public nn::Stage {
 public:
  static constexpr std::int64_t kRows = 7;  // 4 and 3 of 4 local rows with two ranks
  static constexpr std::int64_t kColumns = 3;

  StageWithBuffers(std::unique_ptr<nn::Stage> gpt, comm::ParallelContext& context)
      : gpt_(add_child(std::move(gpt))) {
    const std::int64_t size = context.size("tp");
    const std::int64_t rank = context.coordinate("tp");
    const std::int64_t local = (kRows + size - 1) / size;
    const std::int64_t begin = rank * local;
    const std::int64_t real = std::min(local, kRows - begin);
    nn::ShardPart bias;
    bias.name = "router.bias";
    bias.logical_shape = {kRows, kColumns};
    bias.box = {{begin, 0}, {real, kColumns}};
    bias.local_rows = local;
    bias.split_axes = {"tp"};
    split_ = &add_buffer(std::make_unique<nn::Buffer>(
        bias.name, nn::ShardSpec{.parts = {bias}, .local_shape = {local, kColumns}}, DType::Float));
    nn::ShardPart count;
    count.name = "router.count";
    count.logical_shape = {kRows};
    count.box = {{0}, {kRows}};
    count.local_rows = kRows;
    count.replicate_axes = {"tp"};
    count.replica = rank;
    copied_ = &add_buffer(std::make_unique<nn::Buffer>(
        count.name, nn::ShardSpec{.parts = {count}, .local_shape = {kRows}}, DType::Long));
  }

  nn::Bundle forward(const nn::Bundle& input, nn::StepContext& context) override {
    return gpt_.forward(input, context);
  }
  nn::BundleSpec input_spec(const Batch& batch) const override { return gpt_.input_spec(batch); }
  nn::BundleSpec output_spec(const Batch& batch) const override { return gpt_.output_spec(batch); }
  std::vector<nn::Unit> units() override { return gpt_.units(); }

  // Every element another value, by its global place.
  void fill() {
    const tensor::NoGrad no_grad;
    for (nn::Buffer* buffer : {split_, copied_}) {
      const nn::ShardPart& part = buffer->spec().parts[0];
      Tensor values = buffer->part_values(part);
      const std::int64_t first = part.box.offset[0] * (values.numel() / part.box.size[0]);
      for (std::int64_t i = 0; i < values.numel(); ++i) {
        values[i].fill_(static_cast<double>(100 + first + i));
      }
    }
  }
  [[nodiscard]] bool filled() {
    std::vector<Tensor> found;
    for (nn::Buffer* buffer : {split_, copied_}) found.push_back(buffer->data().clone());
    fill();
    return found[0].equal(split_->data()) && found[1].equal(copied_->data());
  }

 private:
  nn::Stage& gpt_;
  nn::Buffer* split_ = nullptr;
  nn::Buffer* copied_ = nullptr;
};

// Saves with `layout`, loads into each of the others: the values of Buffers come back bit by bit.
TEST(Buffers, AreSavedAndRestoredInAnyLayout) {
  const TempFolder folder;
  std::vector<std::string> hashes;
  for (const Layout& layout :
       {Layout{.tp = 2, .dp = 2}, Layout{}, Layout{.tp = 2, .dp = 2, .sharded = true}}) {
    const config::RunConfig config = tiny_config(layout);
    const StageMaker make = [&](comm::ParallelContext& context,
                                const parallel_layers::LeafContext& leaf,
                                const config::StagePlan& plan) {
      return std::make_unique<StageWithBuffers>(models::make_stage("gpt", config.model, leaf, plan),
                                                context);
    };
    const fs::path root = folder.path() / ("run" + std::to_string(hashes.size()));
    const auto save = [&](const fs::path& to, bool fill) {
      with_engine(
          with_folders(config, to, ""),
          [&](Engine& engine) {
            if (fill) dynamic_cast<StageWithBuffers&>(engine.stages().at(0)).fill();
            save_engine(engine, state_after(config, 1), -1);
          },
          make);
    };
    save(root, true);
    hashes.push_back(hash_of(root, 1));
    EXPECT_EQ(hashes.back(), hashes.front()) << "the state hash is of gathered values";
    const fs::path unfilled = folder.path() / "unfilled";
    save(unfilled, false);
    EXPECT_NE(hash_of(unfilled, 1), hashes.front()) << "the state hash covers Buffers";
    checkpoint::CheckpointReader reader(root / checkpoint::iteration_folder(1));
    EXPECT_TRUE(reader.has("buffer/router.bias"));
    EXPECT_TRUE(reader.has("buffer/router.count"));
    // From the first layout's checkpoint; weights alone too.
    for (const bool finetune : {false, true}) {
      config::RunConfig loading = with_folders(config, "", folder.path() / "run0");
      loading.checkpoint.finetune = finetune;
      with_engine(
          loading,
          [&](Engine& engine) {
            auto& stage = dynamic_cast<StageWithBuffers&>(engine.stages().at(0));
            EXPECT_TRUE(load_engine(engine, state_after(config, 0)).loaded);
            EXPECT_TRUE(stage.filled());
          },
          make);
    }
  }
  // A checkpoint without them is refused, naming what is missing.
  const config::RunConfig plain = tiny_config();
  (void)save_run(plain, folder.path() / "plain", 1);
  expect_error(ErrorKind::kCheckpoint, "router.bias", [&] {
    with_engine(
        with_folders(plain, "", folder.path() / "plain"),
        [&](Engine& engine) { (void)load_engine(engine, state_after(plain, 0)); },
        [&](comm::ParallelContext& context, const parallel_layers::LeafContext& leaf,
            const config::StagePlan& plan) {
          return std::make_unique<StageWithBuffers>(
              models::make_stage("gpt", plain.model, leaf, plan), context);
        });
  });
}

}  // namespace
}  // namespace pentatron::training
