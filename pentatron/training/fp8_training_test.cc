// SPDX-License-Identifier: Apache-2.0
// Training with products in fp8, as the CPU's reference makes them.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "pentatron/tensor/ops.h"
#include "pentatron/training/test_support.h"

namespace pentatron::training {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary

config::RunConfig fp8_config(const std::string& recipe, const Layout& layout = {},
                             const ChangeConfig& change = {}) {
  return tiny_config(layout, [&](config::RunConfig& c) {
    c.training.precision = "bf16";
    c.model.fp8 = recipe.empty() ? "" : "hybrid";
    c.model.fp8_recipe = recipe;
    c.model.hidden_size = 64;  // of two ranks: multiples of 16
    c.model.hidden_dropout = 0;
    c.model.attention_dropout = 0;
    if (change) change(c);
  });
}

std::vector<double> losses(const config::RunConfig& config, int steps) {
  std::vector<double> all;
  with_engine(config, [&](Engine& engine) {
    const std::vector<double> own = train_steps(engine, 0, steps);
    if (engine.context().rank() == 0) all = own;
  });
  return all;
}

// Not equal to bf16, and near it, in every layout: TP ranks quantise their own slices.
TEST(Fp8Training, FollowsBf16InEveryLayout) {
  constexpr int kSteps = 4;
  const std::vector<double> wide = losses(fp8_config(""), kSteps);
  for (const char* recipe : {"tensorwise", "delayed", "blockwise"}) {
    for (const Layout& layout :
         {Layout{}, Layout{.tp = 2}, Layout{.pp = 2}, Layout{.dp = 2, .sharded = true}}) {
      const std::vector<double> narrow = losses(fp8_config(recipe, layout), kSteps);
      for (std::size_t step = 0; step < wide.size(); ++step) {
        EXPECT_NEAR(narrow[step], wide[step], 0.02 * wide[step]) << recipe << " step " << step;
        EXPECT_NE(narrow[step], wide[step]);
      }
    }
  }
}

// Data-parallel and pipeline ranks see the tensors of one rank; only the order of sums differs.
TEST(Fp8Training, DataParallelStepsAreThoseOfOneRank) {
  for (const char* recipe : {"tensorwise", "delayed", "blockwise"}) {
    const std::vector<double> alone = losses(fp8_config(recipe), 3);
    for (const Layout& layout : {Layout{.dp = 2}, Layout{.pp = 2}}) {
      const std::vector<double> together = losses(fp8_config(recipe, layout), 3);
      for (std::size_t step = 0; step < alone.size(); ++step) {
        EXPECT_NEAR(together[step], alone[step], 2e-3 * alone[step]) << recipe << " step " << step;
      }
    }
  }
}

// Rows that are shared between tensor-parallel ranks are quantised again, whole, for the weight's
// gradient.
TEST(Fp8Training, SequenceParallelStepsAreThoseOfTensorParallel) {
  for (const char* recipe : {"tensorwise", "delayed", "blockwise"}) {
    const auto run = [&](bool shares_rows) {
      return losses(
          fp8_config(recipe, {.tp = 2},
                     [&](config::RunConfig& c) { c.parallel.sequence_parallel = shares_rows; }),
          3);
    };
    const std::vector<double> apart = run(false), shared = run(true);
    for (std::size_t step = 0; step < apart.size(); ++step) {
      EXPECT_NEAR(shared[step], apart[step], 2e-3 * apart[step]) << recipe << " step " << step;
    }
  }
}

// Of the first linear map on this rank: [2, 1 + steps].
Tensor first_history(Engine& engine) {
  for (const nn::Buffer* buffer : engine.stages().buffers()) {
    if (buffer->local_name().ends_with("linear_qkv.fp8_history")) return buffer->data().clone();
  }
  ADD_FAILURE() << "no history";
  return tensor::zeros({2, 2}, DType::Float);
}

TEST(Fp8Training, HistoryOfLargestValues) {
  const auto run = [](std::int64_t steps, const char* algorithm, std::int64_t margin) {
    std::vector<Tensor> histories;
    with_engine(fp8_config("delayed", {},
                           [&](config::RunConfig& c) {
                             c.model.fp8_amax_history_len = steps;
                             c.model.fp8_amax_compute_algo = algorithm;
                             c.model.fp8_margin = margin;
                           }),
                [&](Engine& engine) {
                  for (int step = 0; step < 4; ++step) {
                    (void)train_steps(engine, step, step + 1);
                    histories.push_back(first_history(engine));
                  }
                });
    return histories;
  };
  const auto recent = run(1, "most_recent", 0);
  const auto three = run(3, "max", 0);
  const auto wider = run(1, "most_recent", 2);
  for (int step = 0; step < 4; ++step) {
    const Tensor& h = recent[static_cast<std::size_t>(step)];
    EXPECT_GT(h.min().item<float>(), 0.0F) << step;
    EXPECT_TRUE(h.select(1, 0).equal(h.select(1, 1)));
    const Tensor& long_h = three[static_cast<std::size_t>(step)];
    EXPECT_EQ(long_h.size(1), 4);
    EXPECT_TRUE(long_h.select(1, 0).equal(long_h.narrow(1, 1, 3).amax(IntList{1})));
    if (step > 0) {
      EXPECT_TRUE(
          long_h.select(1, 2).equal(three[static_cast<std::size_t>(step - 1)].select(1, 1)));
    }
    const Tensor& wide_h = wider[static_cast<std::size_t>(step)];
    EXPECT_TRUE(wide_h.select(1, 0).equal(wide_h.select(1, 1).mul(4)));
  }
  // What is known in the first step is nothing, so all runs begin alike.
  EXPECT_TRUE(recent[0].select(1, 1).equal(three[0].select(1, 1)));
  EXPECT_FALSE(recent[3].select(1, 1).equal(recent[2].select(1, 1)));
}

// Ranks of every layout agree on what was seen.
TEST(Fp8Training, HistoriesAreOfAllRanks) {
  Tensor alone;
  with_engine(fp8_config("delayed"), [&](Engine& engine) {
    (void)train_steps(engine, 0, 1);
    alone = first_history(engine);
  });
  with_engine(fp8_config("delayed", {.dp = 2}), [&](Engine& engine) {
    (void)train_steps(engine, 0, 1);
    EXPECT_LE(first_history(engine).sub(alone).abs().max().item<float>(),
              1e-2F * alone.abs().max().item<float>());
  });
}

// Adapters on frozen weights whose products are in fp8, in every layout; A and B learn in full.
TEST(Fp8Training, AdaptersFollowBf16) {
  constexpr int kSteps = 4;
  for (const bool dora : {false, true}) {
    const auto adapters = [dora](config::RunConfig& c) {
      c.model.lora_rank = 4;
      c.model.lora_dora = dora;
    };
    const std::vector<double> wide = losses(fp8_config("", {}, adapters), kSteps);
    for (const char* recipe : {"tensorwise", "delayed", "blockwise"}) {
      for (const Layout& layout :
           {Layout{}, Layout{.tp = 2}, Layout{.pp = 2}, Layout{.dp = 2, .sharded = true}}) {
        const std::vector<double> narrow = losses(fp8_config(recipe, layout, adapters), kSteps);
        for (std::size_t step = 0; step < wide.size(); ++step) {
          EXPECT_NEAR(narrow[step], wide[step], 0.02 * wide[step]) << recipe << " step " << step;
          EXPECT_NE(narrow[step], wide[step]);
        }
      }
    }
  }
  // Delayed scales see the rows of the frozen products.
  with_engine(fp8_config("delayed", {}, [](auto& c) { c.model.lora_rank = 4; }),
              [](Engine& engine) {
                const Tensors before = engine.gather_parameters();
                (void)train_steps(engine, 0, 2);
                EXPECT_GT(first_history(engine).max().item<float>(), 0.0F);
                for (const auto& [name, values] : engine.gather_parameters()) {
                  const bool adapter = name.find(".lora_") != std::string::npos;
                  EXPECT_EQ(values.equal(before.at(name)), !adapter) << name;
                }
              });
}

// Recompute quantises again with the scales of the first time.
TEST(Fp8Training, RecomputeChangesNoBit) {
  for (const char* recipe : {"", "tensorwise", "delayed", "blockwise"}) {
    SCOPED_TRACE(recipe);
    const auto gradients = [&](const char* granularity) {
      Tensors all;
      with_engine(fp8_config(recipe, {},
                             [&](config::RunConfig& c) {
                               c.model.recompute_granularity = granularity;
                               if (*granularity == '\0') return;
                               c.model.recompute_method = "uniform";
                               c.model.recompute_num_layers = 1;
                             }),
                  [&](Engine& engine) {
                    (void)train_steps(engine, 0, 1);
                    (void)engine.forward_backward(micro_batches(engine, 1));
                    all = engine.gather_gradients();
                  });
      return all;
    };
    const Tensors kept = gradients(""), again = gradients("full");
    EXPECT_EQ(first_difference(kept, again), "");
  }
}

}  // namespace
}  // namespace pentatron::training
