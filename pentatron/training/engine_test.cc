// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/engine.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>
#include <set>

#include "pentatron/base/test_support.h"
#include "pentatron/base/timer.h"
#include "pentatron/base/trace.h"
#include "pentatron/comm/group.h"
#include "pentatron/models/registry.h"
#include "pentatron/nn/step_context.h"
#include "pentatron/pipeline_parallel/executor.h"
#include "pentatron/pipeline_parallel/schedule.h"
#include "pentatron/tensor/memory.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/training/test_support.h"

namespace pentatron::training {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary

std::vector<std::int64_t> values_of(const Tensor& t) {
  const std::int64_t* begin = t.data_ptr<std::int64_t>();
  return {begin, begin + t.numel()};
}

TEST(ToBatch, ShapesSegmentsAndPositions) {
  const PrecisionPolicy policy = precision_policy("bf16");
  datasets::SampleBatch samples;
  samples.sample_ids = {41, 7};
  samples.sequences["text"] = {
      .samples = {0, 4, 8}, .boundaries = {0, 3, 4, 8}, .positions = {0, 1, 2, 0, 0, 1, 2, 3}};
  samples.sequences["image"] = {.samples = {0, 0, 2}, .boundaries = {0, 2}, .positions = {5, 6}};
  using Ids = std::vector<std::int64_t>;
  samples.fields["tokens"] = std::pmr::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8};
  samples.fields["labels"] = std::pmr::vector<std::int64_t>{2, 3, 4, 5, 6, 7, 8, 9};
  samples.fields["loss_mask"] = std::pmr::vector<float>{1, 1, 0, 1, 0, 0, 1, 1};
  samples.fields["is_next"] = std::pmr::vector<std::int64_t>{1, 0};
  const Batch batch = to_batch(samples, policy);
  EXPECT_EQ(batch.num_tokens(), 8);
  const SequenceLayout& text = batch.text();
  EXPECT_EQ(text.rows().boundaries, (Ids{0, 3, 4, 8}));
  EXPECT_EQ(text.rows().samples, (Ids{0, 4, 8}));
  EXPECT_EQ(text.attention()->max_q_len, 4);
  EXPECT_EQ(text.rows().sample_ids, (Ids{41, 41, 41, 41, 7, 7, 7, 7}));
  EXPECT_EQ(text.rows().token_index, (Ids{0, 1, 2, 3, 0, 1, 2, 3}));
  // Tensors hold what the host vectors hold.
  EXPECT_EQ(values_of(text.positions()), (Ids{0, 1, 2, 0, 0, 1, 2, 3}));
  EXPECT_EQ(values_of(text.sample_ids()), text.rows().sample_ids);
  EXPECT_EQ(values_of(text.token_index()), text.rows().token_index);
  EXPECT_EQ(values_of(batch.tokens()), (Ids{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(values_of(batch.labels()), (Ids{2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(batch.loss_mask().scalar_type(), policy.statistics);
  ASSERT_EQ(batch.loss_mask().dim(), 1);
  EXPECT_EQ(values_of(batch.loss_mask().to(DType::Long)), (Ids{1, 1, 0, 1, 0, 0, 1, 1}));
  // Another sequence, which not every sample has rows of, and a field of one value a sample.
  EXPECT_EQ(batch.sequence("image").rows().sample_ids, (Ids{7, 7}));
  EXPECT_EQ(batch.sequence("image").rows().token_index, (Ids{0, 1}));
  EXPECT_EQ(batch.sequence("image").max_position(), 6);
  EXPECT_EQ(values_of(batch.field("is_next")), (Ids{1, 0}));
}

// On a GPU a position that a table does not have would give NaN and no error: none gets there.
TEST(Positions, OutsideTheModelsAreRefusedBeforeAnythingRuns) {
  for (const char* kind : {"rope", "learned_absolute"}) {
    const config::RunConfig config = tiny_config({}, [&](config::RunConfig& c) {
      c.model.position_embedding_type = kind;
      c.model.hidden_dropout = c.model.attention_dropout = 0;
    });
    with_engine(config, [&](Engine& engine) {
      const std::vector<Batch> good = micro_batches(engine, 0);
      const Tensors before = engine.gather_parameters();
      for (const std::int64_t position : {kSequence, std::int64_t{-1}}) {
        std::vector<Batch> bad = good;
        SequenceRows rows = bad.back().text().rows();
        rows.positions.back() = position;
        bad.back().sequences[std::string(Batch::kText)] = SequenceLayout(rows);
        const std::string told = "has the position " + std::to_string(position) +
                                 ", the model has " + std::to_string(kSequence);
        expect_error(ErrorKind::kData, told, [&] { (void)engine.train_step(bad, 0.01, 0); });
        expect_error(ErrorKind::kData, told, [&] { (void)engine.evaluate(bad); });
      }
      EXPECT_EQ(first_difference(engine.gather_parameters(), before), "");
      EXPECT_TRUE(engine.train_step(good, 0.01, 0).finite);
    });
  }
}

// The first samples of another source.
class ShortSource final : public datasets::SampleSource {
 public:
  explicit ShortSource(std::int64_t count) : count_(count) {}
  [[nodiscard]] std::int64_t num_samples() const override { return count_; }
  [[nodiscard]] std::int64_t length(std::int64_t) const override { return kSequence; }
  [[nodiscard]] std::string identity() const override { return "short"; }
  [[nodiscard]] datasets::Sample sample(std::int64_t i) const override {
    EXPECT_LT(i, count_);
    return SyntheticSource().sample(i);
  }

 private:
  std::int64_t count_;
};

TEST(BatchStream, WholeBatchesInOrderThenAnew) {
  config::RunConfig config = tiny_config({.dp = 2});
  const PrecisionPolicy policy = precision_policy("fp32");
  const ShortSource source(2 * kGlobalBatch + 3);  // two batches of 8 and a rest
  // First sample of each micro-batch (of 2) of each step.
  const auto first_samples = [&](std::int64_t dp_rank, std::int64_t consumed, int workers) {
    config.data.num_workers = workers;
    BatchStream stream(source, config, dp_rank, consumed, policy);
    std::vector<std::int64_t> samples;
    for (int step = 0; step < 3; ++step) {
      for (const Batch& batch : stream.next()) {
        EXPECT_EQ(batch.num_tokens(), 2 * kSequence);
        samples.push_back(batch.text().rows().sample_ids.front());
      }
    }
    return samples;
  };
  for (const int workers : {0, 3}) {
    EXPECT_EQ(first_samples(0, 0, workers), (std::vector<std::int64_t>{0, 4, 8, 12, 0, 4}));
    EXPECT_EQ(first_samples(1, 0, workers), (std::vector<std::int64_t>{2, 6, 10, 14, 2, 6}));
    EXPECT_EQ(first_samples(0, 8, workers), (std::vector<std::int64_t>{8, 12, 0, 4, 8, 12}));
    EXPECT_EQ(first_samples(0, 16, workers), first_samples(0, 0, workers));
  }
}

// Sum over valid tokens of -log softmax(logits)[label], token by token in fp64.
double loss_sum_by_hand(Engine& engine, const std::vector<Batch>& batches) {
  const tensor::NoGrad no_grad;
  double sum = 0;
  for (const Batch& batch : batches) {
    nn::StepContext step{.batch = batch,
                         .policy = engine.policy(),
                         .phase = nn::Phase::kEvaluate,
                         .output = nn::StageOutput::kLogits};
    const Tensor logits =
        engine.stages().at(0).forward({}, step).at(0).tensor.to(DType::Double).contiguous();
    const Tensor mask = batch.loss_mask().to(DType::Double).contiguous();
    for (std::int64_t row = 0; row < batch.num_tokens(); ++row) {
      const double* values = logits.data_ptr<double>() + row * logits.size(1);
      double normaliser = 0;
      for (std::int64_t v = 0; v < kVocabulary; ++v) normaliser += std::exp(values[v]);
      const std::int64_t label = batch.labels().data_ptr<std::int64_t>()[row];
      sum += mask.data_ptr<double>()[row] * (std::log(normaliser) - values[label]);
    }
  }
  return sum;
}

TEST(Engine, EvaluationIsTheMeanOverValidTokens) {
  const ChangeConfig fp64 = [](config::RunConfig& c) { c.training.precision = "fp64"; };
  double by_hand = 0;
  double count = 0;
  with_engine(tiny_config({}, fp64), [&](Engine& engine) {
    (void)train_steps(engine, 0, 2);  // away from the initial values
    const std::vector<Batch> batches = micro_batches(engine, 5);
    for (const Batch& batch : batches) {
      for (const std::int64_t valid : values_of(batch.loss_mask().to(DType::Long))) {
        count += static_cast<double>(valid);
      }
    }
    ASSERT_LT(count, kGlobalBatch * kSequence);  // the mask bites
    by_hand = loss_sum_by_hand(engine, batches);
    const Tensors before = engine.gather_parameters();
    const EvaluationResult result = engine.evaluate(batches);
    EXPECT_EQ(result.num_valid_tokens, count);
    EXPECT_NEAR(result.loss_sum / by_hand, 1.0, 1e-12);
    // No dropout: again the same; and nothing was changed.
    EXPECT_EQ(engine.evaluate(batches).loss_sum, result.loss_sum);
    EXPECT_EQ(first_difference(engine.gather_parameters(), before), "");
  });
  // Each of two pipelines sees half of the batch; every rank is told the whole.
  with_engine(tiny_config({.pp = 2, .dp = 2}, fp64), [&](Engine& engine) {
    (void)train_steps(engine, 0, 2);
    const EvaluationResult result = engine.evaluate(micro_batches(engine, 5));
    EXPECT_EQ(result.num_valid_tokens, count);
    EXPECT_NEAR(result.loss_sum / by_hand, 1.0, 1e-10);
  });
}

TEST(Engine, ABatchWithoutValidTokensGivesNoLossAndNoNan) {
  with_engine(tiny_config(), [](Engine& engine) {
    std::vector<Batch> batches = micro_batches(engine, 0);
    for (Batch& batch : batches) batch.loss_mask().zero_();
    const StepResult result = engine.train_step(batches, 0.01, 0.0);
    EXPECT_EQ(result.num_valid_tokens, 0);
    EXPECT_EQ(result.loss, 0);
    EXPECT_FALSE(result.scalars.find("lm loss")) << "a loss of 0 would enter the mean";
    EXPECT_EQ(result.grad_norm, 0);
    EXPECT_TRUE(result.finite);
  });
}

TEST(Engine, NanLeavesParametersUntouchedOnEveryRank) {
  // One element of one rank's shard is damaged; all ranks must see it and none may update.
  with_engine(tiny_config({.tp = 2, .dp = 2, .sharded = true}), [](Engine& engine) {
    (void)train_steps(engine, 0, 1);
    if (engine.context().coordinate("tp") == 1) {
      const tensor::NoGrad no_grad;
      engine.stages().parameters().back()->data().view({-1})[0].fill_(std::nan(""));
    }
    const Tensors before = engine.gather_parameters();
    const std::int64_t updates = engine.optimizer().num_updates();
    const StepResult result = engine.train_step(micro_batches(engine, 1), 0.01, kWeightDecay);
    EXPECT_FALSE(result.finite);
    EXPECT_TRUE(result.skipped);
    EXPECT_EQ(engine.optimizer().num_updates(), updates);
    for (const auto& [name, values] : engine.gather_parameters()) {
      const Tensor& old = before.at(name);
      // NaN is not equal to itself: compare where the old value is a number, and that the rest
      // is still none.
      const Tensor same = values.eq(old).logical_or(old.isnan().logical_and(values.isnan()));
      EXPECT_TRUE(same.all().item<bool>()) << name;
    }
  });
}

// fp32 and bf16 on the same eight samples again and again.
std::vector<double> losses_in(const std::string& precision) {
  std::vector<double> losses;
  const config::RunConfig config = tiny_config({}, [&](config::RunConfig& c) {
    c.training.precision = precision;
    c.model.hidden_dropout = 0;
    c.model.attention_dropout = 0;
  });
  with_engine(config, [&](Engine& engine) {
    const DType expected = precision == "bf16" ? DType::BFloat16 : DType::Float;
    EXPECT_EQ(engine.stages().parameters().front()->data().scalar_type(), expected);
    for (int step = 0; step < 20; ++step) {
      losses.push_back(engine.train_step(micro_batches(engine, 0), 2e-3, kWeightDecay).loss);
    }
  });
  return losses;
}

TEST(Engine, Bf16LossStaysNearFp32) {
  const std::vector<double> fp32 = losses_in("fp32");
  const std::vector<double> bf16 = losses_in("bf16");
  EXPECT_NE(fp32.front(), bf16.front());
  EXPECT_LT(fp32.back(), fp32.front() - 0.5);  // it learns, so that nearness means something
  for (std::size_t step = 0; step < fp32.size(); ++step) {
    EXPECT_NEAR(bf16[step], fp32[step], 2e-2) << "step " << step;
  }
}

// Promise: no globals. Two grids of one world, each with an engine, trained turn by turn.
TEST(Engine, TwoContextsWithDifferentGridsInOneProcess) {
  const ChangeConfig fp64 = [](config::RunConfig& c) { c.training.precision = "fp64"; };
  std::vector<double> alone;
  Tensors weights_alone;
  with_engine(tiny_config({}, fp64), [&](Engine& engine) {
    alone = train_steps(engine, 0, 3);
    weights_alone = engine.gather_parameters();
  });
  const config::RunConfig first = tiny_config({.tp = 2, .dp = 2, .sharded = true}, fp64);
  const config::RunConfig second = tiny_config({.tp = 2, .pp = 2}, fp64);
  comm::run_threads(
      {.world_size = 4, .timeout = std::chrono::milliseconds(60'000)}, [&](comm::Backend& backend) {
        comm::ParallelContext a(backend, comm::make_grids(first.parallel), "a");
        comm::ParallelContext b(backend, comm::make_grids(second.parallel), "b");
        EXPECT_EQ(a.size("dp"), 2);
        EXPECT_EQ(b.size("dp"), 1);
        EXPECT_EQ(b.size("pp"), 2);
        Engine engine_a(first, a);
        Engine engine_b(second, b);
        for (std::int64_t step = 0; step < 3; ++step) {
          const double expected = alone[static_cast<std::size_t>(step)];
          EXPECT_NEAR(train_steps(engine_a, step, step + 1).at(0) / expected, 1.0, 1e-10);
          EXPECT_NEAR(train_steps(engine_b, step, step + 1).at(0) / expected, 1.0, 1e-10);
        }
        for (Engine* engine : {&engine_b, &engine_a}) {
          const Tensors weights = engine->gather_parameters();
          ASSERT_EQ(weights.size(), weights_alone.size());
          for (const auto& [name, values] : weights_alone) {
            // Adam's quotient enlarges the rounding of gradients that are exactly zero.
            EXPECT_LE(weights.at(name).sub(values).abs().max().item<double>(), 1e-6) << name;
          }
        }
      });
}

TEST(Engine, LocalParameterCountsAddUp) {
  std::int64_t whole = 0;
  with_engine(tiny_config(), [&](Engine& engine) {
    for (const auto& [name, values] : engine.gather_parameters()) whole += values.numel();
    EXPECT_EQ(engine.num_local_parameters(), whole);
  });
  // Without replicas: tp 2 holds layer norms twice, pp 2 the tied embedding twice.
  std::int64_t sum = 0;
  std::mutex mutex;
  with_engine(tiny_config({.pp = 2}), [&](Engine& engine) {
    const std::lock_guard lock(mutex);
    sum += engine.num_local_parameters();
  });
  EXPECT_EQ(sum, whole + kVocabulary * 32);
}

std::unique_ptr<nn::Stage> make_gpt(const config::RunConfig& config,
                                    const parallel_layers::LeafContext& leaf,
                                    const config::StagePlan& plan) {
  return models::make_stage("gpt", config.model, leaf, plan);
}

TEST(Engine, GatheredWeightsHoldFrozenOnes) {
  Tensors expected;
  with_engine(tiny_config(), [&](Engine& engine) { expected = engine.gather_parameters(); });
  for (const Layout& layout :
       {Layout{}, Layout{.dp = 2, .sharded = true}, Layout{.tp = 2}, Layout{.pp = 2}}) {
    const config::RunConfig config = tiny_config(layout);
    with_engine(
        config,
        [&](Engine& engine) {
          EXPECT_EQ(first_difference(engine.gather_parameters(), expected), "");
          (void)engine.forward_backward(micro_batches(engine, 0));
          int zero = 0;
          for (const auto& [name, gradient] : engine.gather_gradients()) {
            if (gradient.abs().max().item<double>() == 0) ++zero;
          }
          EXPECT_EQ(zero, 2) << "frozen weights have no gradient, the others do";
        },
        [&](comm::ParallelContext&, const parallel_layers::LeafContext& leaf,
            const config::StagePlan& plan) {
          auto stage = make_gpt(config, leaf, plan);
          for (nn::Parameter* parameter : stage->parameters()) {
            const bool frozen = parameter->local_name().ends_with("mlp.linear_fc2.weight");
            if (frozen) parameter->set_trainable(false);
          }
          return stage;
        });
  }
}

// The norm and the flag that leave a step out are found on the device: nothing between the first
// kernel and read_step asks the host. With the update skipped, the next step is as if it had never
// been.
TEST(Engine, ASkippedStepLeavesNoTrace) {
  const ChangeConfig go_on = [](config::RunConfig& c) {
    c.training.check_for_nan_in_loss_and_grad = false;
  };
  for (const bool sharded : {false, true}) {
    Tensors undisturbed;
    const config::RunConfig config = tiny_config({.dp = 2, .sharded = sharded}, go_on);
    with_engine(config, [&](Engine& engine) {
      (void)train_steps(engine, 0, 2);
      Tensors mine = engine.gather_parameters();
      if (engine.context().rank() == 0) undisturbed = std::move(mine);
    });
    with_engine(config, [&](Engine& engine) {
      (void)train_steps(engine, 0, 1);
      std::vector<Batch> bad = micro_batches(engine, 7);
      if (engine.context().rank() == 1) bad.back().loss_mask()[0] = std::nan("");
      engine.launch_step(bad, {.lr = 0.01, .weight_decay = kWeightDecay});
      const StepResult result = engine.read_step();
      EXPECT_TRUE(result.skipped);
      EXPECT_FALSE(result.finite);
      EXPECT_EQ(engine.optimizer().num_updates(), 1);
      (void)train_steps(engine, 1, 2);
      EXPECT_EQ(first_difference(engine.gather_parameters(), undisturbed), "");
    });
  }
}

constexpr std::int64_t kAllowedBytes = 2 << 20;

TEST(Engine, ResidentMemoryDoesNotGrow) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer keeps freed memory";
#endif
  with_engine(tiny_config({}, [](config::RunConfig& c) { c.training.micro_batch_size = 8; }),
              [](Engine& engine) {
                (void)train_steps(engine, 0, 100);
                const std::int64_t after_100 = tensor::resident_bytes();
                (void)train_steps(engine, 100, 300);
                const std::int64_t grown = tensor::resident_bytes() - after_100;
                EXPECT_LE(grown, std::max(kAllowedBytes, after_100 / 100));
              });
}

// Peak of what a step's activations need, and the gradients, for a change of the configuration.
std::pair<std::int64_t, Tensors> step_of(const ChangeConfig& change) {
  std::pair<std::int64_t, Tensors> result;
  const auto deeper = [&](config::RunConfig& c) {
    c.model.num_layers = 6;
    c.training.micro_batch_size = 8;
    change(c);
  };
  with_engine(tiny_config({}, deeper), [&](Engine& engine) {
    const std::vector<Batch> batches = micro_batches(engine, 0);
    (void)engine.forward_backward(batches);  // what is made once is there
    const tensor::MemoryMeter meter;
    (void)engine.forward_backward(batches);
    result = {meter.peak_bytes(), engine.gather_gradients()};
  });
  return result;
}

TEST(Engine, RecomputeKeepsLessAndChangesNoBit) {
  const auto [kept, gradients] = step_of([](config::RunConfig&) {});
  const auto full = [&](const char* method, std::int64_t layers) {
    const auto [bytes, others] = step_of([&](config::RunConfig& c) {
      c.model.recompute_granularity = "full";
      c.model.recompute_method = method;
      c.model.recompute_num_layers = layers;
    });
    EXPECT_EQ(first_difference(others, gradients), "") << method << " " << layers;
    return bytes;
  };
  const auto selective = [&](const std::vector<std::string>& modules) {
    const auto [bytes, others] = step_of([&](config::RunConfig& c) {
      c.model.recompute_granularity = "selective";
      c.model.recompute_modules = modules;
    });
    EXPECT_EQ(first_difference(others, gradients), "") << modules.front();
    return bytes;
  };
  const std::int64_t uniform = full("uniform", 1);
  const std::int64_t block = full("block", 3);
  EXPECT_LT(uniform, kept * 2 / 3);
  EXPECT_LT(block, kept) << "half of the layers";
  EXPECT_GT(block, uniform);
  EXPECT_NE(full("uniform", 3), uniform) << "another length of run keeps other inputs";
  const std::int64_t attention = selective({"core_attn"});
  EXPECT_LT(attention, kept);
  EXPECT_LT(selective({"core_attn", "mlp"}), attention);
  // The norms' outputs, whether a product or a part that is made again itself has saved them.
  EXPECT_LT(selective({"layernorm"}), kept);
  EXPECT_LT(selective({"core_attn", "layernorm"}), attention);
  EXPECT_LT(selective({"core_attn", "mlp", "layernorm"}), selective({"core_attn", "mlp"}));
}

// What the ranks of a layout keep together after one forward, and the gradients of a step.
std::pair<std::int64_t, Tensors> kept_and_gradients(const Layout& layout,
                                                    const ChangeConfig& change) {
  std::pair<std::int64_t, Tensors> result;
  const tensor::MemoryMeter meter;
  with_engine(tiny_config(layout,
                          [&](config::RunConfig& c) {
                            c.model.num_layers = 6;
                            c.training.micro_batch_size = 8;
                            c.training.global_batch_size = 8 * layout.dp;
                            change(c);
                          }),
              [&](Engine& engine) {
                comm::Group& world = engine.context().world();
                const std::vector<Batch> batches = micro_batches(engine, 0);
                (void)engine.forward_backward(batches);  // what is made once is there
                Tensors gradients = engine.gather_gradients();
                world.barrier();
                const std::int64_t before = meter.current_bytes();
                world.barrier();
                const tensor::EnableGrad with_grad;
                nn::StepContext step{.batch = batches[0], .policy = engine.policy(), .seed = 1};
                const nn::Bundle losses = engine.stages().at(0).forward({}, step);
                world.barrier();
                if (engine.context().rank() == 0) {
                  result = {meter.current_bytes() - before, std::move(gradients)};
                }
                world.barrier();
              });
  return result;
}

TEST(Engine, DistributedSavesKeepAShareAndChangeNoBit) {
  for (const Layout& layout : {Layout{.tp = 2}, Layout{.tp = 4}, Layout{.tp = 2, .dp = 2}}) {
    const auto run = [&](bool slices) {
      return kept_and_gradients(layout, [&](config::RunConfig& c) {
        c.model.recompute_granularity = "full";
        c.model.recompute_method = "uniform";
        c.model.recompute_num_layers = 1;
        c.model.distribute_saved_activations = slices;
      });
    };
    const auto [whole, gradients] = run(false);
    const auto [share, others] = run(true);
    EXPECT_EQ(first_difference(others, gradients), "") << layout.tp;
    // Six layers' inputs of 8 x 16 rows and 32 channels, in fp32.
    const std::int64_t inputs = 6 * 8 * kSequence * 32 * 4;
    const std::int64_t ranks = layout.tp * layout.dp;
    EXPECT_NEAR(static_cast<double>(whole - share),
                static_cast<double>(inputs * ranks - inputs * layout.dp), 4096.0 * ranks)
        << layout.tp;
  }
}

// A step of two pipeline ranks with two stages each: losses, gradients and, rank by rank, what was
// done as "forward 0.3" (chunk and micro-batch).
struct GroupedStep {
  std::vector<double> losses;
  Tensors gradients;
  std::map<std::int64_t, std::vector<std::string>> done;
};

GroupedStep grouped_step(std::int64_t group_size) {
  GroupedStep result;
  std::mutex mutex;
  const auto change = [&](config::RunConfig& c) {
    c.model.num_layers = 4;
    c.training.micro_batch_size = 1;
    c.parallel.num_virtual_stages_per_pipeline_rank = 2;
    c.parallel.microbatch_group_size_per_vp_stage = group_size;
  };
  with_engine(tiny_config({.pp = 2}, change), [&](Engine& engine) {
    EXPECT_EQ(engine.stages().size(), 2);
    Trace trace;
    Timers timers{0};
    timers.set_trace(&trace);
    engine.set_timers(&timers);
    trace.set_recording(true);
    const double loss = engine.forward_backward(micro_batches(engine, 0)).loss;
    trace.set_recording(false);
    Tensors gradients = engine.gather_gradients();
    engine.set_timers(nullptr);
    const std::lock_guard lock(mutex);
    result.losses.push_back(loss);
    result.gradients = std::move(gradients);
    auto& done = result.done[engine.context().world().rank()];
    for (const TraceSpan& span : trace.spans()) {
      if (span.lane != pipeline_parallel::kScheduleLane) continue;
      done.push_back(fmt::format("{} {}.{}", span.name, span.chunk, span.micro_batch));
    }
  });
  return result;
}

// Groups change the order of the work, which is the schedule's of that size, and neither loss nor a
// gradient; a group that leaves too small a rest is refused with both numbers.
TEST(Engine, GroupSizeOfVirtualStages) {
  const GroupedStep twos = grouped_step(0);
  EXPECT_EQ(twos.losses.size(), 2U);
  std::set<std::vector<std::string>> orders = {twos.done.at(0)};
  for (const std::int64_t size : {2, 3, 4, 8}) {
    const GroupedStep step = grouped_step(size);
    EXPECT_EQ(step.losses, twos.losses) << size;
    EXPECT_EQ(worst_difference(step.gradients, twos.gradients), 0.0) << size;
    const auto lists = pipeline_parallel::interleaved_one_forward_one_backward(
        {.num_ranks = 2,
         .num_micro_batches = 8,
         .num_chunks = 2,
         .group_size = static_cast<int>(size)});
    for (const std::int64_t rank : {0, 1}) {
      std::vector<std::string> planned;
      for (const pipeline_parallel::Action& action : lists.at(static_cast<std::size_t>(rank))) {
        planned.push_back(fmt::format("{} {}.{}", pipeline_parallel::to_string(action.kind),
                                      action.chunk, action.micro_batch));
      }
      EXPECT_EQ(step.done.at(rank), planned) << size << " rank " << rank;
    }
    EXPECT_EQ(orders.insert(step.done.at(0)).second, size != 2) << "an order of its own " << size;
  }
  try {
    (void)grouped_step(7);
    FAIL() << "8 micro-batches in groups of 7 leave one for two ranks";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    const std::string what = error.what();
    for (const char* part : {"8 micro-batches", "7", "2"}) {
      EXPECT_NE(what.find(part), std::string::npos) << part << " in: " << what;
    }
  }
}

}  // namespace
}  // namespace pentatron::training
