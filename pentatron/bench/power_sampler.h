// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "pentatron/tensor/tensor.h"

namespace pentatron::bench {

// What a GPU did in a window of time; NaN where nobody tells.
struct PowerWindow {
  double sm_clock_mhz = 0;  // median
  double watts = 0;         // mean
  double joules = 0;        // by the energy counter
};

// Clock, power and energy of a GPU, read twenty times a second by a thread of its own while it
// lives.
class PowerSampler final {
 public:
  // What is read; an energy counter never falls.
  struct Reading {
    double seconds = 0;  // since 1970
    double sm_clock_mhz = 0;
    double watts = 0;
    double joules = 0;
  };
  using Read = std::function<Reading()>;

  explicit PowerSampler(Read read);
  ~PowerSampler();
  PowerSampler(const PowerSampler&) = delete;
  PowerSampler& operator=(const PowerSampler&) = delete;

  // Seconds since 1970.
  [[nodiscard]] double now() const;
  // Of the readings inside the window; the energy at its ends is interpolated. NaN without two of
  // them.
  [[nodiscard]] PowerWindow between(double from, double to) const;

  struct State;

 private:
  std::unique_ptr<State> state_;
};

// Of the GPU that the device is; null on the CPU and where NVIDIA's management library is not
// there.
[[nodiscard]] std::unique_ptr<PowerSampler> make_power_sampler(Device device);

}  // namespace pentatron::bench
