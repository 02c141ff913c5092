// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "pentatron/base/test_support.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/training/checkpointing.h"
#include "pentatron/training/trainer_test_support.h"

// Faults that users of training programs reported in public, each reduced to a small run and named
// after its report.
namespace pentatron::training {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary

using Numbers = std::vector<double>;

ChangeConfig steps(std::int64_t iterations, std::int64_t stop_after = 0) {
  return [=](config::RunConfig& c) {
    c.training.train_iters = iterations;
    c.training.exit_interval = stop_after;
    c.training.eval_interval = 0;
    c.training.eval_iters = 0;
  };
}

// The loss scale and its counters were lost on resume.
TEST(Cases, Metaseq_3) {
  const RunFolder folder;
  const ChangeConfig half = [](config::RunConfig& c) {
    c.training.precision = "fp16";
    c.optimizer.initial_loss_scale = 1024;
    c.optimizer.loss_scale_window = 5;
  };
  const fs::path whole = folder.checkpoints() / "whole";
  (void)run(folder.config(both(both(steps(12), half), saving(whole, false))));
  const Numbers expected = series(folder.metrics(), "train", "applied_loss_scale");
  EXPECT_EQ(expected,
            (Numbers{1024, 1024, 1024, 1024, 1024, 2048, 2048, 2048, 2048, 2048, 4096, 4096}));
  const fs::path parts = folder.checkpoints() / "parts";
  (void)run(folder.config(both(both(steps(12, 3), half), saving(parts, false))));
  (void)run(folder.config(both(both(steps(12), half), saving(parts, true))));
  EXPECT_EQ(series(folder.metrics(), "train", "applied_loss_scale"), expected);
  EXPECT_EQ(state_hash(parts, 12), state_hash(whole, 12));
}

// An overflow moved the schedule or a counter.
TEST(Cases, DeepSpeed_5779) {
  const RunFolder folder;
  std::string printed;
  // Far too large a scale: it overflows until it has come down.
  (void)run(folder.config(both(both(steps(30), saving(folder.checkpoints(), false)),
                               [](config::RunConfig& c) {
                                 c.training.precision = "fp16";
                                 c.training.log_interval = 1;
                                 c.optimizer.initial_loss_scale = std::exp2(32);
                                 c.optimizer.hysteresis = 1;
                                 c.optimizer.lr_warmup_iters = 20;
                                 c.optimizer.lr_warmup_init = 0.001;
                               })),
            &printed);
  const Numbers skipped = series(folder.metrics(), "train", "skipped");
  const Numbers rates = series(folder.metrics(), "train", "applied_learning_rate");
  const Numbers scales = series(folder.metrics(), "train", "applied_loss_scale");
  ASSERT_EQ(skipped.size(), 30U);
  std::int64_t good = 0;
  double scale = std::exp2(32);
  for (std::size_t i = 0; i < skipped.size(); ++i) {
    EXPECT_EQ(scales[i], scale);
    const double warm = 0.001 + 0.009 * static_cast<double>(std::min<std::int64_t>(good, 20)) / 20;
    if (good <= 20) {
      EXPECT_NEAR(rates[i], warm, 1e-12);
    }
    if (skipped[i] != 0) {
      scale /= 2;
    } else {
      ++good;
    }
  }
  const std::int64_t bad = 30 - good;
  EXPECT_GE(bad, 3);
  EXPECT_GE(good, 5);
  EXPECT_EQ(skipped.front(), 1);
  EXPECT_EQ(skipped.back(), 0);
  checkpoint::CheckpointReader reader(folder.checkpoints() / checkpoint::iteration_folder(30));
  const TrainState state = parse_train_state(reader.manifest().train_state);
  EXPECT_EQ(state.consumed_train_samples, 120) << "the data goes on";
  EXPECT_EQ(state.num_updates, good);
  EXPECT_EQ(state.scheduler_samples, good * 4);
  EXPECT_EQ(state.skipped_iterations, bad);
  EXPECT_EQ(state.nan_iterations, 0);
  // The scale as the next step has it, and no norm of a step that overflowed.
  EXPECT_EQ(printed.find(" loss scale: 4294967296.0 |"), std::string::npos);
  EXPECT_NE(printed.find(" loss scale: 2147483648.0 | number of skipped iterations:   1 |"),
            std::string::npos)
      << printed;
}

// The same on the engine: parameters and moments as they were, on two ranks.
TEST(Cases, DeepSpeed_5779_Moments) {
  const config::RunConfig config = tiny_config({.dp = 2, .sharded = true}, [](auto& c) {
    c.training.precision = "fp16";
    c.training.check_for_nan_in_loss_and_grad = false;
    c.optimizer.initial_loss_scale = 256;
    c.optimizer.hysteresis = 1;
  });
  with_engine(config, [](Engine& engine) {
    (void)train_steps(engine, 0, 4);
    std::vector<Tensor> before;
    for (const optimizer::StateSlice& slice : engine.state_slices(false)) {
      before.push_back(slice.values.clone());
    }
    const Tensors weights = engine.gather_parameters();
    EXPECT_EQ(engine.loss_scaler().scale(), 256);
    engine.loss_scaler().restore({.scale = 1e30, .good_steps = 0, .hysteresis_left = 1});
    const StepResult result = engine.train_step(micro_batches(engine, 4), 0.01, kWeightDecay);
    EXPECT_TRUE(result.skipped);
    EXPECT_TRUE(std::isfinite(result.loss)) << "only the gradients overflow";
    EXPECT_EQ(engine.loss_scaler().scale(), 5e29);
    EXPECT_EQ(engine.optimizer().num_updates(), 4);
    std::size_t i = 0;
    for (const optimizer::StateSlice& slice : engine.state_slices(false)) {
      EXPECT_TRUE(slice.values.equal(before[i++])) << slice.part->name << " " << slice.kind;
    }
    EXPECT_EQ(first_difference(engine.gather_parameters(), weights), "");
  });
}

// The optimizer's state was made by a dummy step before a load, so that bias correction began at 2.
TEST(Cases, MegatronLM_5976) {
  const TempFolder folder;
  const ChangeConfig exact = [](config::RunConfig& c) {
    c.training.precision = "fp64";
    c.optimizer.clip_grad = 0;
    c.optimizer.adam_eps = 1e-3;
  };
  config::RunConfig config = tiny_config({}, exact);
  config.checkpoint.save = folder.path().string();
  with_engine(config, [&](Engine& engine) { save_engine(engine, state_after(config, 0), -1); });
  config.checkpoint.load = folder.path().string();
  with_engine(config, [&](Engine& engine) {
    ASSERT_TRUE(load_engine(engine, state_after(config, 0)).loaded);
    const Tensors before = engine.gather_parameters();
    const std::vector<Batch> batches = micro_batches(engine, 0);
    (void)engine.forward_backward(batches);
    const Tensors gradients = engine.gather_gradients();
    (void)engine.train_step(batches, 0.01, 0.0);
    for (const auto& [name, values] : engine.gather_parameters()) {
      const Tensor& g = gradients.at(name);
      const Tensor expected = before.at(name).sub(g.div(g.abs().add(1e-3)).mul(0.01));
      EXPECT_LE(values.sub(expected).abs().max().item<double>(), 1e-14) << name;
    }
  });
}

Numbers expected_linear(std::int64_t iterations, double lr) {
  Numbers rates;
  for (std::int64_t i = 0; i < iterations; ++i) {
    rates.push_back(i < 2 ? lr * static_cast<double>(i) / 2 : lr * static_cast<double>(8 - i) / 6);
  }
  return rates;
}

void expect_near(const Numbers& found, const Numbers& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i], expected[i], 1e-12) << "step " << i + 1;
  }
}

