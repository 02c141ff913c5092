// SPDX-License-Identifier: Apache-2.0
#include "pentatron/bench/stopwatch.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "pentatron/base/timer.h"
#include "pentatron/tensor/device.h"
#include "pentatron/tensor/device_queue.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/random.h"

namespace pentatron::bench {
namespace {

// Seconds of `count` calls one after another.
double round_of(Device device, const std::function<void()>& call, int count) {
  tensor::Event begin(device, /*timing=*/true), end(device, /*timing=*/true);
  begin.record();
  for (int i = 0; i < count; ++i) call();
  end.record();
  end.synchronize();
  return end.milliseconds_since(begin) * 1e-3;
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

Timing time_calls(Device device, const std::function<void()>& call, double budget_s) {
  constexpr double kShortestRound = 0.004;  // an event's own cost is a thousandth of it
  constexpr double kGpuBudget = 0.2, kCpuBudget = 0.05;
  constexpr int kWarmUps = 3, kMaxCalls = 1000, kMaxRounds = 25, kFewestRounds = 3;
  const tensor::NoGrad no_grad;
  for (int i = 0; i < kWarmUps; ++i) call();
  tensor::synchronize(device);
  if (budget_s <= 0) budget_s = device.is_cuda() ? kGpuBudget : kCpuBudget;
  const double first =
      std::max(std::min(round_of(device, call, 1), round_of(device, call, 1)), 1e-7);
  const int calls = std::clamp(static_cast<int>(std::ceil(kShortestRound / first)), 1, kMaxCalls);
  const int rounds =
      std::clamp(static_cast<int>(budget_s / (first * calls)), kFewestRounds, kMaxRounds);
  std::vector<double> seconds;
  for (int round = 0; round < rounds; ++round) {
    seconds.push_back(round_of(device, call, calls) / calls);
  }
  return {.seconds = median(seconds),
          .best = *std::min_element(seconds.begin(), seconds.end()),
          .rounds = rounds};
}

Tensor random_tensor(IntList shape, DType dtype, Device device, std::string_view name, double std) {
  constexpr std::uint64_t kSeed = 12;
  Tensor out = tensor::empty(shape, dtype, device);
  tensor::fill_normal_keyed(out, kSeed, name, std, Shape(shape.begin(), shape.end()),
                            Shape(shape.size(), 0));
  return out;
}

}  // namespace pentatron::bench
