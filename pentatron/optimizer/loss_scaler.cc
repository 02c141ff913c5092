// SPDX-License-Identifier: Apache-2.0
#include "pentatron/optimizer/loss_scaler.h"

#include <algorithm>
#include <cmath>

#include "pentatron/base/error.h"

namespace pentatron::optimizer {
namespace {

constexpr double kGrowth = 2.0;
constexpr double kBackoff = 0.5;

}  // namespace

LossScaler::LossScaler(const config::OptimizerConfig& config, config::Precision precision)
    : dynamic_(precision == config::Precision::kFp16 && !config.loss_scale),
      min_scale_(config.min_loss_scale),
      window_(config.loss_scale_window),
      hysteresis_(config.hysteresis) {
  state_.scale = config.loss_scale.value_or(1.0);
  // Saved by a static scale too: a dynamic one that goes on from there has all of it.
  state_.hysteresis_left = hysteresis_;
  if (dynamic_) state_.scale = config.initial_loss_scale;
}

void LossScaler::update(bool overflow) {
  if (!dynamic_) return;
  if (overflow) {
    state_.good_steps = 0;
    --state_.hysteresis_left;
    if (state_.hysteresis_left <= 0) state_.scale = std::max(state_.scale * kBackoff, min_scale_);
    return;
  }
  ++state_.good_steps;
  if (static_cast<double>(state_.good_steps) < window_) return;
  state_.good_steps = 0;
  state_.hysteresis_left = hysteresis_;
  state_.scale *= kGrowth;
}

void LossScaler::restore(const State& state) {
  if (!dynamic_) return;
  PENTATRON_CHECK(std::isfinite(state.scale) && state.scale > 0 && state.good_steps >= 0,
                  kCheckpoint, "a loss scale of {} after {} good steps cannot be resumed",
                  state.scale, state.good_steps);
  state_ = state;
}

}  // namespace pentatron::optimizer
