// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "pentatron/config/batch_schedule.h"
#include "pentatron/config/choices.h"
#include "pentatron/config/config.h"

namespace pentatron::optimizer {

// Learning rate and weight decay as closed functions of the number of samples trained on
// (Megatron's formulas: linear 1-r, cosine 0.5(1+cos(pi r)), r = (n - warm) / (decay - warm);
// warm-up linear from lr_warmup_init; past decay min_lr; inverse square root max(min_lr, lr
// sqrt(max(warm, 1)) / sqrt(n)); WSD with x in the last window: exponential 2 * 0.5^x - 1, linear
// 1-x, cosine, minus_sqrt 1-sqrt(x)). The first update uses lr(0): lr_warmup_init where there is a
// warm-up. A warm-up as long as the decay leaves nothing to decay: the rate stays at its highest.
// Weight decay with y = n / samples of the run: start + (end - start) y, or 0.5(1+cos(pi(1-y))) for
// y.
class LearningRateSchedule final {
 public:
  // Steps are counted in samples: those of so many iterations of `batches`. Unknown styles and
  // rates or spans that contradict each other: kConfig.
  LearningRateSchedule(const config::OptimizerConfig& config,
                       const config::TrainingConfig& training,
                       const config::BatchSchedule& batches);
  LearningRateSchedule(const config::OptimizerConfig& config,
                       const config::TrainingConfig& training)
      : LearningRateSchedule(config, training, config::BatchSchedule(training.global_batch_size)) {}
  [[nodiscard]] double lr(std::int64_t samples) const {
    return rate(samples, config_.lr, config_.min_lr);
  }
  // Of word embeddings and output layer (--decoupled-lr, --decoupled-min-lr).
  [[nodiscard]] double decoupled_lr(std::int64_t samples) const;
  // Where highest and lowest rate are `factor` times the options' (WidthScaling::lr_factor); a
  // warm-up begins at lr_warmup_init all the same, as in Megatron-LM.
  [[nodiscard]] double scaled_lr(std::int64_t samples, double factor) const {
    return rate(samples, config_.lr * factor, config_.min_lr * factor);
  }
  [[nodiscard]] double weight_decay(std::int64_t samples) const;
  [[nodiscard]] std::int64_t warmup_samples() const { return warmup_samples_; }
  [[nodiscard]] std::int64_t decay_samples() const { return decay_samples_; }

 private:
  [[nodiscard]] double rate(std::int64_t samples, double highest, double lowest) const;
  // Share of lr - min_lr after the warm-up, before the decay's end.
  [[nodiscard]] double coefficient(double n) const;

  config::OptimizerConfig config_;
  config::DecayStyle style_;
  config::WsdStyle wsd_style_ = config::WsdStyle::kExponential;
  double warmup_ = 0;  // as warmup_samples_, not rounded (a fraction of the decay)
  std::int64_t warmup_samples_ = 0;
  std::int64_t decay_samples_ = 0;
  std::int64_t wsd_samples_ = 0;  // the last part of the decay
  std::int64_t run_samples_ = 0;
};

}  // namespace pentatron::optimizer
