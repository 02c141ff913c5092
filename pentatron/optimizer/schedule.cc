// SPDX-License-Identifier: Apache-2.0
#include "pentatron/optimizer/schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <string_view>

#include "pentatron/base/error.h"

namespace pentatron::optimizer {
namespace {

double cosine(double r) { return 0.5 * (1.0 + std::cos(std::numbers::pi * r)); }

std::int64_t samples_of(std::int64_t iterations, std::int64_t batch, std::string_view option) {
  PENTATRON_CHECK(iterations >= 0 && batch >= 1 &&
                      iterations <= std::numeric_limits<std::int64_t>::max() / batch,
                  kConfig, "{} {} times --global-batch-size {} is no count of samples", option,
                  iterations, batch);
  return iterations * batch;
}

void check_styles(const config::OptimizerConfig& config, const WsdOptions& wsd,
                  std::int64_t decay_samples) {
  const std::string& style = config.lr_decay_style;
  const bool known = style == "constant" || style == "linear" || style == "cosine" ||
                     style == "inverse-square-root" || style == "WSD";
  PENTATRON_CHECK(known, kConfig,
                  "--lr-decay-style is '{}', expected constant, linear, cosine, "
                  "inverse-square-root or WSD",
                  style);
  if (style != "WSD") return;
  const std::string& window = wsd.decay_style;
  PENTATRON_CHECK(
      window == "exponential" || window == "linear" || window == "cosine" || window == "minus_sqrt",
      kConfig,
      "--lr-wsd-decay-style is '{}', expected exponential, linear, cosine or "
      "minus_sqrt",
      window);
  PENTATRON_CHECK(wsd.decay_samples >= 1 && wsd.decay_samples <= decay_samples, kConfig,
                  "WSD decays over {} samples, expected 1 to the {} of the whole decay; set "
                  "--lr-wsd-decay-iters or --lr-wsd-decay-samples",
                  wsd.decay_samples, decay_samples);
}

}  // namespace

LearningRateSchedule::LearningRateSchedule(const config::OptimizerConfig& config,
                                           const config::TrainingConfig& training,
                                           const WsdOptions& wsd)
    : config_(config), wsd_(wsd) {
  const std::int64_t batch = training.global_batch_size;
  if (config.lr_decay_samples > 0) {
    decay_samples_ = config.lr_decay_samples;
  } else if (training.train_samples > 0 && config.lr_decay_iters == 0) {
    decay_samples_ = training.train_samples;
  } else {
    const bool set = config.lr_decay_iters > 0;
    decay_samples_ = samples_of(set ? config.lr_decay_iters : training.train_iters, batch,
                                set ? "--lr-decay-iters" : "--train-iters");
  }
  if (config.lr_warmup_fraction) {
    warmup_ = *config.lr_warmup_fraction * static_cast<double>(decay_samples_);
  } else if (config.lr_warmup_samples > 0) {
    warmup_ = static_cast<double>(config.lr_warmup_samples);
  } else {
    warmup_ = static_cast<double>(samples_of(config.lr_warmup_iters, batch, "--lr-warmup-iters"));
  }
  PENTATRON_CHECK(warmup_ >= 0 && (warmup_ == 0 || warmup_ < static_cast<double>(decay_samples_)),
                  kConfig,
                  "the warm-up of {} samples does not end before the decay's end at {}; lower "
                  "--lr-warmup-iters, --lr-warmup-samples or --lr-warmup-fraction, or raise "
                  "--lr-decay-iters",
                  warmup_, decay_samples_);
  PENTATRON_CHECK(config.min_lr <= config.lr && config.lr_warmup_init <= config.lr, kConfig,
                  "--lr {} is below --min-lr {} or --lr-warmup-init {}", config.lr, config.min_lr,
                  config.lr_warmup_init);
  warmup_samples_ = std::llround(warmup_);
  check_styles(config_, wsd_, decay_samples_);
}

double LearningRateSchedule::lr(std::int64_t consumed_samples) const {
  const auto n = static_cast<double>(consumed_samples);
  if (warmup_ > 0 && n <= warmup_) {
    return config_.lr_warmup_init + (config_.lr - config_.lr_warmup_init) * n / warmup_;
  }
  if (config_.lr_decay_style == "constant") return config_.lr;
  if (consumed_samples > decay_samples_) return config_.min_lr;
  if (config_.lr_decay_style == "inverse-square-root") {
    const double rate =
        config_.lr * std::sqrt(std::max(warmup_, 1.0)) / std::sqrt(std::max(n, 1.0));
    return std::max(config_.min_lr, rate);
  }
  // At the end every coefficient is exactly 0, so the rate is exactly min_lr.
  return config_.min_lr + coefficient(n) * (config_.lr - config_.min_lr);
}

double LearningRateSchedule::coefficient(double n) const {
  const auto end = static_cast<double>(decay_samples_);
  if (config_.lr_decay_style != "WSD") {
    const double r = (n - warmup_) / (end - warmup_);
    return config_.lr_decay_style == "linear" ? 1.0 - r : cosine(r);
  }
  const auto window = static_cast<double>(wsd_.decay_samples);
  const double x = (n - (end - window)) / window;
  if (x <= 0) return 1.0;
  if (wsd_.decay_style == "linear") return 1.0 - x;
  if (wsd_.decay_style == "cosine") return cosine(x);
  if (wsd_.decay_style == "minus_sqrt") return 1.0 - std::sqrt(x);
  return 2.0 * std::pow(0.5, x) - 1.0;
}

double LearningRateSchedule::weight_decay(std::int64_t /*consumed_samples*/) const {
  return config_.weight_decay;
}

}  // namespace pentatron::optimizer
