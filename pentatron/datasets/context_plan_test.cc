// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/context_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "pentatron/base/error.h"
#include "pentatron/base/philox.h"
#include "pentatron/datasets/context_batch_plan.h"

namespace pentatron::datasets {
namespace {

using Lengths = std::vector<std::int64_t>;

// Attention of a model of width 4096 with 8 x 4096 weights a channel: as much as all else at 32k.
constexpr ContextCosts kCosts{.attention = 1.0 / 32768, .exchange = 0.1, .micro_batch = 64};

// Log-normal lengths: exp(mean + deviation z), at least 1, at most `longest`.
Lengths long_tailed(std::uint64_t seed, std::size_t count, double mean, double deviation,
                    std::int64_t longest) {
  Lengths lengths;
  for (std::size_t i = 0; i < count; ++i) {
    const double radius = std::sqrt(-2 * std::log(1 - philox_uniform(seed, 1, 2 * i)));
    const double z = radius * std::cos(2 * M_PI * philox_uniform(seed, 1, 2 * i + 1));
    lengths.push_back(
        std::clamp<std::int64_t>(std::llround(std::exp(mean + deviation * z)), 1, longest));
  }
  return lengths;
}

// Every promise of a plan, whatever it was made of.
void expect_sound(const ContextPlan& plan, const Lengths& lengths,
                  const ContextPlanOptions& options) {
  ASSERT_EQ(std::ssize(plan), options.num_ranks);
  std::vector<std::int64_t> holders(lengths.size(), 0), shared_by(lengths.size(), 0);
  for (std::size_t rank = 0; rank < plan.size(); ++rank) {
    std::int64_t last = options.num_ranks;
    for (std::size_t slot = 0; slot < plan[rank].size(); ++slot) {
      const auto& [group, samples] = plan[rank][slot];
      EXPECT_EQ(group & (group - 1), 0) << group;
      EXPECT_GE(group, options.min_group);
      EXPECT_LE(group, last) << "groups grow";
      last = group;
      ASSERT_FALSE(samples.empty());
      const auto first = rank / static_cast<std::size_t>(group) * static_cast<std::size_t>(group);
      ASSERT_LT(slot, plan[first].size());
      EXPECT_EQ(plan[first][slot].samples, samples) << "ranks of a group differ";
      EXPECT_EQ(plan[first][slot].group_size, group);
      std::int64_t rows = 0;
      for (const std::size_t i : samples) {
        ++holders[i];
        shared_by[i] = group;
        rows += padded_rows(lengths[i], group, options.row_multiple) / group;
      }
      EXPECT_LE(rows, options.max_rows_per_rank);
      EXPECT_EQ(rows % options.row_multiple, 0);
    }
  }
  EXPECT_EQ(holders, shared_by) << "each sample once, on every rank of its group";
  EXPECT_FALSE(std::count(shared_by.begin(), shared_by.end(), 0) > 0);
}

TEST(ContextPlan, PaddedRows) {
  EXPECT_EQ(padded_rows(13, 1, 1), 13);
  EXPECT_EQ(padded_rows(13, 1, 2), 14);
  EXPECT_EQ(padded_rows(13, 2, 1), 16);
  EXPECT_EQ(padded_rows(16, 4, 2), 16);
  EXPECT_EQ(padded_rows(17, 4, 2), 32);
  EXPECT_EQ(largest_group(1), 1);
  EXPECT_EQ(largest_group(6), 2);
  EXPECT_EQ(largest_group(8), 8);
  EXPECT_EQ(largest_group(24), 8);
}

TEST(ContextPlan, EveryPromiseForManyMixes) {
  std::uint64_t seed = 0;
  for (const std::int64_t ranks : {1, 2, 4, 6, 8, 12, 64}) {
    for (const std::int64_t multiple : {1, 2, 4}) {
      for (const std::int64_t minimum : {1, 2}) {
        if (minimum > largest_group(ranks)) continue;
        for (const std::size_t count : {1, 3, 16, 257}) {
          const ContextPlanOptions options{.num_ranks = ranks,
                                           .max_rows_per_rank = 96,
                                           .min_group = minimum,
                                           .row_multiple = multiple,
                                           .costs = kCosts};
          const Lengths lengths = long_tailed(++seed, count, 3.0, 1.2, 96 * largest_group(ranks));
          const ContextPlan plan = plan_context(lengths, options);
          expect_sound(plan, lengths, options);
          // It runs to its end, and a second plan is the same.
          EXPECT_GT(simulate_context(plan, lengths, options).busy, 0);
          const ContextPlan again = plan_context(lengths, options);
          for (std::size_t rank = 0; rank < plan.size(); ++rank) {
            ASSERT_EQ(again[rank].size(), plan[rank].size());
            for (std::size_t i = 0; i < plan[rank].size(); ++i) {
              EXPECT_EQ(again[rank][i].samples, plan[rank][i].samples);
            }
          }
        }
      }
    }
  }
}

TEST(ContextPlan, SmallestGroupThatHolds) {
  const Lengths lengths{100, 300, 900, 1600};
  ContextPlanOptions options{.num_ranks = 8, .max_rows_per_rank = 256, .costs = {}};
  // So much that no sample stands out.
  Lengths many = lengths;
  many.insert(many.end(), 400, 200);
  const ContextPlan plan = plan_context(many, options);
  expect_sound(plan, many, options);
  const auto group_of = [&](std::size_t sample) {
    for (const auto& list : plan) {
      for (const auto& [group, samples] : list) {
        if (std::find(samples.begin(), samples.end(), sample) != samples.end()) return group;
      }
    }
    return std::int64_t{0};
  };
  EXPECT_EQ(group_of(0), 1);
  EXPECT_EQ(group_of(1), 2);
  EXPECT_EQ(group_of(2), 4);
  EXPECT_EQ(group_of(3), 8);
  // Alone, a sample is shared by all: nobody else has anything to do.
  const ContextPlan alone = plan_context(Lengths{200}, options);
  EXPECT_EQ(alone[7].at(0).group_size, 8);
}

TEST(ContextPlan, PacksWhatFits) {
  const ContextPlanOptions options{.num_ranks = 1, .max_rows_per_rank = 10};
  const Lengths lengths{6, 2, 5, 4, 3};
  const ContextPlan plan = plan_context(lengths, options);
  ASSERT_EQ(plan[0].size(), 2U);
  EXPECT_EQ(plan[0][0].samples, (std::vector<std::size_t>{0, 3}));
  EXPECT_EQ(plan[0][1].samples, (std::vector<std::size_t>{2, 4, 1}));
}

TEST(ContextPlan, Refusals) {
  const auto message = [](const Lengths& lengths, const ContextPlanOptions& options) {
    try {
      static_cast<void>(plan_context(lengths, options));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const ContextPlanOptions options{.num_ranks = 4, .max_rows_per_rank = 10};
  EXPECT_EQ(message({40}, options), "");
  EXPECT_NE(message({5, 41}, options)
                .find("a sample of 41 tokens does not fit 4 data x context ranks with "
                      "--max-seqlen-per-dp-cp-rank 10"),
            std::string::npos);
  for (const std::int64_t minimum : {0, 3, 8}) {
    ContextPlanOptions bad = options;
    bad.min_group = minimum;
    EXPECT_NE(message({5}, bad).find("--min-dynamic-context-parallel-size " +
                                     std::to_string(minimum) + ": expected a power of two"),
              std::string::npos);
  }
}

TEST(ContextPlan, RanksThatWaitForEachOtherAreFound) {
  const Lengths lengths{4, 4};
  const ContextPlanOptions options{.num_ranks = 2, .max_rows_per_rank = 8};
  const ContextMicroBatch first{.group_size = 2, .samples = {0}};
  const ContextMicroBatch second{.group_size = 2, .samples = {1}};
  EXPECT_EQ(simulate_context({{first, second}, {first, second}}, lengths, options).max_rows, 2);
  EXPECT_THROW((void)simulate_context({{first, second}, {second, first}}, lengths, options), Error);
  EXPECT_THROW((void)simulate_context({{first}, {}}, lengths, options), Error);
}

// 64 ranks, samples of up to 128k tokens (median 4k): static context parallelism must use 16 ranks
// for all that the longest needs.
TEST(ContextPlan, GainOnALongTail) {
  double ratio = 1;
  constexpr int kSteps = 8;
  for (int step = 0; step < kSteps; ++step) {
    const Lengths lengths =
        long_tailed(100 + static_cast<std::uint64_t>(step), 256, std::log(4096.0), 1.2, 131072);
    const ContextPlanOptions options{.num_ranks = 64, .max_rows_per_rank = 8192, .costs = kCosts};
    const ContextPlan dynamic = plan_context(lengths, options);
    expect_sound(dynamic, lengths, options);
    const ContextTiming of_dynamic = simulate_context(dynamic, lengths, options);
    const ContextTiming of_static =
        simulate_context(plan_static_context(lengths, 16, options), lengths, options);
    // Nearly nobody waits.
    EXPECT_GT(of_dynamic.busy / of_dynamic.makespan, 0.9) << step;
    EXPECT_LT(of_dynamic.makespan, of_static.makespan) << step;
    ratio *= of_static.makespan / of_dynamic.makespan;
  }
  const double gain = std::pow(ratio, 1.0 / kSteps);
  RecordProperty("gain", std::to_string(gain));
  std::printf("static / dynamic: %.3f\n", gain);
  EXPECT_GT(gain, 1.3);
}

// Equal lengths have nothing to gain, and lose nothing.
TEST(ContextPlan, NoLossOnEqualLengths) {
  const Lengths lengths(64, 4096);
  const ContextPlanOptions options{.num_ranks = 8, .max_rows_per_rank = 4096, .costs = kCosts};
  const double dynamic =
      simulate_context(plan_context(lengths, options), lengths, options).makespan;
  const double fixed =
      simulate_context(plan_static_context(lengths, 1, options), lengths, options).makespan;
  EXPECT_LE(dynamic, fixed);
}

// Of the batch plan: the whole pool's lists are one plan, by place in training order.
class Lines final : public SampleSource {
 public:
  [[nodiscard]] std::int64_t num_samples() const override { return 100; }
  [[nodiscard]] std::int64_t length(std::int64_t i) const override { return 1 + i * 13 % 40; }
  [[nodiscard]] Sample sample(std::int64_t) const override { return {}; }
  [[nodiscard]] std::string identity() const override { return "lines"; }
};

TEST(ContextBatchPlan, EverySampleOfTheStepOnce) {
  const Lines source;
  const ContextBatchPlan plan(source, 12, {.num_ranks = 4, .max_rows_per_rank = 12});
  for (const std::int64_t consumed : {0, 12, 24}) {
    std::vector<double> found(12, 0.0);
    for (std::int64_t rank = 0; rank < 4; ++rank) {
      const auto batches = plan.micro_batches(consumed, rank);
      const auto sizes = plan.group_sizes(consumed, rank);
      ASSERT_EQ(batches.size(), sizes.size());
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        for (const std::int64_t id : batches[i]) {
          found.at(static_cast<std::size_t>(id - consumed)) += 1.0 / static_cast<double>(sizes[i]);
        }
      }
    }
    EXPECT_EQ(found, std::vector<double>(12, 1.0));
  }
  EXPECT_THROW((void)plan.micro_batches(0, 4), Error);
  EXPECT_THROW(ContextBatchPlan(source, 0, {.num_ranks = 4, .max_rows_per_rank = 12}), Error);
  EXPECT_THROW(
      ContextBatchPlan(source, 8, {.num_ranks = 4, .max_rows_per_rank = 12, .min_group = 3}),
      Error);
}

}  // namespace
}  // namespace pentatron::datasets
