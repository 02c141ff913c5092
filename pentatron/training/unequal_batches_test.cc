// SPDX-License-Identifier: Apache-2.0
// Packed samples of any lengths, unequal numbers of micro-batches a rank: the losses, norms and
// gradients of one process, and gradient collectives that still meet.
#include <gtest/gtest.h>

#include <memory>

#include "pentatron/datasets/data_loader.h"
#include "pentatron/datasets/packed_batch_plan.h"
#include "pentatron/training/outcome_test_support.h"

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

Outcome train(const Layout& layout, std::int64_t max_tokens) {
  const config::RunConfig config = tiny_config(layout, [](config::RunConfig& c) {
    c.training.precision = "fp64";
    c.optimizer.adam_eps = 1e-3;
  });
  const RaggedSource source;
  return outcome_of(config, kSteps, [&](Engine& engine) -> NextBatches {
    const auto plan = std::make_shared<datasets::PackedBatchPlan>(
        source, kSamples, max_tokens, config.parallel.data_parallel_size);
    const datasets::DataLoaderOptions options{
        .plan = plan, .dp_rank = engine.context().coordinate("dp"), .num_workers = 1};
    const auto loader = std::make_shared<datasets::DataLoader>(source, options);
    return [loader, &engine] {
      std::vector<Batch> batches;
      const auto own = loader->next().value();
      for (const std::shared_ptr<const datasets::SampleBatch>& samples : own) {
        batches.push_back(to_batch(samples, engine.policy()));
      }
      return batches;
    };
  });
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
  expect_same_outcome(got, expected);
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
