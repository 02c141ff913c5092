// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <optional>

#include "pentatron/base/test_support.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/training/checkpointing.h"
#include "pentatron/training/spikes.h"
#include "pentatron/training/trainer_test_support.h"

// What options ask of the training loop.
namespace pentatron::training {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary

using Numbers = std::vector<double>;

TEST(Spikes, AreTenTimesTheLargestSeen) {
  double largest = 0;
  EXPECT_FALSE(is_spike(2, largest)) << "the first is the measure";
  EXPECT_FALSE(is_spike(20, largest));
  EXPECT_EQ(largest, 20);
  EXPECT_FALSE(is_spike(200, largest));
  EXPECT_TRUE(is_spike(2001, largest));
  EXPECT_EQ(largest, 200) << "a spike is no measure";
  EXPECT_FALSE(is_spike(1, largest));
  EXPECT_EQ(largest, 200);
  EXPECT_FALSE(is_spike(std::nan(""), largest)) << "another check's business";
  EXPECT_EQ(largest, 200);
}

// Saved weights, each matrix many times larger, so that loss and gradients jump on resume.
void enlarge_weights(const RunFolder& folder, const config::RunConfig& config,
                     std::int64_t iteration) {
  config::RunConfig loading = config;
  loading.checkpoint.load = folder.checkpoints().string();
  config::resolve_vocab(loading, kIds + 1);
  with_engine(loading, [&](Engine& engine) {
    checkpoint::CheckpointReader reader(folder.checkpoints() /
                                        checkpoint::iteration_folder(iteration));
    TrainState state = parse_train_state(reader.manifest().train_state);
    (void)load_engine(engine, state);
    const tensor::NoGrad no_grad;
    for (nn::Parameter* parameter : engine.stages().parameters()) parameter->data().mul_(30);
    save_engine(engine, state, -1);
  });
}

TEST(Spikes, AreNamed) {
  const RunFolder folder;
  const auto checked = [&](bool on, std::int64_t stop, bool load) {
    return folder.config(both(saving(folder.checkpoints(), load), [=](config::RunConfig& c) {
      c.training.check_for_spiky_loss = on;
      c.training.check_for_large_grads = on;
      c.training.eval_iters = 0;
      c.training.exit_interval = stop;
    }));
  };
  // Warnings go to standard error.
  const auto warnings = [](const config::RunConfig& config) {
    testing::internal::CaptureStderr();
    (void)run(config);
    return testing::internal::GetCapturedStderr();
  };
  const std::string quiet = warnings(checked(true, 3, false));
  EXPECT_EQ(quiet.find("largest so far"), std::string::npos) << quiet;
  testing::internal::CaptureStdout();
  enlarge_weights(folder, checked(true, 3, true), 3);
  (void)testing::internal::GetCapturedStdout();
  // The largest of before the resume is the measure.
  const std::string told = warnings(checked(true, 4, true));
  EXPECT_NE(told.find("iteration 4: the loss "), std::string::npos) << told;
  EXPECT_NE(told.find("--check-for-spiky-loss"), std::string::npos) << told;
  EXPECT_NE(told.find("iteration 4: the gradient norm "), std::string::npos) << told;
  EXPECT_NE(told.find("--check-for-large-grads"), std::string::npos) << told;
  fs::remove_all(folder.checkpoints() / checkpoint::iteration_folder(4));
  const std::string unasked = warnings(checked(false, 5, true));
  EXPECT_EQ(unasked.find("largest so far"), std::string::npos) << unasked;
}

TEST(Exit, ByTheKillSwitchFile) {
  const RunFolder folder;
  const fs::path file = folder.checkpoints().parent_path() / "stop";
  const auto config = [&](bool load) {
    return folder.config(both(saving(folder.checkpoints(), load), [&](config::RunConfig& c) {
      c.training.kill_switch_file = file.string();
      c.training.eval_iters = 0;
      c.training.exit_signal_handler = true;
      c.parallel.world_size = 2;
      c.parallel.distributed_backend = "threads";
    }));
  };
  // The file appears while iteration 3 runs.
  std::atomic<int> asked{0};
  const TrainerHooks hooks{.exit_signal_seen = [&] {
    if (++asked == 6) std::ofstream(file) << "";
    return false;
  }};
  std::string printed;
  const TrainerReport report = run(config(false), &printed, hooks);
  EXPECT_EQ(report.exit_reason, "kill switch");
  EXPECT_EQ(report.iteration, 3);
  EXPECT_NE(printed.find("[exiting program because " + file.string() + " exists]"),
            std::string::npos);
  EXPECT_EQ(checkpoint::list_iterations(folder.checkpoints()), (std::vector<std::int64_t>{3}));
  // Still there: no step is made, nothing is saved.
  EXPECT_EQ(run(config(true)).iteration, 3);
  fs::remove(file);
  EXPECT_EQ(run(config(true)).exit_reason, "iterations");
}

TEST(Trainer, PassedOverStepsTakeTheirDataWithThem) {
  const RunFolder folder;
  const auto steps = [&](std::vector<std::string> skipped) {
    return folder.config([=](config::RunConfig& c) {
      c.training.iterations_to_skip = skipped;
      c.training.log_interval = 1;
      c.training.eval_iters = 0;
      c.model.hidden_dropout = c.model.attention_dropout = 0;
    });
  };
  std::string printed;
  (void)run(steps({"2", "4"}), &printed);
  EXPECT_EQ(iterations(folder.metrics(), "train"), (std::vector<std::int64_t>{1, 3, 5, 6}));
  EXPECT_EQ(series(folder.metrics(), "train", "consumed_samples"), (Numbers{4, 12, 20, 24}));
  EXPECT_NE(printed.find(" consumed samples:           12 | skipped samples:            4 |"),
            std::string::npos)
      << printed;
  // They have no line: it would show numbers of another step.
  EXPECT_EQ(printed.find(" iteration        2/"), std::string::npos) << printed;
  EXPECT_EQ(printed.find(" iteration        4/"), std::string::npos) << printed;
  // The schedule stands still.
  const Numbers rates = series(folder.metrics(), "train", "applied_learning_rate");
  for (std::size_t i = 0; i < rates.size(); ++i) {
    EXPECT_NEAR(rates[i], 0.01 * (1 - static_cast<double>(i) / 6), 1e-12);
  }
  const Numbers losses = series(folder.metrics(), "train", "lm_loss");
  (void)run(steps({}), &printed);
  const Numbers all = series(folder.metrics(), "train", "lm_loss");
  EXPECT_EQ(losses[0], all[0]);
  EXPECT_NE(losses[1], all[1]) << "other samples";
  EXPECT_EQ(printed.find("skipped samples"), std::string::npos);
}

TEST(Engine, DecoupledRateMovesEmbeddingAndOutputAlone) {
  for (const char* optimizer : {"adam", "sgd"}) {
    for (const bool tied : {true, false}) {
      const config::RunConfig config = tiny_config({.tp = 2}, [&](config::RunConfig& c) {
        c.optimizer.optimizer = optimizer;
        c.model.untie_embeddings_and_output_weights = !tied;
      });
      with_engine(config, [&](Engine& engine) {
        const Tensors before = engine.gather_parameters();
        (void)engine.train_step(micro_batches(engine, 0),
                                {.lr = 0, .weight_decay = 0.1, .decoupled_lr = 0.01});
        std::vector<std::string> moved;
        for (const auto& [name, values] : engine.gather_parameters()) {
          if (!values.equal(before.at(name))) moved.push_back(name);
        }
        std::vector<std::string> expected{"embedding.word_embeddings.weight"};
        if (!tied) expected.emplace_back("output_layer.weight");
        EXPECT_EQ(moved, expected);
      });
    }
  }
}

// Half precision with a fitting scale learns what fp32 learns; the gathered gradients are free of
// the scale, which is a power of two.
TEST(Engine, Fp16WithALossScaleFollowsFp32) {
  const auto config = [](const char* precision, double scale) {
    return tiny_config({}, [=](config::RunConfig& c) {
      c.training.precision = precision;
      c.optimizer.loss_scale = scale;
      c.model.hidden_dropout = c.model.attention_dropout = 0;
    });
  };
  Tensors exact;
  Numbers losses;
  with_engine(config("fp32", 1), [&](Engine& engine) {
    (void)engine.forward_backward(micro_batches(engine, 0));
    exact = engine.gather_gradients();
    for (int i = 0; i < 20; ++i) {
      losses.push_back(engine.train_step(micro_batches(engine, 0), 2e-3, 0.1).loss);
    }
  });
  EXPECT_LT(losses.back(), losses.front() - 0.5);
  Tensors scaled_by_one;
  for (const double scale : {1.0, 4096.0}) {
    with_engine(config("fp16", scale), [&](Engine& engine) {
      EXPECT_EQ(engine.stages().parameters().front()->data().scalar_type(), DType::Half);
      (void)engine.forward_backward(micro_batches(engine, 0));
      for (const auto& [name, values] : engine.gather_gradients()) {
        const double largest = exact.at(name).abs().max().item<double>();
        const double apart = values.sub(exact.at(name)).abs().max().item<double>();
        EXPECT_LE(apart, 2e-2 * largest + 1e-5) << name << " at scale " << scale;
      }
      for (std::size_t i = 0; i < losses.size(); ++i) {
        const StepResult result = engine.train_step(micro_batches(engine, 0), 2e-3, 0.1);
        EXPECT_EQ(result.loss_scale, scale);
        EXPECT_FALSE(result.skipped);
        EXPECT_NEAR(result.loss, losses[i], 1e-2) << "step " << i;
      }
    });
  }
}

// A static scale by a power of two changes no bit where nothing under- or overflows.
TEST(Engine, AStaticLossScaleIsTakenOutAgain) {
  Tensors plain;
  for (const double scale : {1.0, 1024.0}) {
    const config::RunConfig config = tiny_config(
        {.dp = 2, .sharded = true}, [=](config::RunConfig& c) { c.optimizer.loss_scale = scale; });
    with_engine(config, [&](Engine& engine) {
      const StepResult result = engine.train_step(micro_batches(engine, 0), 0.01, kWeightDecay);
      EXPECT_EQ(result.loss_scale, scale);
      Tensors mine = engine.gather_parameters();
      if (engine.context().rank() != 0) return;
      if (scale == 1) {
        plain = std::move(mine);
      } else {
        EXPECT_EQ(first_difference(mine, plain), "");
      }
    });
  }
}

TEST(Engine, CountsZerosOfTheGradient) {
  for (const Layout& layout :
       {Layout{}, Layout{.tp = 2}, Layout{.pp = 2}, Layout{.dp = 2, .sharded = true}}) {
    const config::RunConfig config =
        tiny_config(layout, [](config::RunConfig& c) { c.training.log_num_zeros_in_grad = true; });
    with_engine(config, [&](Engine& engine) {
      const StepResult result = engine.train_step(micro_batches(engine, 0), 0.01, kWeightDecay);
      double zeros = 0;
      for (const auto& [name, values] : engine.gather_gradients()) {
        zeros += values.eq(0).sum().item<double>();
      }
      EXPECT_EQ(result.scalars.find("num zeros"), zeros);
      EXPECT_GT(zeros, 0) << "tokens that do not occur";
    });
  }
  with_engine(tiny_config(), [&](Engine& engine) {
    const StepResult result = engine.train_step(micro_batches(engine, 0), 0.01, 0);
    EXPECT_FALSE(result.scalars.find("num zeros"));
  });
}

TEST(Engine, TellsTheLargestAttentionLogitOfAnyLayout) {
  std::optional<double> whole;
  for (const Layout& layout :
       {Layout{}, Layout{.tp = 2}, Layout{.pp = 2}, Layout{.dp = 2, .sharded = true}}) {
    const config::RunConfig config =
        tiny_config(layout, [](config::RunConfig& c) { c.logging.log_max_attention_logit = true; });
    with_engine(config, [&](Engine& engine) {
      const auto largest = [](const StepResult& result) {
        return result.scalars.find("max attention logit").value();
      };
      const double first = largest(engine.train_step(micro_batches(engine, 0), 0.01, kWeightDecay));
      // Of each step anew: what is not trained has the same again, evaluations add nothing.
      (void)engine.evaluate(micro_batches(engine, 5));
      const double again = largest(engine.forward_backward(micro_batches(engine, 1)));
      EXPECT_EQ(largest(engine.forward_backward(micro_batches(engine, 1))), again);
      EXPECT_NE(again, first);
      if (config.parallel.world_size == 1) whole = first;
      EXPECT_NEAR(first, whole.value(), 1e-5 * std::abs(whole.value()));
    });
  }
  with_engine(tiny_config(), [&](Engine& engine) {
    const StepResult result = engine.train_step(micro_batches(engine, 0), 0.01, 0);
    EXPECT_FALSE(result.scalars.find("max attention logit"));
  });
}

// SGD with momentum through saves and layouts.
TEST(Trainer, SgdMomentumIsResumed) {
  const RunFolder folder;
  const auto config = [&](const fs::path& to, bool load, std::int64_t stop) {
    return folder.config(both(saving(to, load), [=](config::RunConfig& c) {
      c.optimizer.optimizer = "sgd";
      c.optimizer.sgd_momentum = 0.8;
      c.optimizer.lr = 0.1;
      c.training.exit_interval = stop;
    }));
  };
  const fs::path whole = folder.checkpoints() / "whole";
  (void)run(config(whole, false, 0));
  const Numbers losses = series(folder.metrics(), "train", "lm_loss");
  const fs::path parts = folder.checkpoints() / "parts";
  (void)run(config(parts, false, 3));
  checkpoint::CheckpointReader reader(parts / checkpoint::iteration_folder(3));
  EXPECT_TRUE(reader.has("momentum/decoder.final_layernorm.weight"));
  EXPECT_FALSE(reader.has("exp_avg/decoder.final_layernorm.weight"));
  (void)run(config(parts, true, 0));
  EXPECT_EQ(series(folder.metrics(), "train", "lm_loss"), losses);
  EXPECT_EQ(state_hash(parts, 6), state_hash(whole, 6));
}

TEST(Trainer, SeveralValidationSetsAreNamedAndApart) {
  const RunFolder folder;
  const std::string other = (fs::path(folder.corpus()).parent_path() / "other").string();
  datasets::IndexedDatasetWriter writer(other, datasets::TokenDtype::kUint16);
  writer.add_sequence(std::vector<std::int32_t>(20 * kSequence + 1, 5));
  writer.end_document();
  writer.finish();
  const auto config = [&](std::vector<std::string> names) {
    return folder.config([=](config::RunConfig& c) {
      c.data.train_data_path = c.data.data_path;
      c.data.test_data_path = c.data.data_path;
      c.data.valid_data_path = {c.data.data_path.front(), other};
      c.data.data_path.clear();
      c.data.validation_set_names = names;
      c.training.multiple_validation_sets = true;
    });
  };
  std::string printed;
  (void)run(config({"numbers", "fives"}), &printed);
  for (const char* text : {" validation-numbers loss at iteration 3 | lm loss value: ",
                           " validation-fives loss at iteration 6 on validation set | ",
                           " validation loss at iteration 6 on test set | "}) {
    EXPECT_NE(printed.find(text), std::string::npos) << text << "\n" << printed;
  }
  const Numbers numbers = series(folder.metrics(), "validation-numbers", "lm_loss");
  const Numbers fives = series(folder.metrics(), "validation-fives", "lm_loss");
  ASSERT_EQ(numbers.size(), 3U);
  ASSERT_EQ(fives.size(), 3U);
  EXPECT_NE(numbers[0], fives[0]);
  const Numbers losses = series(folder.metrics(), "train", "lm_loss");
  // Evaluations change no training; a single set has the values that it has beside others.
  (void)run(folder.config([&](config::RunConfig& c) {
    c.data.train_data_path = c.data.data_path;
    c.data.valid_data_path = {other};
    c.data.data_path.clear();
  }));
  EXPECT_EQ(series(folder.metrics(), "train", "lm_loss"), losses);
  EXPECT_EQ(series(folder.metrics(), "validation", "lm_loss"), fives);
  expect_error(ErrorKind::kConfig, "--validation-set-names", [&] { (void)config({"one"}); });
  // Without --multiple-validation-sets several corpora are one set, a blend.
  (void)run(folder.config([&](config::RunConfig& c) {
    c.data.train_data_path = c.data.data_path;
    c.data.valid_data_path = {c.data.data_path.front(), other};
    c.data.data_path.clear();
  }));
  EXPECT_EQ(series(folder.metrics(), "train", "lm_loss"), losses);
  const Numbers blend = series(folder.metrics(), "validation", "lm_loss");
  EXPECT_EQ(blend.size(), 3U);
  EXPECT_NE(blend, fives);
}

}  // namespace
}  // namespace pentatron::training
