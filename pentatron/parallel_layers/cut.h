// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "pentatron/comm/places.h"

namespace pentatron::parallel_layers {

// What becomes of units on an axis with more ranks than units.
enum class FewerUnits {
  kRefuse,  // an error: each rank works on units of its own (query heads, channels)
  kCopy     // neighbours share one: key and value heads, Mamba groups. Each copy serves other units
            // of its users and sees only their share of the gradient.
};

// n units that must not be torn, over an axis: n equal to the axis' size or a multiple of it gives
// each rank a contiguous run; n a divisor of it gives each unit to size / n neighbours.
struct Cut {
  std::string axis = {};  // of a comm::Place; empty: every rank holds everything
  std::int64_t units = 0;
  std::string_view option = {};  // that sets `units`, for the error
  FewerUnits fewer = FewerUnits::kRefuse;
};

// One rank's units, and the axes that tell ranks with others and ranks with the same ones apart.
struct Share {
  std::int64_t begin = 0;
  std::int64_t size = 0;
  std::string split_axis = {};      // an axis or "axis/copies"; empty: nobody holds others
  std::string replicate_axis = {};  // an axis or "axis%copies"; empty: nobody holds the same
  std::int64_t replica = 0;         // place on replicate_axis
};

// `what` names the units' owner in errors. Units that neither divide the axis' size nor are
// divided by it, or fewer than it where that is refused: kConfig with both numbers and options. No
// units on an axis: kInternal.
[[nodiscard]] Share share_of(const Cut& cut, const comm::Place& place, std::string_view what);

}  // namespace pentatron::parallel_layers
