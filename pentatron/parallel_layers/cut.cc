// SPDX-License-Identifier: Apache-2.0
#include "pentatron/parallel_layers/cut.h"

#include "pentatron/base/error.h"

namespace pentatron::parallel_layers {
namespace {

// Fewer units than ranks: unit u stands on the neighbours [u * copies, (u + 1) * copies).
Share shared_units(const Cut& cut, const comm::Place& place, std::int64_t size) {
  const std::int64_t copies = size / cut.units;
  const std::int64_t rank = place.coordinate(cut.axis);
  Share share{.begin = rank / copies, .size = 1};
  share.replica = rank % copies;
  if (cut.units == 1) {
    share.replicate_axis = cut.axis;
    return share;
  }
  share.split_axis = comm::blocks_of(cut.axis, copies);
  share.replicate_axis = comm::inside_block(cut.axis, copies);
  return share;
}

}  // namespace

Share share_of(const Cut& cut, const comm::Place& place, std::string_view what) {
  if (cut.axis.empty()) return {.begin = 0, .size = cut.units};
  PENTATRON_CHECK(cut.units >= 1, kInternal, "{}: {} units over the axis {}", what, cut.units,
                  cut.axis);
  const std::int64_t size = place.size(cut.axis);
  if (cut.units % size == 0) {
    const std::int64_t each = cut.units / size;
    return {.begin = place.coordinate(cut.axis) * each, .size = each, .split_axis = cut.axis};
  }
  const std::string_view axis_option = comm::option_of(cut.axis);
  PENTATRON_CHECK(cut.fewer == FewerUnits::kCopy, kConfig,
                  "{}: {} {} does not divide by {} {}; change one of the two", what, cut.option,
                  cut.units, axis_option, size);
  PENTATRON_CHECK(size % cut.units == 0, kConfig,
                  "{}: {} {} must be a multiple or a divisor of {} {}; change one of the two", what,
                  cut.option, cut.units, axis_option, size);
  return shared_units(cut, place, size);
}

}  // namespace pentatron::parallel_layers
