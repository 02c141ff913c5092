// SPDX-License-Identifier: Apache-2.0
#include "pentatron/optimizer/loss_scaler.h"

#include <gtest/gtest.h>

#include <string>

#include "pentatron/base/test_support.h"

namespace pentatron::optimizer {
namespace {

constexpr config::Precision kFp16 = config::Precision::kFp16;

config::OptimizerConfig options() {
  config::OptimizerConfig o;
  o.initial_loss_scale = 1024;
  o.min_loss_scale = 128;
  o.loss_scale_window = 3;
  o.hysteresis = 2;
  return o;
}

// g: a good step, o: an overflow; the scale after each.
std::vector<double> scales(LossScaler& scaler, const std::string& steps) {
  std::vector<double> found;
  for (const char step : steps) {
    scaler.update(step == 'o');
    found.push_back(scaler.scale());
  }
  return found;
}

using Scales = std::vector<double>;

TEST(LossScaler, GrowsAfterAWindowOfGoodSteps) {
  LossScaler scaler(options(), kFp16);
  EXPECT_TRUE(scaler.dynamic());
  EXPECT_EQ(scales(scaler, "ggggggg"), (Scales{1024, 1024, 2048, 2048, 2048, 4096, 4096}));
}

TEST(LossScaler, ShrinksWhenTheHysteresisIsUsedUp) {
  LossScaler scaler(options(), kFp16);
  // The first overflow is forgiven; from then on each halves, until a window of good steps.
  EXPECT_EQ(scales(scaler, "ooo"), (Scales{1024, 512, 256}));
  EXPECT_EQ(scales(scaler, "ggo"), (Scales{256, 256, 128}));
  EXPECT_EQ(scales(scaler, "oo"), (Scales{128, 128})) << "the lowest";
  EXPECT_EQ(scales(scaler, "ggg"), (Scales{128, 128, 256}));
  EXPECT_EQ(scales(scaler, "oo"), (Scales{256, 128})) << "forgiven once more";
  // An overflow begins the count of good steps anew.
  LossScaler other(options(), kFp16);
  EXPECT_EQ(scales(other, "ggogg"), (Scales{1024, 1024, 1024, 1024, 1024}));
  EXPECT_EQ(scales(other, "g"), (Scales{2048}));
}

TEST(LossScaler, IsStaticOtherwise) {
  LossScaler plain(options(), config::Precision::kBf16);
  EXPECT_FALSE(plain.dynamic());
  EXPECT_EQ(scales(plain, "oogggggg"), Scales(8, 1.0));
  config::OptimizerConfig fixed = options();
  fixed.loss_scale = 64;
  LossScaler scaler(fixed, kFp16);
  EXPECT_FALSE(scaler.dynamic());
  EXPECT_EQ(scales(scaler, "oogggggg"), Scales(8, 64.0));
  scaler.restore({.scale = 2, .good_steps = 1, .hysteresis_left = 1});
  EXPECT_EQ(scaler.scale(), 64) << "the options', not the checkpoint's";
}

TEST(LossScaler, GoesOnWhereItWasSaved) {
  for (const char* before : {"", "g", "gg", "o", "og", "oog", "ooogg"}) {
    SCOPED_TRACE(before);
    LossScaler first(options(), kFp16);
    (void)scales(first, before);
    LossScaler second(options(), kFp16);
    second.restore(first.state());
    EXPECT_EQ(scales(second, "ggogoogggg"), scales(first, "ggogoogggg"));
  }
  // After a static scale a dynamic one has its whole hysteresis (N11).
  config::OptimizerConfig fixed = options();
  fixed.loss_scale = options().initial_loss_scale;
  LossScaler fresh(options(), kFp16);
  LossScaler after_static(options(), kFp16);
  after_static.restore(LossScaler(fixed, kFp16).state());
  EXPECT_EQ(scales(after_static, "ogooggg"), scales(fresh, "ogooggg"));
  LossScaler scaler(options(), kFp16);
  expect_error(ErrorKind::kCheckpoint, "loss scale of 0", [&] { scaler.restore({.scale = 0}); });
}

}  // namespace
}  // namespace pentatron::optimizer
