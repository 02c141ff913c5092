// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>

namespace pentatron::training {

// A value beyond this many times the largest seen is a spike (--check-for-spiky-loss,
// --check-for-large-grads).
inline constexpr double kSpikeFactor = 10.0;

// Whether a loss or a gradient norm is a spike; otherwise `largest` (0: nothing seen yet) grows
// with it. What is not finite is another check's business.
[[nodiscard]] inline bool is_spike(double value, double& largest) {
  if (!std::isfinite(value)) return false;
  if (largest > 0 && value > kSpikeFactor * largest) return true;
  largest = std::max(largest, value);
  return false;
}

}  // namespace pentatron::training
