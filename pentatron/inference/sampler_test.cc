// SPDX-License-Identifier: Apache-2.0
#include "pentatron/inference/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "pentatron/base/test_support.h"

namespace pentatron::inference {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Sixteen logits without a pattern, no two equal.
std::vector<float> example_logits() {
  std::vector<float> logits;
  for (int i = 0; i < 16; ++i) logits.push_back(static_cast<float>(2.0 * std::sin(5.0 * i + 1)));
  return logits;
}

std::vector<double> softmax(const std::vector<float>& logits, double temperature) {
  std::vector<double> p;
  for (const float logit : logits) p.push_back(std::exp(logit / temperature));
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& value : p) value /= total;
  return p;
}

std::set<std::size_t> support(const std::vector<double>& distribution) {
  std::set<std::size_t> ids;
  for (std::size_t i = 0; i < distribution.size(); ++i) {
    if (distribution[i] > 0) ids.insert(i);
  }
  return ids;
}

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

TEST(Sampler, GreedyTakesTheLargest) {
  const std::vector<float> logits{-1.0F, 3.0F, 2.5F, -9.0F};
  for (const SamplingOptions& options :
       {SamplingOptions{.temperature = 0.0}, SamplingOptions{.temperature = 5.0, .top_k = 1},
        SamplingOptions{.temperature = 0.0, .top_p = 0.3}}) {
    for (std::int64_t position = 0; position < 50; ++position) {
      EXPECT_EQ(sample_token(logits, options, 0, position), 1);
    }
    EXPECT_EQ(sampling_distribution(logits, options), (std::vector<double>{0, 1, 0, 0}));
  }
}

TEST(Sampler, TiesGoToTheLowerId) {
  const std::vector<float> logits{0.0F, 2.0F, 2.0F, 1.0F, 1.0F, 1.0F};
  EXPECT_EQ(sample_token(logits, {.temperature = 0.0}, 0, 0), 1);
  EXPECT_EQ(support(sampling_distribution(logits, {.top_k = 1})), (std::set<std::size_t>{1}));
  EXPECT_EQ(support(sampling_distribution(logits, {.top_k = 4})),
            (std::set<std::size_t>{1, 2, 3, 4}));
  // Each of the two holds more than a third.
  EXPECT_EQ(support(sampling_distribution(logits, {.temperature = 0.5, .top_p = 0.3})),
            (std::set<std::size_t>{1}));
}

TEST(Sampler, TemperatureScalesTheLogits) {
  const std::vector<float> logits = example_logits();
  for (const double temperature : {0.1, 0.7, 1.0, 3.0, 100.0}) {
    const std::vector<double> expected = softmax(logits, temperature);
    const std::vector<double> got = sampling_distribution(logits, {.temperature = temperature});
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-14);
    EXPECT_NEAR(sum(got), 1.0, 1e-14);
  }
  // Large logits do not overflow.
  const std::vector<double> extreme = sampling_distribution(std::vector<float>{3e38F, -3e38F}, {});
  EXPECT_EQ(extreme, (std::vector<double>{1, 0}));
}

TEST(Sampler, TopKKeepsTheKLargest) {
  const std::vector<float> logits = example_logits();
  const std::vector<double> full = softmax(logits, 0.8);
  for (std::int64_t k = 2; k <= 16; ++k) {
    const std::vector<double> got = sampling_distribution(logits, {.temperature = 0.8, .top_k = k});
    const std::set<std::size_t> kept = support(got);
    ASSERT_EQ(kept.size(), static_cast<std::size_t>(k));
    double mass = 0;
    for (const std::size_t id : kept) mass += full[id];
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (kept.contains(i)) {
        EXPECT_NEAR(got[i], full[i] / mass, 1e-14);
        continue;
      }
      for (const std::size_t id : kept) EXPECT_GT(logits[id], logits[i]);
    }
  }
}

TEST(Sampler, TopPKeepsTheSmallestSetWithTheMass) {
  const std::vector<float> logits = example_logits();
  const std::vector<double> full = softmax(logits, 1.0);
  for (const double top_p : {0.01, 0.2, 0.5, 0.9, 0.999, 1.0}) {
    const std::vector<double> got = sampling_distribution(logits, {.top_p = top_p});
    const std::set<std::size_t> kept = support(got);
    double mass = 0;
    double smallest = 1;
    for (const std::size_t id : kept) {
      mass += full[id];
      smallest = std::min(smallest, full[id]);
    }
    EXPECT_GE(mass, top_p - 1e-12) << top_p;
    EXPECT_LT(mass - smallest, top_p) << top_p;  // one less would not do
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (!kept.contains(i)) {
        EXPECT_LE(full[i], smallest);
      }
    }
    EXPECT_NEAR(sum(got), 1.0, 1e-14);
  }
  // Known by hand: 0.5, 0.3, 0.2.
  const std::vector<float> known{std::log(0.3F), std::log(0.5F), std::log(0.2F)};
  EXPECT_EQ(support(sampling_distribution(known, {.top_p = 0.45})), (std::set<std::size_t>{1}));
  EXPECT_EQ(support(sampling_distribution(known, {.top_p = 0.55})), (std::set<std::size_t>{0, 1}));
  EXPECT_EQ(support(sampling_distribution(known, {.top_p = 0.85})),
            (std::set<std::size_t>{0, 1, 2}));
}

