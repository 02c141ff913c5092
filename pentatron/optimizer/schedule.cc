// SPDX-License-Identifier: Apache-2.0
#include "pentatron/optimizer/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "pentatron/base/error.h"

namespace pentatron::optimizer {

using config::DecayStyle;
using config::WsdStyle;

namespace {

double cosine(double r) { return 0.5 * (1.0 + std::cos(std::numbers::pi * r)); }

}  // namespace

LearningRateSchedule::LearningRateSchedule(const config::OptimizerConfig& config,
                                           const config::TrainingConfig& training,
                                           const config::BatchSchedule& batches)
    : config_(config), style_(config::decay_style(config)) {
  const bool in_samples = training.train_samples > 0;
  run_samples_ = in_samples ? training.train_samples : batches.samples_after(training.train_iters);
  if (config.lr_decay_samples > 0) {
    decay_samples_ = config.lr_decay_samples;
  } else if (config.lr_decay_iters > 0) {
    decay_samples_ = batches.samples_after(config.lr_decay_iters);
  } else {
    decay_samples_ = run_samples_;
  }
  if (config.lr_warmup_fraction) {
    warmup_ = *config.lr_warmup_fraction * static_cast<double>(decay_samples_);
  } else if (config.lr_warmup_samples > 0) {
    warmup_ = static_cast<double>(config.lr_warmup_samples);
  } else {
    warmup_ = static_cast<double>(batches.samples_after(config.lr_warmup_iters));
  }
  PENTATRON_CHECK(warmup_ >= 0 && warmup_ <= static_cast<double>(decay_samples_), kConfig,
                  "the warm-up of {} samples does not end before the decay's end at {}; lower "
                  "--lr-warmup-iters, --lr-warmup-samples or --lr-warmup-fraction, or raise "
                  "--lr-decay-iters",
                  warmup_, decay_samples_);
  PENTATRON_CHECK(config.min_lr <= config.lr && config.lr_warmup_init <= config.lr, kConfig,
                  "--lr {} is below --min-lr {} or --lr-warmup-init {}", config.lr, config.min_lr,
                  config.lr_warmup_init);
  warmup_samples_ = std::llround(warmup_);
  if (config.lr_wsd_decay_samples > 0) {
    wsd_samples_ = config.lr_wsd_decay_samples;
  } else if (config.lr_wsd_decay_iters > 0) {
    // The last iterations of the decay, whatever their batch sizes.
    const std::int64_t before =
        batches.iterations_within(decay_samples_) - config.lr_wsd_decay_iters;
    wsd_samples_ = decay_samples_ - (before >= 0 ? batches.samples_after(before) : -1);
  }
  if (style_ != DecayStyle::kWsd) return;
  wsd_style_ = config::wsd_style(config);
  PENTATRON_CHECK(wsd_samples_ >= 1 && wsd_samples_ <= decay_samples_, kConfig,
                  "WSD decays over {} samples, expected 1 to the {} of the whole decay; set "
                  "--lr-wsd-decay-iters or --lr-wsd-decay-samples",
                  wsd_samples_, decay_samples_);
}

double LearningRateSchedule::rate(std::int64_t samples, double highest, double lowest) const {
  const auto n = static_cast<double>(samples);
  if (warmup_ > 0 && n <= warmup_) {
    return config_.lr_warmup_init + (highest - config_.lr_warmup_init) * n / warmup_;
  }
  const bool nothing_decays = warmup_ > 0 && warmup_ >= static_cast<double>(decay_samples_);
  if (style_ == DecayStyle::kConstant || nothing_decays) return highest;
  if (samples > decay_samples_) return lowest;
  if (style_ == DecayStyle::kInverseSquareRoot) {
    const double falling =
        highest * std::sqrt(std::max(warmup_, 1.0)) / std::sqrt(std::max(n, 1.0));
    return std::max(lowest, falling);
  }
  // At the end every coefficient is exactly 0, so the rate is exactly the lowest.
  return lowest + coefficient(n) * (highest - lowest);
}

double LearningRateSchedule::decoupled_lr(std::int64_t samples) const {
  return rate(samples, config_.decoupled_lr.value_or(config_.lr),
              config_.decoupled_min_lr.value_or(config_.min_lr));
}

double LearningRateSchedule::coefficient(double n) const {
  const auto end = static_cast<double>(decay_samples_);
  if (style_ != DecayStyle::kWsd) {
    const double r = (n - warmup_) / (end - warmup_);
    return style_ == DecayStyle::kLinear ? 1.0 - r : cosine(r);
  }
  const auto window = static_cast<double>(wsd_samples_);
  const double x = (n - (end - window)) / window;
  if (x <= 0) return 1.0;
  switch (wsd_style_) {
    case WsdStyle::kLinear:
      return 1.0 - x;
    case WsdStyle::kCosine:
      return cosine(x);
    case WsdStyle::kMinusSqrt:
      return 1.0 - std::sqrt(x);
    case WsdStyle::kExponential:
      break;
  }
  return 2.0 * std::pow(0.5, x) - 1.0;
}

double LearningRateSchedule::weight_decay(std::int64_t samples) const {
  const std::string& style = config_.weight_decay_incr_style;
  if (style == "constant") return config_.weight_decay;
  const double start = config_.start_weight_decay.value_or(config_.weight_decay);
  const double end = config_.end_weight_decay.value_or(config_.weight_decay);
  if (samples >= run_samples_) return end;
  const double share = static_cast<double>(samples) / static_cast<double>(run_samples_);
  return start + (end - start) * (style == "cosine" ? cosine(1.0 - share) : share);
}

}  // namespace pentatron::optimizer
