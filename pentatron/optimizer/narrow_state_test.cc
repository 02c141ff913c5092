// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "pentatron/base/error.h"
#include "pentatron/optimizer/rules/test_support.h"
#include "pentatron/optimizer/state_plan.h"

// AdamW whose weights or moments are bf16, and state on the host.
namespace pentatron::optimizer {
namespace {

using namespace testing_support;  // NOLINT: test vocabulary
using distributed::Piece;
using distributed::Sharding;

config::OptimizerConfig narrow_moments() {
  config::OptimizerConfig c;
  c.clip_grad = 0;  // a norm is a sum, whose order depends on the layout
  c.use_precision_aware_optimizer = true;
  c.exp_avg_dtype = c.exp_avg_sq_dtype = "bf16";
  return c;
}
config::OptimizerConfig all_bf16() {
  config::OptimizerConfig c = narrow_moments();
  c.main_params_dtype = c.main_grads_dtype = "bf16";
  return c;
}

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> kAll = {
      {.tp = 2},
      {.dp = 2, .sharding = Sharding::kOptimizer},
      {.dp = 3, .sharding = Sharding::kOptimizer},
      {.tp = 2, .dp = 2, .sharding = Sharding::kGradients},
      {.tp = 2, .dp = 2, .sharding = Sharding::kParameters},
      {.on_host = true},
      {.tp = 2, .dp = 2, .sharding = Sharding::kOptimizer, .on_host = true, .host_fraction = 0.5}};
  return kAll;
}

// Draws follow the element, so rows, columns and ranges on any rank round alike.
TEST(NarrowState, BitEqualInEveryLayout) {
  for (const bool all : {false, true}) {
    const config::OptimizerConfig config = all ? all_bf16() : narrow_moments();
    const PrecisionPolicy policy = precision_policy(all ? "bf16_state" : "bf16");
    const WholeTensors alone = state_after({}, policy, config, 4);
    EXPECT_EQ(alone.at("exp_avg/proj").scalar_type(), DType::BFloat16);
    EXPECT_EQ(alone.at("main_param/proj").scalar_type(), all ? DType::BFloat16 : DType::Float);
    for (const Layout& layout : layouts()) {
      EXPECT_EQ(difference(state_after(layout, policy, config, 4), alone), 0.0) << layout;
    }
  }
}

// Each moment has its own dtype.
TEST(NarrowState, EachOptionNarrowsItsOwn) {
  const PrecisionPolicy policy = precision_policy("bf16");
  config::OptimizerConfig config = narrow_moments();
  config.exp_avg_sq_dtype = "fp32";
  const WholeTensors first = state_after({}, policy, config, 1);
  EXPECT_EQ(first.at("exp_avg/proj").scalar_type(), DType::BFloat16);
  EXPECT_EQ(first.at("exp_avg_sq/proj").scalar_type(), DType::Float);
  config.exp_avg_sq_dtype = "bf16";
  config.exp_avg_dtype = "fp32";
  const WholeTensors second = state_after({}, policy, config, 1);
  EXPECT_EQ(second.at("exp_avg/proj").scalar_type(), DType::Float);
  EXPECT_EQ(second.at("exp_avg_sq/proj").scalar_type(), DType::BFloat16);
  config.use_precision_aware_optimizer = false;
  EXPECT_EQ(state_dtype(config, policy, "exp_avg_sq"), DType::Float) << "without the switch";
}

// Near AdamW in fp32: bf16 has 8 bits.
TEST(NarrowState, StaysNearFp32) {
  config::OptimizerConfig wide = all_bf16();
  wide.use_precision_aware_optimizer = false;
  const WholeTensors exact = state_after({}, precision_policy("fp32"), wide, 6);
  const WholeTensors found = state_after({}, precision_policy("bf16_state"), all_bf16(), 6);
  for (const auto& [name, value] : exact) {
    const double scale = value.abs().max().item<double>();
    const double off = found.at(name).to(DType::Float).sub(value).abs().max().item<double>();
    EXPECT_LT(off, 0.03 * scale) << name;
    EXPECT_GT(off, 0.0) << name;
  }
}

// Saved after two steps, in any layout, and loaded into another one: the bits of four steps.
TEST(NarrowState, ResumesBitForBitInAnotherLayout) {
  const PrecisionPolicy policy = precision_policy("bf16_state");
  const WholeTensors straight = state_after({}, policy, all_bf16(), 4);
  const WholeTensors half = state_after({.tp = 2}, policy, all_bf16(), 2);
  for (const Layout& layout : layouts()) {
    const WholeTensors resumed = resumed_state(layout, policy, all_bf16(), half);
    EXPECT_EQ(difference(resumed, straight), 0.0) << layout;
  }
}

// Weights of bf16 alone are what forward reads: no copy.
TEST(NarrowState, TakesEightBytesAWeight) {
  const auto backend = comm::make_single_backend();
  Rig rig(*backend, {}, precision_policy("bf16_state"), all_bf16());
  std::int64_t elements = 0;
  for (const Piece& piece : rig.store->pieces()) {
    EXPECT_TRUE(piece.main.is_same(piece.parameter));
    EXPECT_EQ(piece.grad.scalar_type(), DType::BFloat16);
    elements += piece.length();
  }
  EXPECT_EQ(rig.optimizer->state_bytes(), 4 * elements) << "two moments of two bytes";
}

TEST(NarrowState, BelongsToAdam) {
  const auto backend = comm::make_single_backend();
  for (const char* optimizer : {"sgd", "lion", "muon", "soap"}) {
    config::OptimizerConfig config = all_bf16();
    config.optimizer = optimizer;
    EXPECT_THROW(Rig(*backend, {}, precision_policy("bf16_state"), config), Error) << optimizer;
  }
}

// Half of the elements, whole weights, in the order of the store.
TEST(Offload, FractionTakesWholeWeights) {
  const auto backend = comm::make_single_backend();
  const PrecisionPolicy policy = precision_policy("bf16");
  config::OptimizerConfig config;
  config.clip_grad = 0;
  const WholeTensors usual = state_after({}, policy, config, 3);
  for (const double fraction : {0.0, 0.3, 0.5, 1.0}) {
    const Layout layout{.on_host = true, .host_fraction = fraction};
    Rig rig(*backend, layout, policy, config);
    std::int64_t total = 0, hosted = 0, last = 0;
    std::map<const nn::Parameter*, bool> side;
    bool device_began = false;
    for (const Piece& piece : rig.store->pieces()) {
      total += piece.length();
      if (piece.on_host) hosted += piece.length();
      const auto [known, is_new] = side.emplace(piece.weight, piece.on_host);
      EXPECT_EQ(known->second, piece.on_host) << "a weight is split";
      if (piece.on_host && is_new) last = 0;
      if (piece.on_host) last += piece.length();
      EXPECT_FALSE(device_began && piece.on_host);
      device_began = device_began || !piece.on_host;
      EXPECT_EQ(piece.update_grad.is_same(piece.grad), !piece.on_host);
    }
    EXPECT_GE(static_cast<double>(hosted), fraction * static_cast<double>(total));
    EXPECT_LE(static_cast<double>(hosted - last), fraction * static_cast<double>(total));
    EXPECT_EQ(difference(state_after(layout, policy, config, 3), usual), 0.0) << fraction;
  }
}

TEST(Offload, OverlapTakesTurnsAndChangesNoBit) {
  const PrecisionPolicy policy = precision_policy("bf16");
  for (const char* optimizer : {"adam", "sgd", "lion", "muon", "soap"}) {
    config::OptimizerConfig config;
    config.optimizer = optimizer;
    config.clip_grad = 0;
    const WholeTensors usual = state_after({}, policy, config, 3);
    for (const double fraction : {0.4, 1.0}) {
      const Layout layout{.on_host = true, .host_fraction = fraction, .overlap = true};
      EXPECT_EQ(difference(state_after(layout, policy, config, 3), usual), 0.0) << optimizer;
    }
  }
  // What the device reads was sent, and is sent again after a load.
  const auto backend = comm::make_single_backend();
  Rig rig(*backend, {.on_host = true, .overlap = true}, policy, config::OptimizerConfig{});
  EXPECT_EQ(rig.optimizer->state_bytes() % (4 + 4 + 4 + 4 + 2), 0)
      << "main parameter, gradient, two moments, the copy that travels";
  rig.train(0, 2);
  for (const Piece& piece : rig.store->pieces()) {
    EXPECT_TRUE(piece.parameter.equal(piece.main.to(DType::BFloat16)));
    piece.main.fill_(0.5);
  }
  rig.optimizer->refresh_parameters();
  for (const Piece& piece : rig.store->pieces()) {
    EXPECT_EQ(piece.parameter.min().item<double>(), 0.5);
  }
}

}  // namespace
}  // namespace pentatron::optimizer