TEST(Sampler, DrawsAreKeyed) {
  const std::vector<float> logits = example_logits();
  const auto draws = [&](std::uint64_t seed, std::int64_t sequence) {
    std::vector<std::int32_t> tokens;
    for (std::int64_t position = 0; position < 40; ++position) {
      tokens.push_back(sample_token(logits, {.seed = seed}, sequence, position));
    }
    return tokens;
  };
  const std::vector<std::int32_t> first = draws(1, 0);
  EXPECT_EQ(draws(1, 0), first);
  EXPECT_NE(draws(2, 0), first);
  EXPECT_NE(draws(1, 1), first);
  EXPECT_GT(std::set<std::int32_t>(first.begin(), first.end()).size(), 3U);  // positions differ
  // In another order the same: no state.
  for (std::int64_t position = 39; position >= 0; --position) {
    EXPECT_EQ(sample_token(logits, {.seed = 1}, 0, position),
              first[static_cast<std::size_t>(position)]);
  }
}

TEST(Sampler, TwentyThousandDrawsFollowTheDistribution) {
  const std::vector<float> logits = example_logits();
  constexpr int kDraws = 20'000;
  for (const SamplingOptions& options :
       {SamplingOptions{.temperature = 1.3}, SamplingOptions{.temperature = 2.0, .top_k = 10},
        SamplingOptions{.temperature = 1.0, .top_p = 0.8}}) {
    const std::vector<double> p = sampling_distribution(logits, options);
    std::vector<int> counts(p.size(), 0);
    for (int i = 0; i < kDraws; ++i) {
      ++counts[static_cast<std::size_t>(sample_token(logits, options, i % 7, i / 7))];
    }
    double chi_square = 0;
    double degrees = -1;
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double expected = p[i] * kDraws;
      if (p[i] == 0) {
        EXPECT_EQ(counts[i], 0);
        continue;
      }
      ASSERT_GT(expected, 5);  // or the approximation does not hold
      chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
      degrees += 1;
    }
    // Quantiles by Wilson and Hilferty; z = 3.7 leaves 1e-4 on each side.
    const auto quantile = [degrees](double z) {
      const double a = 2.0 / (9.0 * degrees);
      return degrees * std::pow(1 - a + z * std::sqrt(a), 3);
    };
    EXPECT_LT(chi_square, quantile(3.7));
    EXPECT_GT(chi_square, quantile(-3.7));  // too good is no chance either
  }
}

TEST(Sampler, LogitsThatAreNotFiniteAreRefused) {
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    for (const double temperature : {0.0, 1.0}) {
      const std::vector<float> logits{0.0F, 1.0F, bad};
      expect_error(ErrorKind::kData, "logit of token 2 at position 9",
                   [&] { (void)sample_token(logits, {.temperature = temperature}, 0, 9); });
    }
  }
}

TEST(Sampler, OptionsOutOfRangeAreRefused) {
  const auto refused = [](const SamplingOptions& options, std::string_view part) {
    expect_error(ErrorKind::kConfig, part, [&] { check_sampling_options(options, 50); });
  };
  const double nan = std::nan("");
  for (const double temperature : {-0.1, 100.5, nan}) {
    refused({.temperature = temperature}, "--temperature");
  }
  for (const std::int64_t top_k : {-1, 51}) refused({.top_k = top_k}, "--top-k");
  for (const double top_p : {-0.1, 1.1, nan}) refused({.top_p = top_p}, "--top-p");
  refused({.top_k = 5, .top_p = 0.5}, "exclude each other");
  for (const SamplingOptions& good :
       {SamplingOptions{.temperature = 0}, SamplingOptions{.temperature = 100, .top_k = 50},
        SamplingOptions{.top_p = 1.0}, SamplingOptions{.top_k = 1}}) {
    EXPECT_NO_THROW(check_sampling_options(good, 50));
  }
}

}  // namespace
}  // namespace pentatron::inference
