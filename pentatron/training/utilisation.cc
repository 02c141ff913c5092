// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/utilisation.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>

namespace pentatron::training {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInterval = 0.5;  // seconds

double cpu_seconds() {
  std::ifstream in("/proc/self/stat");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  return cpu_seconds_of(text, static_cast<double>(::sysconf(_SC_CLK_TCK))).value_or(kNan);
}

double num_allowed_cpus() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  // More CPUs than a set of the usual size holds: all that are online.
  const bool told = ::sched_getaffinity(0, sizeof(cpus), &cpus) == 0;
  return told ? std::max(1, CPU_COUNT(&cpus))
              : static_cast<double>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
}

}  // namespace

std::optional<double> cpu_seconds_of(std::string_view stat, double ticks_per_second) {
  // The second field is the program's name in brackets and may hold anything.
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string_view::npos) return std::nullopt;
  std::istringstream fields{std::string(stat.substr(name_end + 1))};
  constexpr int kBeforeTimes = 11;  // fields 3 to 13 of proc(5); 14 and 15 are the times
  std::string passed;
  for (int i = 0; i < kBeforeTimes; ++i) fields >> passed;
  double user = 0;
  double system = 0;
  if (!(fields >> user >> system)) return std::nullopt;
  return (user + system) / ticks_per_second;
}

UtilisationMeter::UtilisationMeter(std::function<double()> gpu)
    : gpu_(std::move(gpu)), cpu_seconds_(cpu_seconds()), num_cpus_(num_allowed_cpus()) {}

const UtilisationMeter::Shares& UtilisationMeter::read() {
  const double passed = since_.seconds();
  if (passed < kInterval) return shares_;
  since_.restart();
  const double now = cpu_seconds();
  shares_.cpu = std::min(1.0, (now - std::exchange(cpu_seconds_, now)) / (passed * num_cpus_));
  if (gpu_) shares_.gpu = gpu_();
  return shares_;
}

}  // namespace pentatron::training
