// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "pentatron/config/choices.h"

namespace pentatron::optimizer {

// Scale of the loss under half precision, so that small gradients do not vanish. Dynamic (fp16
// without --loss-scale): every overflow begins the count of good steps anew and takes one from the
// hysteresis; while none is left, each overflow halves the scale, down to --min-loss-scale. After
// --loss-scale-window good steps it doubles and the hysteresis is whole again. Static:
// --loss-scale, else 1. It changes between steps only.
class LossScaler final {
 public:
  // What a checkpoint remembers.
  struct State {
    double scale = 1;
    std::int64_t good_steps = 0;
    std::int64_t hysteresis_left = 0;
    bool operator==(const State&) const = default;
  };

  LossScaler(const config::OptimizerConfig& config, config::Precision precision);

  [[nodiscard]] double scale() const { return state_.scale; }
  [[nodiscard]] bool dynamic() const { return dynamic_; }
  // A step has been made, or was left out because its gradients were not finite.
  void update(bool overflow);
  [[nodiscard]] const State& state() const { return state_; }
  // Of a checkpoint. A static scale stays what the options say. A state that cannot be:
  // kCheckpoint.
  void restore(const State& state);

 private:
  bool dynamic_;
  double min_scale_;
  double window_;
  std::int64_t hysteresis_;
  State state_;
};

}  // namespace pentatron::optimizer
