// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "pentatron/tensor/tensor.h"

namespace pentatron::bench {

// Seconds of one call; the median of several rounds, the best of them, and how many there were.
struct Timing {
  double seconds = 0;
  double best = 0;
  int rounds = 0;
};

// Calls `call` on the device again and again for about `budget_s` (0: as long as the device's noise
// asks for), after a few calls that do not count. On a GPU a round is so many calls between two
// events that launches do not show, where the device works longer on a call than the host: the time
// is the device's.
[[nodiscard]] Timing time_calls(Device device, const std::function<void()>& call,
                                double budget_s = 0);

// Normal random values, the same for a name: products of zeros draw less power and run faster.
[[nodiscard]] Tensor random_tensor(IntList shape, DType dtype, Device device, std::string_view name,
                                   double std = 1.0);

// Of an unsorted list; the mean of the middle two of an even count. NaN of none.
[[nodiscard]] double median(std::vector<double> values);

}  // namespace pentatron::bench
