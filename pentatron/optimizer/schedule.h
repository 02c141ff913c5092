// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "pentatron/config/config.h"

namespace pentatron::optimizer {

// The last part of a warm-up, stable, decay schedule.
struct WsdOptions {
  std::string decay_style = "exponential";  // exponential, linear, cosine, minus_sqrt
  std::int64_t decay_samples = 0;           // length of the window before the decay's end
};

// Learning rate and weight decay as closed functions of the number of samples consumed (Megatron's
// formulas: linear 1-r, cosine 0.5(1+cos(pi r)), r = (n - warm) / (decay - warm); warm-up linear
// from lr_warmup_init; past decay min_lr; inverse square root max(min_lr, lr sqrt(max(warm, 1)) /
// sqrt(n)); WSD with x in the last window: exponential 2 * 0.5^x - 1, linear 1-x, cosine,
// minus_sqrt 1-sqrt(x)). The first update uses lr(0): lr_warmup_init where there is a warm-up.
class LearningRateSchedule final {
 public:
  // Steps are counted in samples: iterations times global batch size. `wsd` is read by the WSD
  // style alone.
  LearningRateSchedule(const config::OptimizerConfig& config,
                       const config::TrainingConfig& training, const WsdOptions& wsd = {});
  [[nodiscard]] double lr(std::int64_t consumed_samples) const;
  [[nodiscard]] double weight_decay(std::int64_t consumed_samples) const;
  [[nodiscard]] std::int64_t warmup_samples() const { return warmup_samples_; }
  [[nodiscard]] std::int64_t decay_samples() const { return decay_samples_; }

 private:
  // Share of lr - min_lr after the warm-up, before the decay's end.
  [[nodiscard]] double coefficient(double n) const;

  config::OptimizerConfig config_;
  WsdOptions wsd_;
  double warmup_ = 0;  // as warmup_samples_, not rounded (a fraction of the decay)
  std::int64_t warmup_samples_ = 0;
  std::int64_t decay_samples_ = 0;
};

}  // namespace pentatron::optimizer
