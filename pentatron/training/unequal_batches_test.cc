// SPDX-License-Identifier: Apache-2.0
// Packed samples of any lengths, unequal numbers of micro-batches a rank: the losses, norms and
// gradients of one process, and gradient collectives that still meet.
#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "pentatron/datasets/data_loader.h"
#include "pentatron/datasets/packed_batch_plan.h"
#include "pentatron/training/test_support.h"

namespace pentatron::training {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary

constexpr std::int64_t kSamples = 6;  // of a step
constexpr std::int64_t kMaxTokens = 20;
constexpr int kSteps = 3;

// Samples of 3 to 13 tokens, the longer ones of two documents.
class RaggedSource final : public datasets::SampleSource {
 public:
  [[nodiscard]] std::int64_t num_samples() const override { return 1 << 10; }
  [[nodiscard]] std::int64_t length(std::int64_t i) const override { return 3 + i * 7 % 11; }
  [[nodiscard]] std::string identity() const override { return "ragged"; }
  [[nodiscard]] datasets::Sample sample(std::int64_t i) const override {
    const auto rows = static_cast<std::int32_t>(length(i));
    const std::int32_t cut = rows > 6 ? 4 : 0;
    return make_sample(
        rows, cut, [i](std::int64_t t) { return random_token(5, i * 64 + t); },
        [i](std::int64_t t) { return (i + t) % 4 == 0; });
  }
};

struct Outcome {
  std::vector<double> losses, norms, evaluations;
  Tensors gradients, parameters;
  std::set<std::size_t> counts;  // of micro-batches, over ranks and steps
};

Outcome train(const Layout& layout, std::int64_t max_tokens) {
  const config::RunConfig config = tiny_config(layout, [](config::RunConfig& c) {
    c.training.precision = "fp64";
    c.optimizer.adam_eps = 1e-3;
  });
  const RaggedSource source;
  Outcome outcome;
  std::mutex mutex;
  with_engine(config, [&](Engine& engine) {
    const auto plan = std::make_shared<datasets::PackedBatchPlan>(
        source, kSamples, max_tokens, config.parallel.data_parallel_size);
    datasets::DataLoader loader(
        source, {.plan = plan, .dp_rank = engine.context().coordinate("dp"), .num_workers = 1});
    Outcome mine;
    for (int step = 0; step < kSteps; ++step) {
      std::vector<Batch> batches;
      const auto own = loader.next().value();
      for (const std::shared_ptr<const datasets::SampleBatch>& samples : own) {
        batches.push_back(to_batch(samples, engine.policy()));
      }
      mine.counts.insert(batches.size());
      if (step == 0) {
        (void)engine.forward_backward(batches);
        mine.gradients = engine.gather_gradients();
      }
      mine.evaluations.push_back(engine.evaluate(batches).loss_sum);
      const StepResult result = engine.train_step(batches, 0.01, kWeightDecay);
      mine.losses.push_back(result.loss);
      mine.norms.push_back(result.grad_norm);
    }
    mine.parameters = engine.gather_parameters();
    const std::lock_guard lock(mutex);
    mine.counts.insert(outcome.counts.begin(), outcome.counts.end());
    outcome = std::move(mine);
  });
  return outcome;
}

struct UnequalCase {
  const char* name;
  Layout layout;
  std::int64_t max_tokens;
  bool some_have_none;
};

class UnequalBatches : public ::testing::TestWithParam<UnequalCase> {};

TEST_P(UnequalBatches, EqualOneProcess) {
  const UnequalCase& c = GetParam();
  const Outcome expected = train({}, c.max_tokens);
  const Outcome got = train(c.layout, c.max_tokens);
  EXPECT_GT(got.counts.size(), 1U) << "every rank had the same number of micro-batches";
  EXPECT_EQ(got.counts.contains(0), c.some_have_none);
  for (int step = 0; step < kSteps; ++step) {
    EXPECT_NEAR(got.losses[step] / expected.losses[step], 1.0, 1e-11) << step;
    EXPECT_NEAR(got.norms[step] / expected.norms[step], 1.0, 1e-10) << step;
    EXPECT_NEAR(got.evaluations[step] / expected.evaluations[step], 1.0, 1e-10) << step;
  }
  expect_equal(got.gradients, expected.gradients, "gradient of");
  expect_equal(got.parameters, expected.parameters, "weight");
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, UnequalBatches,
    ::testing::Values(UnequalCase{"dp2", {.dp = 2}, kMaxTokens, false},
                      UnequalCase{"dp2_sharded", {.dp = 2, .sharded = true}, kMaxTokens, false},
                      UnequalCase{"pp2_dp2", {.pp = 2, .dp = 2}, kMaxTokens, false},
                      UnequalCase{"tp2_dp2", {.tp = 2, .dp = 2}, kMaxTokens, false},
                      UnequalCase{"dp4_some_idle", {.dp = 4, .sharded = true}, 40, true},
                      UnequalCase{"pp2_dp4_some_idle", {.pp = 2, .dp = 4}, 40, true}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace pentatron::training
