// SPDX-License-Identifier: Apache-2.0
// The mean of micro-batches' means, against a reference of its own: the step of each micro-batch
// alone, whose gradient is that of its mean, averaged.
#include <gtest/gtest.h>

#include <mutex>

#include "pentatron/training/test_support.h"

namespace pentatron::training {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary

config::RunConfig fp64_config(const Layout& layout, const std::string& mean,
                              std::int64_t context = 1) {
  return tiny_config(layout, [&](config::RunConfig& c) {
    c.training.precision = "fp64";
    c.training.loss_mean = mean;
    c.model.attention_dropout = 0;
    c.parallel.context_parallel_size = context;
    c.parallel.world_size *= context;
  });
}

struct Result {
  Tensors gradients;
  double loss = 0;
  double evaluated = 0;
};

Result gradients_of(const config::RunConfig& config) {
  Result result;
  std::mutex mutex;
  with_engine(config, [&](Engine& engine) {
    const std::vector<Batch> batches = micro_batches(engine, 0);
    Result mine;
    mine.loss = engine.forward_backward(batches).loss;
    mine.gradients = engine.gather_gradients();
    mine.evaluated = engine.evaluate(batches).loss();
    const std::lock_guard lock(mutex);
    result = std::move(mine);
  });
  return result;
}

// Each micro-batch is a step of its own. Samples that count nothing have a mean of zero.
Tensors mean_of_single_steps() {
  Tensors sum;
  with_engine(fp64_config({}, "tokens"), [&](Engine& engine) {
    const std::vector<Batch> batches = micro_batches(engine, 0);
    for (const Batch& batch : batches) {
      (void)engine.forward_backward({batch});
      for (auto& [name, gradient] : engine.gather_gradients()) {
        const Tensor share = gradient.div(static_cast<double>(batches.size()));
        const auto [entry, is_new] = sum.emplace(name, share);
        if (!is_new) entry->second = entry->second.add(share);
      }
    }
  });
  return sum;
}

double token_mean(const Layout& layout) {
  return gradients_of(fp64_config(layout, "tokens")).evaluated;
}

TEST(LossMean, GradientsAreThoseOfSingleMicroBatchesAveraged) {
  const Tensors expected = mean_of_single_steps();
  const Result tokens = gradients_of(fp64_config({}, "tokens"));
  EXPECT_GT(worst_difference(tokens.gradients, expected), 1e-3);
  for (const Layout& layout : std::vector<Layout>{{},
                                                  {.tp = 2},
                                                  {.pp = 2},
                                                  {.dp = 2},
                                                  {.dp = 2, .sharded = true},
                                                  {.tp = 2, .pp = 2, .dp = 2}}) {
    const Result means = gradients_of(fp64_config(layout, "micro-batches"));
    EXPECT_LE(worst_difference(means.gradients, expected), 1e-11);
    // What is told stays a mean over tokens, as Megatron-LM tells it.
    EXPECT_NEAR(means.loss, tokens.loss, 1e-12 * tokens.loss);
    EXPECT_NEAR(means.evaluated, tokens.evaluated, 1e-12 * tokens.evaluated);
  }
}

// Each context-parallel rank takes the mean over its own rows, as Megatron-LM does.
TEST(LossMean, ContextParallelRanksHaveMeansOfTheirOwn) {
  const config::RunConfig one = fp64_config({}, "tokens");
  Tensors expected;
  with_engine(one, [&](Engine& engine) {
    const std::vector<Batch> batches = micro_batches(engine, 0);
    for (const Batch& batch : batches) {
      for (std::int64_t rank = 0; rank < 2; ++rank) {
        // Rank r has the quarters r and 3 - r of each sample's rows.
        Batch half = batch;
        const Tensor mask = batch.loss_mask().clone();
        for (std::int64_t row = 0; row < mask.numel(); ++row) {
          const std::int64_t quarter = row % kSequence / (kSequence / 4);
          if (quarter != rank && quarter != 3 - rank) mask.select(0, row).zero_();
        }
        half.fields["loss_mask"] = mask;
        (void)engine.forward_backward({half});
        for (auto& [name, gradient] : engine.gather_gradients()) {
          const Tensor share = gradient.div(2.0 * static_cast<double>(batches.size()));
          const auto [entry, is_new] = expected.emplace(name, share);
          if (!is_new) entry->second = entry->second.add(share);
        }
      }
    }
  });
  const Result means = gradients_of(fp64_config({}, "micro-batches", 2));
  EXPECT_LE(worst_difference(means.gradients, expected), 1e-11);
  EXPECT_GT(worst_difference(gradients_of(fp64_config({}, "micro-batches")).gradients, expected),
            1e-4);
}

// Evaluations of conversations are means of micro-batches' means too, and over several steps the
// mean of the steps', whatever their tokens; a step that counts nothing is left out.
TEST(LossMean, EvaluationsOfConversations) {
  const auto talking = [](const Layout& layout) {
    config::RunConfig c = fp64_config(layout, "micro-batches");
    c.data.sft = true;
    return c;
  };
  double expected = 0;
  with_engine(fp64_config({}, "tokens"), [&](Engine& engine) {
    for (std::int64_t step = 0; step < 2; ++step) {
      const std::vector<Batch> batches = micro_batches(engine, step);
      for (const Batch& batch : batches) {
        const EvaluationResult one = engine.evaluate({batch});
        if (one.num_valid_tokens == 0) continue;  // its mean is zero
        expected += one.loss() / static_cast<double>(2 * batches.size());
      }
    }
  });
  for (const Layout& layout : std::vector<Layout>{{}, {.tp = 2, .pp = 2}, {.dp = 2}}) {
    with_engine(talking(layout), [&](Engine& engine) {
      EvaluationResult sum;
      for (std::int64_t step = 0; step < 2; ++step)
        sum += engine.evaluate(micro_batches(engine, step));
      EXPECT_NEAR(sum.loss(), expected, 1e-12 * expected);
      EXPECT_EQ(sum.loss_count, 2);
      std::vector<Batch> nothing = micro_batches(engine, 2);
      for (Batch& batch : nothing) batch.fields["loss_mask"] = batch.loss_mask().mul(0.0);
      sum += engine.evaluate(nothing);
      EXPECT_NEAR(sum.loss(), expected, 1e-12 * expected);
      // A mean over tokens is another number.
      const std::vector<Batch> first = micro_batches(engine, 0);
      const double mean = engine.evaluate(first).loss();
      EXPECT_GT(std::abs(mean - token_mean(layout)), 1e-6 * mean);
    });
  }
}

// A step without any valid token has neither loss nor gradient.
TEST(LossMean, NothingValid) {
  with_engine(fp64_config({}, "micro-batches"), [](Engine& engine) {
    std::vector<Batch> batches = micro_batches(engine, 0);
    for (Batch& batch : batches) batch.fields["loss_mask"] = batch.loss_mask().mul(0.0);
    const StepResult result = engine.train_step(batches, 0.01, kWeightDecay);
    EXPECT_EQ(result.loss, 0.0);
    EXPECT_EQ(result.grad_norm, 0.0);
    EXPECT_TRUE(result.finite);
  });
}

}  // namespace
}  // namespace pentatron::training
