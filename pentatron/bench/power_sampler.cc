// SPDX-License-Identifier: Apache-2.0
#include "pentatron/bench/power_sampler.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "pentatron/base/error.h"
#include "pentatron/bench/stopwatch.h"
#include "pentatron/training/gpu_energy.h"
#include "pentatron/training/metrics.h"

namespace pentatron::bench {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr std::chrono::milliseconds kInterval(50);

// Joules at a moment, on the line between the readings around it.
double joules_at(const std::vector<PowerSampler::Reading>& readings, double seconds) {
  const auto after =
      std::lower_bound(readings.begin(), readings.end(), seconds,
                       [](const PowerSampler::Reading& r, double at) { return r.seconds < at; });
  if (after == readings.begin()) return readings.front().joules;
  if (after == readings.end()) return readings.back().joules;
  const PowerSampler::Reading& b = *after;
  const PowerSampler::Reading& a = *(after - 1);
  const double share = (seconds - a.seconds) / std::max(b.seconds - a.seconds, 1e-9);
  return a.joules + share * (b.joules - a.joules);
}

}  // namespace

struct PowerSampler::State {
  Read read;
  mutable std::mutex mutex;
  std::condition_variable stop;
  bool stopped = false;
  std::vector<Reading> readings;
  std::thread thread;
};

PowerSampler::PowerSampler(Read read) : state_(std::make_unique<State>()) {
  state_->read = std::move(read);
  state_->thread = std::thread([state = state_.get()] {
    std::unique_lock lock(state->mutex);
    while (!state->stopped) {
      lock.unlock();
      const Reading reading = state->read();
      lock.lock();
      state->readings.push_back(reading);
      state->stop.wait_for(lock, kInterval, [state] { return state->stopped; });
    }
  });
}

PowerSampler::~PowerSampler() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopped = true;
  }
  state_->stop.notify_all();
  state_->thread.join();
}

double PowerSampler::now() const { return training::unix_seconds(); }

PowerWindow PowerSampler::between(double from, double to) const {
  const std::lock_guard lock(state_->mutex);
  std::vector<double> clocks;
  double watts = 0;
  for (const Reading& reading : state_->readings) {
    if (reading.seconds < from || reading.seconds > to) continue;
    clocks.push_back(reading.sm_clock_mhz);
    watts += reading.watts;
  }
  if (clocks.size() < 2) return {kUnknown, kUnknown, kUnknown};
  return {.sm_clock_mhz = median(clocks),
          .watts = watts / static_cast<double>(clocks.size()),
          .joules = joules_at(state_->readings, to) - joules_at(state_->readings, from)};
}

std::unique_ptr<PowerSampler> make_power_sampler(Device device) {
  const std::function<training::GpuState()> state = training::gpu_state(device);
  if (!state) return nullptr;
  training::EnergyCounter energy;
  try {
    energy = training::gpu_energy_counter(device);
  } catch (const Error&) {
    energy = [] { return kUnknown; };
  }
  return std::make_unique<PowerSampler>([state, energy] {
    const training::GpuState now = state();
    return PowerSampler::Reading{.seconds = training::unix_seconds(),
                                 .sm_clock_mhz = now.sm_clock_mhz,
                                 .watts = now.watts,
                                 .joules = energy()};
  });
}

}  // namespace pentatron::bench