const ChangeConfig kWarmUp = [](config::RunConfig& c) { c.optimizer.lr_warmup_iters = 2; };

// Default flags: the schedule was saved and not restored, so that the warm-up was run again.
TEST(Cases, Verl_7953) {
  const RunFolder folder;
  (void)run(folder.config(both(both(steps(8, 3), kWarmUp), saving(folder.checkpoints(), false))));
  (void)run(folder.config(both(both(steps(8), kWarmUp), saving(folder.checkpoints(), true))));
  expect_near(series(folder.metrics(), "train", "applied_learning_rate"), expected_linear(8, 0.01));
}

// With the checkpoint's schedule the rate started from zero, with and without optimizer state.
TEST(Cases, MegatronLM_7173) {
  for (const bool no_load_optim : {false, true}) {
    const RunFolder folder;
    (void)run(folder.config(both(both(steps(8, 3), kWarmUp), saving(folder.checkpoints(), false))));
    const ChangeConfig other = [&](config::RunConfig& c) {
      c.optimizer.lr = 0.5;  // the checkpoint's is asked for
      c.optimizer.use_checkpoint_opt_param_scheduler = true;
      c.checkpoint.no_load_optim = no_load_optim;
    };
    (void)run(folder.config(
        both(both(both(steps(8), kWarmUp), other), saving(folder.checkpoints(), true))));
    expect_near(series(folder.metrics(), "train", "applied_learning_rate"),
                expected_linear(8, 0.01));
  }
  const RunFolder folder;
  expect_error(ErrorKind::kConfig, "exclude each other", [&] {
    (void)folder.config(both(saving(folder.checkpoints(), true), [](config::RunConfig& c) {
      c.optimizer.use_checkpoint_opt_param_scheduler = true;
      c.optimizer.override_opt_param_scheduler = true;
    }));
  });
}

