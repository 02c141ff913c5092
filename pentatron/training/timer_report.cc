// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/timer_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "pentatron/base/error.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::training {
namespace {

constexpr std::array kStepTimers = std::to_array<std::string_view>(
    {"forward-backward", "forward-compute", "backward-compute", "batch-generator", "forward-recv",
     "forward-send", "backward-recv", "backward-send", "layernorm-grads-all-reduce",
     "embedding-grads-all-reduce", "all-grads-sync", "params-all-gather",
     "optimizer-unscale-and-check-inf", "optimizer-clip-main-grad", "optimizer-count-zeros",
     "optimizer-inner-step", "optimizer-copy-main-to-model-params", "optimizer"});

}  // namespace

std::span<const std::string_view> step_timers() { return kStepTimers; }

double TimerReading::least() const {
  double value = std::numeric_limits<double>::infinity();
  for (const double s : seconds) {
    if (s > 0) value = std::min(value, s);
  }
  return value;
}

double TimerReading::most() const { return *std::max_element(seconds.begin(), seconds.end()); }

std::vector<TimerReading> read_timers(Timers& timers, comm::Group& world,
                                      std::span<const std::string_view> names) {
  std::vector<double> mine;
  for (const std::string_view name : names) mine.push_back(timers.elapsed_seconds(name));
  const Tensor all_rn = comm::all_gather(world, tensor::from_vector(mine)).view({world.size(), -1});
  std::vector<TimerReading> readings;
  for (std::size_t i = 0; i < names.size(); ++i) {
    TimerReading reading{.name = std::string(names[i]), .seconds = {}};
    for (int rank = 0; rank < world.size(); ++rank) {
      reading.seconds.push_back(all_rn[rank][static_cast<std::int64_t>(i)].item<double>());
    }
    if (reading.most() > 0) readings.push_back(std::move(reading));
  }
  return readings;
}

std::string format_timers(std::span<const TimerReading> readings, std::string_view option,
                          double count) {
  PENTATRON_CHECK(option == "max" || option == "minmax" || option == "all", kInternal,
                  "--timing-log-option {}, expected max, minmax or all", option);
  if (readings.empty()) return {};
  const double scale = 1e3 / count;
  std::string text = option == "all"   ? "times across ranks (ms):"
                     : option == "max" ? "max time across ranks (ms):"
                                       : "(min, max) time across ranks (ms):";
  for (const TimerReading& reading : readings) {
    if (option == "all") {
      text += fmt::format("\n  {}:", reading.name);
      for (std::size_t rank = 0; rank < reading.seconds.size(); ++rank) {
        if (reading.seconds[rank] <= 0) continue;
        text += fmt::format("\n     rank {:2d}: {:.2f}", rank, reading.seconds[rank] * scale);
      }
      continue;
    }
    text += fmt::format("\n    {:.<48}: ", reading.name + " ");
    text += option == "max"
                ? fmt::format("{:.2f}", reading.most() * scale)
                : fmt::format("({:.2f}, {:.2f})", reading.least() * scale, reading.most() * scale);
  }
  return text;
}

}  // namespace pentatron::training
