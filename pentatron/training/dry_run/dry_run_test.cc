// SPDX-License-Identifier: Apache-2.0
// Whole dry runs against numbers by hand.
#include "pentatron/training/dry_run/dry_run.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "pentatron/base/error.h"
#include "pentatron/training/dry_run/activations.h"
#include "pentatron/training/dry_run/report.h"
#include "pentatron/training/dry_run/test_support.h"

namespace pentatron::training::dry_run {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary

// Llama of 2 layers, h 64, f 128, 4 heads of 16, 2 groups, 61 tokens, untied:
//   layer: 64 (64 + 2 x 32) + 64 x 64 + 3 x 64 x 128 + 2 x 64 = 36,992
//   model: 2 x 61 x 64 + 2 x 36,992 + 64 = 81,856
config::RunConfig by_hand(const Layout& layout, const ChangeConfig& change = {}) {
  return config_of({"", layout, 1, [&](config::RunConfig& c) {
                      llama(c);
                      c.model.num_layers = 2;
                      c.model.ffn_hidden_size = 128;
                      if (change) change(c);
                    }});
}
constexpr std::int64_t kParametersByHand = 81'856;

TEST(DryRun, ParametersOfAllRanksAreTheModels) {
  for (const Layout& layout :
       {Layout{}, Layout{.tp = 2}, Layout{.tp = 4}, Layout{.pp = 2}, Layout{.tp = 4, .pp = 2}}) {
    EXPECT_EQ(plan(by_hand(layout)).num_parameters, kParametersByHand)
        << layout.tp << " x " << layout.pp;
  }
  const auto tied = [](config::RunConfig& c) {
    c.model.untie_embeddings_and_output_weights = false;
  };
  for (const Layout& layout : {Layout{}, Layout{.tp = 2, .pp = 2}}) {
    EXPECT_EQ(plan(by_hand(layout, tied)).num_parameters, kParametersByHand - 61 * 64);
  }
}

TEST(DryRun, MemoryByHand) {
  // Whole, fp32: rows of the vocabulary are padded to 64; all sizes are whole lines of 64 elements.
  const std::int64_t elements = kParametersByHand + 2 * 3 * 64;
  const DryRun alone = plan(by_hand({}));
  EXPECT_EQ(alone.asked.memory.weights, 4 * elements);
  EXPECT_EQ(alone.asked.memory.gradients, 4 * elements);
  EXPECT_EQ(alone.asked.memory.main_weights, 0);
  // Of the parameters alone; each of the 21 parts and the end may skip a line of 256.
  EXPECT_GE(alone.asked.memory.optimizer_state, 8 * kParametersByHand);
  EXPECT_LE(alone.asked.memory.optimizer_state, 8 * (kParametersByHand + 22 * 256));
  EXPECT_EQ(alone.asked.num_parameters, kParametersByHand);
  // A layer: input and its norm's output, q k v as a product and rotated, attention's output, sums
  // of 4 heads, middle and its norm's output, 2 x 128 and 128 channels, two rows of factors. The
  // fullest moment is backward in the last layer, with gradients of the stream and of 2 x 128
  // channels: the loss, with the final norm's input, factor and output, 64 logits, a log-sum-exp
  // and the gradient of its input, would need less.
  const std::int64_t layer = 32 * 4 * (2 * 64 + 128 + 96 + 64 + 4 + 2 * 64 + 3 * 128 + 2);
  EXPECT_EQ(alone.asked.memory.activations, 2 * layer);
  EXPECT_EQ(alone.asked.memory.logits, 0);
  EXPECT_EQ(alone.asked.memory.temporaries, 32 * 4 * (64 + 2 * 128));
  EXPECT_LT(64 + 1 + 64 + 64 + 1 + 64, 64 + 2 * 128);
  // With four times the vocabulary it is the loss.
  const DryRun wide =
      plan(by_hand({}, [](config::RunConfig& c) { c.model.make_vocab_size_divisible_by = 256; }));
  EXPECT_EQ(wide.asked.memory.activations, 2 * layer + 32 * 4 * (64 + 1 + 64));
  EXPECT_EQ(wide.asked.memory.logits, 32 * 256 * 4 + 32 * 4);
  EXPECT_EQ(wide.asked.memory.temporaries, 32 * 64 * 4);

  // Two stages of one layer, in halves of two tensor ranks, state over two data ranks, bf16.
  const DryRun cut = plan(by_hand({.tp = 2, .pp = 2, .dp = 2, .sharded = true}, bf16));
  const std::int64_t half = 36'992 / 2 + 64 + 32 * 64;  // norms stand on both
  // The bf16 buffers' lines are 128 elements: two norms of 64 take one each.
  EXPECT_EQ(cut.asked.memory.weights, 2 * (half + 2 * 64));
  EXPECT_EQ(cut.asked.memory.gradients, 4 * (half + 2 * 64));
  EXPECT_LE(std::abs(cut.asked.memory.main_weights - 4 * half / 2), 4 * 1024);
  EXPECT_LE(std::abs(cut.asked.memory.optimizer_state - 8 * half / 2), 8 * 1024);
}

// 131,072 rows of 128,256 logits in bf16 would take 31 GiB: they come in pieces of a thirty-second.
TEST(DryRun, LargeLogitsComeInPieces) {
  const auto of_length = [](std::int64_t length) {
    return plan(by_hand({},
                        [&](config::RunConfig& c) {
                          bf16(c);
                          c.model.make_vocab_size_divisible_by = 128256;
                          c.model.seq_length = length;
                          c.model.max_position_embeddings = length;
                          c.training.micro_batch_size = 1;
                        }))
        .asked.memory;
  };
  const MemoryPlan whole = of_length(32'768), pieces = of_length(131'072);
  constexpr std::int64_t kColumns = 128'256, kRows = 131'072;
  EXPECT_EQ(whole.logits, kRows / 4 * (kColumns * 2 + 4));
  EXPECT_EQ(pieces.logits, kRows * 4);
  EXPECT_EQ(pieces.temporaries, kRows / 32 * kColumns * 2 + kRows * 64 * 2);
}

TEST(DryRun, ActivationsFollowTheSchedule) {
  using pipeline_parallel::Action;
  using pipeline_parallel::ActionKind;
  const std::vector<StageActivations> chunks = {{.layers = 10, .logits = 1, .rebuilt = 4},
                                                {.layers = 3}};
  const auto f = [](int micro_batch, int chunk) {
    return Action{ActionKind::kForward, micro_batch, chunk};
  };
  const auto b = [](int micro_batch, int chunk) {
    return Action{ActionKind::kBackward, micro_batch, chunk};
  };
  StageActivations peak =
      peak_activations({f(0, 0), f(0, 1), f(1, 0), b(0, 0), f(1, 1), b(0, 1), b(1, 0)}, chunks);
  // Where layers are made again, the micro-batch's own logits are gone.
  EXPECT_EQ(peak.layers, 23);
  EXPECT_EQ(peak.logits, 1);
  EXPECT_EQ(peak.rebuilt, 4);
  EXPECT_EQ(peak.work, 0);
  const auto worked = [&](std::int64_t head, std::int64_t layer) {
    return peak_activations({f(0, 0), f(1, 0), b(0, 0), b(1, 0)},
                            {{.layers = 10, .logits = 5, .head_work = head, .layer_work = layer}});
  };
  EXPECT_EQ(worked(3, 7).work, 3);
  EXPECT_EQ(worked(3, 7).logits, 10);
  EXPECT_EQ(worked(3, 9).work, 9);
  EXPECT_EQ(worked(3, 9).logits, 5);
  // Kept until the weight gradients are made.
  peak = peak_activations(
      {f(0, 0), b(0, 0), f(1, 0), Action{ActionKind::kBackwardWeight, 0, 0}, b(1, 0)}, chunks);
  EXPECT_EQ(peak.layers, 20);
  // 1F1B keeps as many as stages follow, GPipe all.
  const auto of = [](const char* schedule, std::int64_t rank) {
    config::RunConfig config = by_hand({.pp = 2}, [&](config::RunConfig& c) {
      c.training.micro_batch_size = 1;
      c.parallel.pipeline_schedule = schedule;
    });
    config.parallel.rank = rank;
    return plan(config);
  };
  const std::int64_t first = of("1f1b", 0).asked.memory.activations;
  EXPECT_EQ(of("gpipe", 0).asked.memory.activations, first / 2 * 8);
  // Of 16 rows of 64 logits and a sum each; the first micro-batch's are gone when its layers come.
  EXPECT_EQ(of("1f1b", 1).asked.memory.logits, 0);
  EXPECT_EQ(of("gpipe", 1).asked.memory.logits, 7 * 16 * (64 + 1) * 4);
  EXPECT_EQ(of("1f1b", 0).schedule.peak_activations, (std::vector<int>{2, 1}));
  EXPECT_NEAR(of("1f1b", 0).schedule.bubble_share, 1.0 / 9.0, 1e-12);
}

TEST(DryRun, TextFitsATerminalAndJsonHoldsTheNumbers) {
  const DryRun run =
      plan(by_hand({.tp = 2, .pp = 2, .dp = 2, .sharded = true}, both(bf16, sequence_parallel)));
  std::istringstream text(to_text(run));
  for (std::string line; std::getline(text, line);) EXPECT_LE(line.size(), 80U) << line;
  const nlohmann::json json = to_json(run);
  EXPECT_EQ(json.at("parameters"), kParametersByHand);
  std::int64_t total = 0;
  for (const auto& [kind, bytes] : json.at("rank").at("memory").items()) {
    if (kind != "total") total += bytes.get<std::int64_t>();
  }
  EXPECT_EQ(json.at("rank").at("memory").at("total"), total);
  EXPECT_EQ(json.at("traffic").size(), run.traffic.size());
}

TEST(DryRun, RefusesWhatAStartRefusesAndWhatIsTooLarge) {
  const auto refused = [](const ChangeConfig& change) {
    config::RunConfig config = by_hand({.tp = 2});
    change(config);
    try {
      static_cast<void>(plan(config));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused([](config::RunConfig&) {}), "");
  EXPECT_NE(refused([](config::RunConfig& c) {
              c.model.ffn_hidden_size = 127;
            }).find("--ffn-hidden-size"),
            std::string::npos);
  EXPECT_NE(refused([](config::RunConfig& c) {
              c.model.num_layers = 1'000'000;
            }).find("--num-layers 1000000"),
            std::string::npos);
  EXPECT_NE(refused([](config::RunConfig& c) {
              c.model.hidden_size = 1'000'000'000;
              c.model.kv_channels = 250'000'000;
            }).find("2^50"),
            std::string::npos);
  EXPECT_NE(refused([](config::RunConfig& c) {
              c.training.global_batch_size = 1 << 23;
              c.training.micro_batch_size = 1;
            }).find("micro-batches"),
            std::string::npos);
}

}  // namespace
}  // namespace pentatron::training::dry_run