// The second resume counted from the first one's start again.
TEST(Cases, Torchtitan_571) {
  const RunFolder folder;
  std::string printed;
  for (const bool first : {true, false, false}) {
    (void)run(folder.config(both(steps(15, 5), saving(folder.checkpoints(), !first))), &printed);
    const std::int64_t begins =
        first ? 1 : checkpoint::list_iterations(folder.checkpoints()).back();
    EXPECT_EQ(iterations(folder.metrics(), "train").size(),
              static_cast<std::size_t>(first ? 5 : begins));
  }
  EXPECT_NE(printed.find("] iteration       11/      15 |"), std::string::npos) << printed;
  EXPECT_EQ(checkpoint::list_iterations(folder.checkpoints()),
            (std::vector<std::int64_t>{5, 10, 15}));
  std::vector<std::int64_t> all;
  for (std::int64_t i = 1; i <= 15; ++i) all.push_back(i);
  EXPECT_EQ(iterations(folder.metrics(), "train"), all);
}

ChangeConfig validation_corpora(std::vector<std::string> paths, bool full) {
  return [paths = std::move(paths), full](config::RunConfig& c) {
    c.data.train_data_path = c.data.data_path;
    c.data.data_path.clear();
    c.data.valid_data_path = paths;
    c.training.multiple_validation_sets = true;
    c.training.full_validation = full;
    c.training.eval_iters = 2;
    c.training.eval_interval = 3;
  };
}

// Full validation broke with a single set.
TEST(Cases, MegatronLM_7174) {
  for (const bool full : {false, true}) {
    const RunFolder folder;
    std::string printed;
    (void)run(folder.config(validation_corpora({folder.corpus()}, full)), &printed);
    EXPECT_EQ(iterations(folder.metrics(), "validation-0"), (std::vector<std::int64_t>{3, 6, 6}));
    EXPECT_NE(printed.find(" validation-0 loss at iteration 3 | lm loss value: "),
              std::string::npos)
        << printed;
    // 60 documents of 40 tokens: 149 whole samples of 16 in one epoch, 37 batches of 4.
    const double tokens = full ? 37 * 4 * 16 : 2 * 4 * 16;
    EXPECT_EQ(series(folder.metrics(), "validation-0", "valid_tokens"),
              (Numbers{tokens, tokens, tokens}));
  }
}

// Evaluations of 0, 1 and -1 batches.
TEST(Cases, MegatronBridge_635) {
  const auto iters = [](std::int64_t count) {
    return [=](config::RunConfig& c) {
      c.training.eval_iters = count;
      // With none asked for, no validation data is needed.
      c.data.split = count == 0 ? "100" : "80,10,10";
    };
  };
  for (const std::int64_t world : {1, 2}) {
    const RunFolder folder;
    const ChangeConfig layout = [=](config::RunConfig& c) {
      c.parallel.world_size = world;
      c.parallel.distributed_backend = "threads";
    };
    (void)run(folder.config(both(layout, iters(0))));
    EXPECT_TRUE(iterations(folder.metrics(), "validation").empty());
    (void)run(folder.config(both(layout, iters(1))));
    EXPECT_EQ(iterations(folder.metrics(), "validation"), (std::vector<std::int64_t>{3, 6, 6}));
    EXPECT_EQ(series(folder.metrics(), "validation", "valid_tokens"), (Numbers{64, 64, 64}));
  }
  const RunFolder folder;
  expect_error(ErrorKind::kConfig, "--eval-iters", [&] { (void)run(folder.config(iters(-1))); });
}

