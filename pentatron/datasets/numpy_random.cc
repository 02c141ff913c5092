// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/numpy_random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "pentatron/base/error.h"

namespace pentatron::datasets {

NumpyRandomState::NumpyRandomState(std::int64_t seed) {
  PENTATRON_CHECK(seed >= 0 && seed <= std::numeric_limits<std::uint32_t>::max(), kConfig,
                  "--seed {} cannot seed the data order: expected 0 to 4294967295", seed);
  engine_.seed(static_cast<std::uint32_t>(seed));
}

std::uint64_t NumpyRandomState::random_interval(std::uint64_t max) {
  if (max == 0) return 0;  // draws nothing, as NumPy
  const std::uint64_t mask = std::numeric_limits<std::uint64_t>::max() >> std::countl_zero(max);
  std::uint64_t value = 0;
  if (max <= std::numeric_limits<std::uint32_t>::max()) {
    do {
      value = static_cast<std::uint64_t>(engine_()) & mask;
    } while (value > max);
    return value;
  }
  do {
    const std::uint64_t high = engine_();
    const std::uint64_t low = engine_();
    value = ((high << 32) | low) & mask;
  } while (value > max);
  return value;
}

double NumpyRandomState::uniform() {
  const std::uint32_t high = static_cast<std::uint32_t>(engine_()) >> 5;
  const std::uint32_t low = static_cast<std::uint32_t>(engine_()) >> 6;
  return (high * 67108864.0 + low) / 9007199254740992.0;
}

std::int64_t NumpyRandomState::geometric(double probability) {
  PENTATRON_CHECK(probability > 0 && probability < 1.0 / 3, kInternal,
                  "geometric draws of probability {}", probability);
  // At most log(2^-53) / log(1 - p): far below 2^63 for any p that is not denormal.
  const double draw = std::ceil(std::log1p(-uniform()) / std::log1p(-probability));
  return draw < 1e18 ? static_cast<std::int64_t>(draw) : std::numeric_limits<std::int64_t>::max();
}

std::size_t NumpyRandomState::choice(std::span<const double> cdf) {
  PENTATRON_CHECK(!cdf.empty(), kInternal, "a choice of nothing");
  const auto place = std::ranges::upper_bound(cdf, uniform()) - cdf.begin();
  return std::min(static_cast<std::size_t>(place), cdf.size() - 1);
}

bool NumpyRandomState::happens(double probability) {
  // NumPy counts the rarer outcome, by inversion of its distribution.
  const bool count_failures = probability > 0.5;
  const double p = count_failures ? 1 - probability : probability;
  const double q = 1 - p;
  const double none = std::exp(std::log(q));
  for (;;) {
    double u = uniform();
    if (u <= none) return count_failures;
    u -= none;
    if (u <= p * none / q) return !count_failures;
    // Rounding left a gap above both: it draws again.
  }
}

}  // namespace pentatron::datasets
