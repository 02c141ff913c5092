// SPDX-License-Identifier: Apache-2.0
#include "pentatron/datasets/numpy_random.h"

#include <bit>
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

}  // namespace pentatron::datasets