// Less data than one batch.
TEST(Cases, MegatronBridge_4926) {
  const RunFolder folder;
  const std::string three = (fs::path(folder.corpus()).parent_path() / "three").string();
  datasets::IndexedDatasetWriter writer(three, datasets::TokenDtype::kUint16);
  writer.add_sequence(std::vector<std::int32_t>(3 * kSequence + 1, 5));  // three samples
  writer.end_document();
  writer.finish();
  // Training goes through it as often as is needed.
  (void)run(folder.config(both(steps(6), [&](config::RunConfig& c) {
    c.data.data_path = {three};
    c.data.split = "100";
  })));
  EXPECT_EQ(series(folder.metrics(), "train", "valid_tokens"), Numbers(6, 64.0));
  // An evaluation on all of it has no whole batch: refused, naming both sizes.
  expect_error(ErrorKind::kConfig, "has 3 samples, less than one batch of 4",
               [&] { (void)run(folder.config(validation_corpora({three}, true))); });
  // A whole batch and a rest: the rest is left out.
  (void)run(folder.config(both(validation_corpora({three}, true), [](config::RunConfig& c) {
    c.training.eval_global_batch_size = 2;
    c.training.eval_micro_batch_size = 1;
  })));
  EXPECT_EQ(series(folder.metrics(), "validation-0", "valid_tokens"), Numbers(3, 32.0));
}

// 50 samples in steps of 2 2 2 2, 4 4 4, 6 6 6 6: 44, and 6 more.
const ChangeConfig kGrowing = [](config::RunConfig& c) {
  c.training.train_iters = 0;
  c.training.train_samples = 50;
  c.training.global_batch_size = 0;
  c.training.step_batch_size_schedule = "0:2 128:4 320:6";
  c.training.eval_iters = 0;
  c.training.eval_interval = 0;
  c.optimizer.min_lr = 0.001;
};
const Numbers kGrowingSizes{2, 2, 2, 2, 4, 4, 4, 6, 6, 6, 6, 6};

// The rate followed iterations instead of samples while the batch grew.
TEST(Cases, MegatronBridge_4796) {
  const RunFolder folder;
  const TrainerReport report =
      run(folder.config(both(kGrowing, saving(folder.checkpoints(), false))));
  EXPECT_EQ(report.iteration, 12);
  EXPECT_EQ(report.consumed_samples, 50) << "to the sample";
  EXPECT_EQ(series(folder.metrics(), "train", "global_batch_size"), kGrowingSizes);
  const Numbers rates = series(folder.metrics(), "train", "applied_learning_rate");
  double consumed = 0;
  for (std::size_t i = 0; i < kGrowingSizes.size(); ++i) {
    EXPECT_NEAR(rates.at(i), 0.001 + 0.009 * (1 - consumed / 50), 1e-12);
    consumed += kGrowingSizes[i];
  }
  // A checkpoint at each change.
  EXPECT_EQ(checkpoint::list_iterations(folder.checkpoints()),
            (std::vector<std::int64_t>{4, 7, 12}));
}

// A growing batch began anew on resume.
TEST(Cases, Maxtext_2656) {
  const RunFolder folder;
  const fs::path whole = folder.checkpoints() / "whole";
  (void)run(folder.config(both(kGrowing, saving(whole, false))));
  const Numbers losses = series(folder.metrics(), "train", "lm_loss");
  // Stopped in the middle of a stage, and at a change.
  for (const std::int64_t stop : {2, 4, 6}) {
    const fs::path parts = folder.checkpoints() / std::to_string(stop);
    (void)run(folder.config(both(both(kGrowing, saving(parts, false)),
                                 [&](config::RunConfig& c) { c.training.exit_interval = stop; })));
    (void)run(folder.config(both(kGrowing, saving(parts, true))));
    EXPECT_EQ(series(folder.metrics(), "train", "global_batch_size"), kGrowingSizes);
    EXPECT_EQ(series(folder.metrics(), "train", "lm_loss"), losses);
    EXPECT_EQ(state_hash(parts, 12), state_hash(whole, 12));
  }
}

}  // namespace
}  // namespace pentatron::training
