// SPDX-License-Identifier: Apache-2.0
#include "pentatron/optimizer/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numbers>

#include "pentatron/base/error.h"

namespace pentatron::optimizer {
namespace {

constexpr std::int64_t kBatch = 8;
constexpr std::int64_t kDecayIters = 100;
constexpr double kLr = 3e-4;
constexpr double kMinLr = 3e-5;

config::TrainingConfig training() {
  config::TrainingConfig t;
  t.global_batch_size = kBatch;
  t.train_iters = 200;
  return t;
}

config::OptimizerConfig options(const std::string& style, std::int64_t warmup_iters) {
  config::OptimizerConfig o;
  o.lr = kLr;
  o.min_lr = kMinLr;
  o.lr_decay_style = style;
  o.lr_warmup_iters = warmup_iters;
  o.lr_warmup_init = 1e-5;
  o.lr_decay_iters = kDecayIters;
  return o;
}

// The share of kLr - kMinLr above kMinLr, written in iterations where the schedule counts samples.
using Share = std::function<double(double iteration, double warmup)>;

void check_style(const std::string& style, const Share& share, const WsdOptions& wsd = {}) {
  for (const std::int64_t warmup : {0, 10}) {
    SCOPED_TRACE(testing::Message() << style << " " << wsd.decay_style << ", warm-up " << warmup);
    const LearningRateSchedule schedule(options(style, warmup), training(), wsd);
    EXPECT_EQ(schedule.warmup_samples(), warmup * kBatch);
    EXPECT_EQ(schedule.decay_samples(), kDecayIters * kBatch);
    for (std::int64_t i = 0; i <= 150; ++i) {
      double expected = kMinLr;
      if (i < warmup) {
        expected = 1e-5 + (kLr - 1e-5) / static_cast<double>(warmup) * static_cast<double>(i);
      } else if (i <= kDecayIters || style == "constant") {
        expected =
            kMinLr + (kLr - kMinLr) * share(static_cast<double>(i), static_cast<double>(warmup));
      }
      EXPECT_NEAR(schedule.lr(i * kBatch), expected, 1e-15) << "iteration " << i;
    }
  }
}

TEST(Schedule, Styles) {
  const auto r = [](double i, double w) { return (i - w) / (100.0 - w); };
  check_style("constant", [](double, double) { return 1.0; });
  check_style("linear", [&](double i, double w) { return (100.0 - i) / (100.0 - w); });
  // (1 + cos) / 2 as cos^2 of the half angle.
  check_style("cosine", [&](double i, double w) {
    return std::pow(std::cos(std::numbers::pi / 2 * r(i, w)), 2);
  });
  check_style("inverse-square-root", [](double i, double w) {
    const double lr = kLr * std::sqrt(std::max(w * 8, 1.0) / std::max(i * 8, 1.0));
    return (std::max(lr, kMinLr) - kMinLr) / (kLr - kMinLr);
  });
  const auto window = [](double i) { return std::max(0.0, (i - 80.0) / 20.0); };
  const WsdOptions base{.decay_samples = 20 * kBatch};
  const auto wsd = [&](const char* style) {
    WsdOptions o = base;
    o.decay_style = style;
    return o;
  };
  check_style(
      "WSD", [&](double i, double) { return std::exp2(1 - window(i)) - 1; }, wsd("exponential"));
  check_style(
      "WSD", [&](double i, double) { return 1 - window(i); }, wsd("linear"));
  check_style(
      "WSD", [&](double i, double) { return 1 - std::sqrt(window(i)); }, wsd("minus_sqrt"));
  check_style(
      "WSD",
      [&](double i, double) { return std::pow(std::cos(std::numbers::pi / 2 * window(i)), 2); },
      wsd("cosine"));
}

// The lowest rate is met exactly at the end of the decay and kept, not nearly.
TEST(Schedule, MinLr) {
  for (const char* style : {"linear", "cosine", "WSD"}) {
    for (const char* window : {"exponential", "linear", "cosine", "minus_sqrt"}) {
      const LearningRateSchedule schedule(options(style, 7), training(),
                                          {.decay_style = window, .decay_samples = 99});
      EXPECT_EQ(schedule.lr(kDecayIters * kBatch), kMinLr) << style << " " << window;
      EXPECT_EQ(schedule.lr(kDecayIters * kBatch + 1), kMinLr);
      EXPECT_GT(schedule.lr(kDecayIters * kBatch - 1), kMinLr);
    }
  }
  const LearningRateSchedule root(options("inverse-square-root", 4), training());
  EXPECT_EQ(root.lr(kDecayIters * kBatch + 1), kMinLr);
  EXPECT_EQ(root.lr(kDecayIters * kBatch), kLr * std::sqrt(32.0) / std::sqrt(800.0));
}

TEST(Schedule, FirstUpdateUsesTheWarmUpsStart) {
  EXPECT_EQ(LearningRateSchedule(options("cosine", 10), training()).lr(0), 1e-5);
  EXPECT_EQ(LearningRateSchedule(options("cosine", 0), training()).lr(0), kLr);
  EXPECT_EQ(LearningRateSchedule(options("cosine", 10), training()).lr(10 * kBatch), kLr);
}

TEST(Schedule, CountsSamples) {
  config::OptimizerConfig o = options("linear", 0);
  o.lr_decay_iters = 0;
  EXPECT_EQ(LearningRateSchedule(o, training()).decay_samples(), 200 * kBatch);
  config::TrainingConfig by_samples = training();
  by_samples.train_iters = 0;
  by_samples.train_samples = 1001;
  EXPECT_EQ(LearningRateSchedule(o, by_samples).decay_samples(), 1001);
  o.lr_decay_samples = 640;
  o.lr_warmup_samples = 64;
  const LearningRateSchedule schedule(o, by_samples);
  EXPECT_EQ(schedule.decay_samples(), 640);
  EXPECT_EQ(schedule.warmup_samples(), 64);
  // A fraction is a share of the decay, not rounded to samples.
  o.lr_warmup_samples = 0;
  o.lr_warmup_fraction = 0.0125;
  o.lr_decay_samples = 100;
  o.lr_warmup_init = 0;
  EXPECT_DOUBLE_EQ(LearningRateSchedule(o, by_samples).lr(1), kLr / 1.25);
  EXPECT_DOUBLE_EQ(LearningRateSchedule(o, by_samples).weight_decay(50), o.weight_decay);
}

TEST(Schedule, RefusesWhatCannotBe) {
  const auto refused = [](config::OptimizerConfig o, const WsdOptions& wsd, const char* option) {
    try {
      const LearningRateSchedule schedule(o, training(), wsd);
      ADD_FAILURE() << "accepted: " << option;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      EXPECT_NE(std::string(error.what()).find(option), std::string::npos) << error.what();
    }
  };
  refused(options("quadratic", 0), {}, "--lr-decay-style");
  refused(options("linear", 100), {}, "--lr-warmup-iters");
  refused(options("WSD", 0), {}, "--lr-wsd-decay-iters");
  refused(options("WSD", 0), {.decay_style = "other", .decay_samples = 8}, "--lr-wsd-decay-style");
  refused(options("WSD", 0), {.decay_samples = 801}, "--lr-wsd-decay-iters");
  config::OptimizerConfig o = options("linear", 0);
  o.min_lr = 1;
  refused(o, {}, "--min-lr");
}

}  // namespace
}  // namespace pentatron::optimizer
