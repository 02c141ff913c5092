// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "pentatron/config/config.h"

namespace pentatron::optimizer {

// Learning rate and weight decay as closed functions of the number of samples consumed (Megatron's formulas:
// linear 1-r, cosine 0.5(1+cos(pi r)), r = (n - warm) / (decay - warm); warm-up linear from lr_warmup_init; past decay min_lr).
class LearningRateSchedule final {
 public:
  // Steps are counted in samples: iterations times global batch size.
  LearningRateSchedule(const config::OptimizerConfig& config, const config::TrainingConfig& training);
  [[nodiscard]] double lr(std::int64_t consumed_samples) const;
  [[nodiscard]] double weight_decay(std::int64_t consumed_samples) const;
  [[nodiscard]] std::int64_t warmup_samples() const { return warmup_samples_; }
  [[nodiscard]] std::int64_t decay_samples() const { return decay_samples_; }

 private:
  config::OptimizerConfig config_;
  std::int64_t warmup_samples_ = 0;
  std::int64_t decay_samples_ = 0;
};

}  // namespace pentatron::optimizer
