// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string_view>

#include "pentatron/base/timer.h"

namespace pentatron::training {

// CPU seconds (user and system, all threads) in the text of /proc/self/stat; nothing where it is
// no such text. Clock ticks are `ticks_per_second`.
[[nodiscard]] std::optional<double> cpu_seconds_of(std::string_view stat, double ticks_per_second);

// How busy this process keeps its CPUs and its GPU. Measured anew at most every half a second: the
// kernel counts in hundredths of a second, and steps may be shorter.
class UtilisationMeter final {
 public:
  // `gpu`: the share of time in which the GPU worked, NaN where it is not told; may be empty.
  explicit UtilisationMeter(std::function<double()> gpu);

  // Shares, 0 to 1; NaN where they are not known (yet).
  struct Shares {
    double cpu = std::numeric_limits<double>::quiet_NaN();  // of the CPUs this process may run on
    double gpu = std::numeric_limits<double>::quiet_NaN();
  };
  [[nodiscard]] const Shares& read();

 private:
  std::function<double()> gpu_;
  Timer since_;
  double cpu_seconds_;
  double num_cpus_;
  Shares shares_;
};

}  // namespace pentatron::training
