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

// `window`: of WSD, over its last 20 iterations.
void check_style(const std::string& style, const Share& share, const std::string& window = "") {
  for (const std::int64_t warmup : {0, 10}) {
    SCOPED_TRACE(testing::Message() << style << " " << window << ", warm-up " << warmup);
    config::OptimizerConfig o = options(style, warmup);
    if (!window.empty()) o.lr_wsd_decay_style = window;
    o.lr_wsd_decay_iters = window.empty() ? 0 : 20;
    const LearningRateSchedule schedule(o, training());
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
  check_style(
      "WSD", [&](double i, double) { return std::exp2(1 - window(i)) - 1; }, "exponential");
  check_style(
      "WSD", [&](double i, double) { return 1 - window(i); }, "linear");
  check_style(
      "WSD", [&](double i, double) { return 1 - std::sqrt(window(i)); }, "minus_sqrt");
  check_style(
      "WSD",
      [&](double i, double) { return std::pow(std::cos(std::numbers::pi / 2 * window(i)), 2); },
      "cosine");
}

// The lowest rate is met exactly at the end of the decay and kept, not nearly.
TEST(Schedule, MinLr) {
  for (const char* style : {"linear", "cosine", "WSD"}) {
    for (const char* window : {"exponential", "linear", "cosine", "minus_sqrt"}) {
      config::OptimizerConfig o = options(style, 7);
      o.lr_wsd_decay_style = window;
      o.lr_wsd_decay_samples = 99;
      const LearningRateSchedule schedule(o, training());
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

// Weight decay over the whole run (200 iterations), not over the learning rate's decay.
TEST(Schedule, WeightDecay) {
  for (const char* style : {"linear", "cosine"}) {
    config::OptimizerConfig o = options("linear", 10);
    o.weight_decay_incr_style = style;
    o.start_weight_decay = 0.1;
    o.end_weight_decay = 0.5;
    const LearningRateSchedule schedule(o, training());
    for (std::int64_t i = 0; i <= 250; ++i) {
      double share = std::min(1.0, static_cast<double>(i) / 200);
      if (o.weight_decay_incr_style == "cosine") {
        share = std::pow(std::sin(std::numbers::pi / 2 * share), 2);
      }
      EXPECT_NEAR(schedule.weight_decay(i * kBatch), 0.1 + 0.4 * share, 1e-15) << style << i;
    }
    EXPECT_EQ(schedule.weight_decay(0), 0.1);
    EXPECT_EQ(schedule.weight_decay(200 * kBatch), 0.5);
  }
  config::OptimizerConfig constant = options("linear", 10);
  constant.weight_decay = 0.3;
  EXPECT_EQ(LearningRateSchedule(constant, training()).weight_decay(77), 0.3);
}

TEST(Schedule, DecoupledRateHasItsOwnEndsAndTheSameForm) {
  config::OptimizerConfig o = options("cosine", 10);
  EXPECT_EQ(LearningRateSchedule(o, training()).decoupled_lr(300),
            LearningRateSchedule(o, training()).lr(300));
  o.decoupled_lr = 10 * kLr;
  o.decoupled_min_lr = 10 * kMinLr;
  config::OptimizerConfig tenfold = o;
  tenfold.lr = 10 * kLr;
  tenfold.min_lr = 10 * kMinLr;
  const LearningRateSchedule schedule(o, training());
  const LearningRateSchedule expected(tenfold, training());
  for (std::int64_t n = 0; n < 1000; n += 7) {
    EXPECT_EQ(schedule.decoupled_lr(n), expected.lr(n));
    EXPECT_EQ(schedule.lr(n), LearningRateSchedule(options("cosine", 10), training()).lr(n));
  }
  o.decoupled_min_lr.reset();
  EXPECT_EQ(LearningRateSchedule(o, training()).decoupled_lr(kDecayIters * kBatch), kMinLr);
}

// Ends are scaled, the warm-up's begin is not.
TEST(Schedule, ScaledRateHasScaledEnds) {
  config::OptimizerConfig o = options("cosine", 10);
  o.lr_warmup_init = kMinLr / 8;
  config::OptimizerConfig quarter = o;
  quarter.lr = kLr / 4;
  quarter.min_lr = kMinLr / 4;
  const LearningRateSchedule schedule(o, training());
  const LearningRateSchedule expected(quarter, training());
  for (std::int64_t n = 0; n < 1000; n += 7) {
    EXPECT_EQ(schedule.scaled_lr(n, 0.25), expected.lr(n));
    EXPECT_EQ(schedule.scaled_lr(n, 1.0), schedule.lr(n));
  }
  EXPECT_EQ(schedule.scaled_lr(0, 0.25), o.lr_warmup_init);
}

// Where the batch grows, iterations are as many samples as their steps take.
TEST(Schedule, CountsSamplesOfAGrowingBatch) {
  config::OptimizerConfig o = options("WSD", 10);
  o.lr_warmup_init = 0;
  o.lr_wsd_decay_style = "linear";
  o.lr_wsd_decay_iters = 30;
  // 20 steps of 4 samples, then steps of 8 (of 16 tokens each).
  const config::BatchSchedule batches("0:4 1280:8", 16);
  const LearningRateSchedule schedule(o, training(), batches);
  EXPECT_EQ(schedule.warmup_samples(), 40);
  EXPECT_EQ(schedule.decay_samples(), 80 + 80 * 8);
  EXPECT_EQ(schedule.lr(480), kLr) << "until 30 steps of 8 before the end";
  EXPECT_LT(schedule.lr(488), kLr);
  EXPECT_DOUBLE_EQ(schedule.lr(600), (kLr + kMinLr) / 2);
  EXPECT_EQ(schedule.lr(720), kMinLr);
}

// Public reports: warm-up subtracted twice, so that the curve ended flat before its end.
TEST(Cases, MegatronLM_2258) {
  config::OptimizerConfig o = options("linear", 10);
  o.lr_warmup_init = 0;
  const LearningRateSchedule schedule(o, training());
  for (std::int64_t i = 0; i <= kDecayIters; ++i) {
    const auto t = static_cast<double>(i);
    const double expected =
        i <= 10 ? kLr * t / 10 : kMinLr + (kLr - kMinLr) * (100 - t) / (100 - 10);
    EXPECT_NEAR(schedule.lr(i * kBatch), expected, 1e-15) << i;
    const bool falling = i >= 10 && i < kDecayIters;
    EXPECT_TRUE(!falling || schedule.lr(i * kBatch) > kMinLr) << i;
  }
  EXPECT_EQ(schedule.lr(kDecayIters * kBatch), kMinLr);
}

// Public report: as many steps as warm-up steps divided by zero.
TEST(Cases, Torchtitan_1010) {
  for (const char* style : {"constant", "linear", "cosine", "inverse-square-root", "WSD"}) {
    config::OptimizerConfig o = options(style, kDecayIters);
    o.lr_warmup_init = 0;
    o.lr_wsd_decay_iters = 5;
    const LearningRateSchedule schedule(o, training());
    for (std::int64_t i = 0; i <= 150; ++i) {
      const double expected = kLr * std::min(1.0, static_cast<double>(i) / kDecayIters);
      EXPECT_NEAR(schedule.lr(i * kBatch), expected, 1e-15) << style << " " << i;
    }
  }
}

TEST(Schedule, RefusesWhatCannotBe) {
  const auto refused = [](const config::OptimizerConfig& o, const char* option) {
    try {
      const LearningRateSchedule schedule(o, training());
      ADD_FAILURE() << "accepted: " << option;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      EXPECT_NE(std::string(error.what()).find(option), std::string::npos) << error.what();
    }
  };
  const auto wsd = [](const std::string& style, std::int64_t iters, std::int64_t samples) {
    config::OptimizerConfig o = options("WSD", 0);
    o.lr_wsd_decay_style = style;
    o.lr_wsd_decay_iters = iters;
    o.lr_wsd_decay_samples = samples;
    return o;
  };
  refused(options("quadratic", 0), "--lr-decay-style");
  refused(options("linear", 101), "--lr-warmup-iters");
  refused(options("WSD", 0), "--lr-wsd-decay-iters");
  refused(wsd("other", 1, 0), "--lr-wsd-decay-style");
  refused(wsd("linear", 0, 801), "--lr-wsd-decay-iters");
  refused(wsd("linear", 101, 0), "--lr-wsd-decay-iters");
  config::OptimizerConfig o = options("linear", 0);
  o.min_lr = 1;
  refused(o, "--min-lr");
}

}  // namespace
}  // namespace pentatron::optimizer
