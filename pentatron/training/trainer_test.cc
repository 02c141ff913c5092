// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/trainer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "pentatron/base/temp_folder.h"
#include "pentatron/base/test_support.h"
#include "pentatron/checkpoint/reader.h"
#include "pentatron/checkpoint/store.h"
#include "pentatron/datasets/indexed_dataset_writer.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/training/checkpointing.h"
#include "pentatron/training/metrics.h"
#include "pentatron/training/test_support.h"
#include "pentatron/training/trainer_test_support.h"

// Whole runs on a real corpus of numbers, in this process.
namespace pentatron::training {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary
namespace fs = std::filesystem;

TEST(Trainer, RunsToTheEndAndSaysWhatMegatronSays) {
  const RunFolder folder;
  std::string printed;
  const TrainerReport report = run(folder.config(), &printed);
  EXPECT_EQ(report.exit_reason, "iterations");
  EXPECT_EQ(report.iteration, 6);
  EXPECT_EQ(report.consumed_samples, 24);
  EXPECT_EQ(iterations(folder.metrics(), "train"), (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(iterations(folder.metrics(), "validation"), (std::vector<std::int64_t>{3, 6, 6}));
  EXPECT_EQ(iterations(folder.metrics(), "test"), (std::vector<std::int64_t>{6}));
  const std::vector<MetricsPoint> losses = read_metrics(folder.metrics(), "train", "lm_loss");
  EXPECT_NEAR(losses.front().value, std::log(kIds + 1), 0.3);  // nearly uniform at first
  EXPECT_LT(losses.back().value, losses.front().value);
  EXPECT_EQ(report.last_loss, losses.back().value);
  for (const char* text :
       {" > padded vocab (size: 32) with 0 dummy tokens (new size: 32)",
        "[after megatron is initialized] datetime: ", "[before the start of training step]",
        " iteration        1/       6 | consumed samples:            4 |",
        " iteration        6/       6 | consumed samples:           24 |",
        " validation loss at iteration 3 | lm loss value: ",
        " validation loss at iteration 6 on validation set | ",
        " validation loss at iteration 6 on test set | ", "[after training is done] datetime: ",
        " > number of parameters on (tensor, gtp_weight_remat, pipeline) model parallel rank (0, "
        "0, "
        "0): "}) {
    EXPECT_NE(printed.find(text), std::string::npos) << text << "\n" << printed;
  }
  EXPECT_EQ(printed.find(" iteration        3/"), std::string::npos);
}

struct World {
  const char* name;
  std::int64_t size = 1;
  std::int64_t context_parallel = 1;
  std::int64_t pipeline = 1;
};

class TrainerWorlds : public testing::TestWithParam<World> {};

// Context-parallel ranks of one data-parallel rank read its samples, in training and evaluation.
TEST_P(TrainerWorlds, LogTheLossesOfOneRank) {
  const World& world = GetParam();
  const RunFolder folder;
  const ChangeConfig change = [&](config::RunConfig& c) {
    c.model.num_layers = 2;
    c.training.precision = "fp64";
    c.optimizer.adam_eps = 1e-3;
  };
  (void)run(folder.config(change));
  const auto alone = read_metrics(folder.metrics(), "train", "lm_loss");
  const auto alone_valid = read_metrics(folder.metrics(), "validation", "lm_loss");
  (void)run(folder.config([&](config::RunConfig& c) {
    change(c);
    c.parallel.world_size = world.size;
    c.parallel.context_parallel_size = world.context_parallel;
    c.parallel.pipeline_model_parallel_size = world.pipeline;
    c.parallel.use_distributed_optimizer = true;
    c.parallel.distributed_backend = "threads";
  }));
  const auto all = read_metrics(folder.metrics(), "train", "lm_loss");
  const auto all_valid = read_metrics(folder.metrics(), "validation", "lm_loss");
  ASSERT_EQ(all.size(), alone.size());
  ASSERT_EQ(all_valid.size(), alone_valid.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_NEAR(all[i].value / alone[i].value, 1.0, 1e-10);
  }
  for (std::size_t i = 0; i < all_valid.size(); ++i) {
    EXPECT_NEAR(all_valid[i].value / alone_valid[i].value, 1.0, 1e-10);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Worlds, TrainerWorlds,
    testing::Values(World{.name = "data2", .size = 2},
                    World{.name = "context2", .size = 2, .context_parallel = 2},
                    World{.name = "context2_data2", .size = 4, .context_parallel = 2},
                    World{.name = "data2_pipeline2", .size = 4, .pipeline = 2}),
    [](const testing::TestParamInfo<World>& info) { return std::string(info.param.name); });

TEST(Trainer, EmptySplitsAreNotEvaluatedOn) {
  const RunFolder folder;
  std::string printed;
  const TrainerReport report =
      run(folder.config([](config::RunConfig& c) { c.data.split = "100"; }), &printed);
  EXPECT_EQ(report.iteration, 6);
  EXPECT_EQ(iterations(folder.metrics(), "train").size(), 6U);
  EXPECT_TRUE(iterations(folder.metrics(), "validation").empty());
  EXPECT_TRUE(iterations(folder.metrics(), "test").empty());
  EXPECT_EQ(printed.find("validation loss"), std::string::npos);
  (void)run(folder.config([](config::RunConfig& c) { c.data.split = "90,10"; }));
  EXPECT_EQ(iterations(folder.metrics(), "validation"), (std::vector<std::int64_t>{3, 6, 6}));
  EXPECT_TRUE(iterations(folder.metrics(), "test").empty());
}

TEST(Trainer, ResumedRunHasTheStateAndMetricsOfTheUndisturbed) {
  const RunFolder undisturbed;
  const ChangeConfig saving = [](config::RunConfig& c) { c.checkpoint.save_interval = 6; };
  const auto saves_to = [](const fs::path& folder, const ChangeConfig& change) {
    return [&folder, change](config::RunConfig& c) {
      change(c);
      c.checkpoint.save = folder.string();
    };
  };
  const fs::path whole = undisturbed.checkpoints() / "whole";
  (void)run(undisturbed.config(saves_to(whole, saving)));
  const auto expected = read_metrics(undisturbed.metrics(), "train", "lm_loss");
  const auto expected_valid = read_metrics(undisturbed.metrics(), "validation", "lm_loss");

  const fs::path half = undisturbed.checkpoints() / "half";
  const TrainerReport stopped = run(undisturbed.config(saves_to(half, [&](config::RunConfig& c) {
    saving(c);
    c.training.exit_interval = 4;
  })));
  EXPECT_EQ(stopped.exit_reason, "interval");
  EXPECT_EQ(stopped.iteration, 4);
  const TrainerReport resumed = run(undisturbed.config(saves_to(half, [&](config::RunConfig& c) {
    saving(c);
    c.checkpoint.load = half.string();
  })));
  EXPECT_EQ(resumed.exit_reason, "iterations");
  const auto values = read_metrics(undisturbed.metrics(), "train", "lm_loss");
  const auto valid = read_metrics(undisturbed.metrics(), "validation", "lm_loss");
  ASSERT_EQ(values.size(), expected.size());
  ASSERT_EQ(valid.size(), expected_valid.size());
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i].value, expected[i].value);
  for (std::size_t i = 0; i < valid.size(); ++i) EXPECT_EQ(valid[i].value, expected_valid[i].value);
  checkpoint::CheckpointReader a(whole / checkpoint::iteration_folder(6));
  checkpoint::CheckpointReader b(half / checkpoint::iteration_folder(6));
  EXPECT_EQ(checkpoint::state_hash(a), checkpoint::state_hash(b));
}

TEST(Trainer, TheScheduleOfTheCheckpointIsUsedWhenAsked) {
  const RunFolder folder;
  const ChangeConfig change = [&](config::RunConfig& c) {
    c.optimizer.lr_decay_style = "constant";
    c.checkpoint.save = folder.checkpoints().string();
    c.checkpoint.save_interval = 6;
  };
  (void)run(folder.config([&](config::RunConfig& c) {
    change(c);
    c.training.exit_interval = 2;
  }));
  const ChangeConfig resume = [&](config::RunConfig& c) {
    change(c);
    c.checkpoint.load = folder.checkpoints().string();
    c.optimizer.lr = 0.005;
  };
  expect_error(ErrorKind::kCheckpoint, "max_lr 0.01 in the checkpoint, 0.005 asked",
               [&] { (void)run(folder.config(resume)); });
  (void)run(folder.config([&](config::RunConfig& c) {
    resume(c);
    c.optimizer.use_checkpoint_opt_param_scheduler = true;
    c.training.exit_interval = 4;
  }));
  (void)run(folder.config([&](config::RunConfig& c) {
    resume(c);
    c.optimizer.override_opt_param_scheduler = true;
  }));
  std::vector<double> rates;
  for (const MetricsPoint& point :
       read_metrics(folder.metrics(), "train", "applied_learning_rate")) {
    rates.push_back(point.value);
  }
  EXPECT_EQ(rates, (std::vector<double>{0.01, 0.01, 0.01, 0.01, 0.005, 0.005}));
}

TEST(Exit, AfterDuration) {
  const RunFolder folder;
  constexpr std::int64_t kMany = 100'000;
  std::string printed;
  const TrainerReport report = run(folder.config([&](config::RunConfig& c) {
    c.training.train_iters = kMany;
    c.training.eval_interval = 0;
    c.training.exit_duration_in_mins = 0.001;
    c.checkpoint.save = folder.checkpoints().string();
    c.checkpoint.save_interval = kMany;
  }),
                                   &printed);
  EXPECT_EQ(report.exit_reason, "duration");
  EXPECT_GE(report.iteration, 1);
  EXPECT_LT(report.iteration, kMany);
  EXPECT_NE(printed.find("[exiting program after "), std::string::npos) << printed;
  // Saved where it stopped, and not evaluated.
  EXPECT_EQ(checkpoint::list_iterations(folder.checkpoints()),
            (std::vector<std::int64_t>{report.iteration}));
  EXPECT_TRUE(iterations(folder.metrics(), "validation").empty());
}

TEST(Exit, TheTimeBeforeTheStartCounts) {
  const RunFolder folder;
  const config::RunConfig config =
      folder.config([](config::RunConfig& c) { c.training.exit_duration_in_mins = 60; });
  EXPECT_EQ(run(config).exit_reason, "iterations");
  const TrainerReport report = run(config, nullptr, {.seconds_before_start = 3601});
  EXPECT_EQ(report.exit_reason, "duration");
  EXPECT_EQ(report.iteration, 1);
}

TEST(Exit, OnSignalOfOneRank) {
  const RunFolder folder;
  const ChangeConfig change = [&](config::RunConfig& c) {
    c.checkpoint.save = folder.checkpoints().string();
    c.checkpoint.save_interval = 100;
    c.parallel.world_size = 2;
    c.parallel.distributed_backend = "threads";
  };
  // Seen by whichever rank asks third; both stop after the same iteration.
  std::atomic<int> asked{0};
  const TrainerHooks hooks{.exit_signal_seen = [&asked] { return ++asked == 3; }};
  EXPECT_EQ(run(folder.config(change), nullptr, hooks).exit_reason, "iterations");
  EXPECT_EQ(asked, 0);  // without --exit-signal-handler nobody looks
  fs::remove_all(folder.checkpoints());
  const TrainerReport report = run(folder.config([&](config::RunConfig& c) {
    change(c);
    c.training.exit_signal_handler = true;
  }),
                                   nullptr, hooks);
  EXPECT_EQ(report.exit_reason, "signal");
  EXPECT_EQ(report.iteration, 2);
  EXPECT_EQ(checkpoint::list_iterations(folder.checkpoints()), (std::vector<std::int64_t>{2}));
}

TEST(Trainer, TrainSamplesAreWholeIterations) {
  const RunFolder folder;
  const TrainerReport report = run(folder.config([](config::RunConfig& c) {
    c.training.train_iters = 0;
    c.training.train_samples = 27;  // 6 batches of 4 and a rest
  }));
  EXPECT_EQ(report.exit_reason, "iterations");
  EXPECT_EQ(report.iteration, 6);
  EXPECT_EQ(report.consumed_samples, 24);
  EXPECT_EQ(iterations(folder.metrics(), "validation"), (std::vector<std::int64_t>{3, 6, 6}));
}

// A checkpoint whose weights are no numbers, under folder.checkpoints().
void save_damaged_weights(const RunFolder& folder) {
  config::RunConfig config = folder.config();
  config::resolve_vocab(config, kIds + 1);
  config.checkpoint.save = folder.checkpoints().string();
  with_engine(config, [&](Engine& engine) {
    const tensor::NoGrad no_grad;
    engine.stages().parameters().back()->data().fill_(std::nan(""));
    save_engine(engine, state_after(config, 1), -1);
  });
}

TEST(NanCheck, StopsUnlessSwitchedOff) {
  const RunFolder folder;
  testing::internal::CaptureStdout();
  save_damaged_weights(folder);
  (void)testing::internal::GetCapturedStdout();
  const ChangeConfig from_damaged = [&](config::RunConfig& c) {
    c.checkpoint.load = folder.checkpoints().string();
    c.checkpoint.finetune = true;
    c.training.eval_iters = 0;
  };
  expect_error(ErrorKind::kData, "iteration 1: the loss is nan; no update was made",
               [&] { (void)run(folder.config(from_damaged)); });
  expect_error(ErrorKind::kData, "--no-check-for-nan-in-loss-and-grad",
               [&] { (void)run(folder.config(from_damaged)); });
  std::string printed;
  const TrainerReport report = run(folder.config([&](config::RunConfig& c) {
    from_damaged(c);
    c.training.check_for_nan_in_loss_and_grad = false;
  }),
                                   &printed);
  EXPECT_EQ(report.exit_reason, "iterations");
  EXPECT_EQ(report.iteration, 6);
  EXPECT_TRUE(std::isnan(report.last_loss));
  // Counted, and no loss is printed where no iteration was good.
  EXPECT_NE(printed.find(" number of skipped iterations:   2 | number of nan iterations:   2 |"),
            std::string::npos)
      << printed;
  EXPECT_EQ(printed.find("lm loss:"), std::string::npos) << printed;
  EXPECT_EQ(iterations(folder.metrics(), "train").size(), 6U);
}

}  // namespace
}  // namespace pentatron::training
