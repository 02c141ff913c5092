// SPDX-License-Identifier: Apache-2.0
#include "pentatron/nn/local_stages.h"

#include "pentatron/base/error.h"

namespace pentatron::nn {

void LocalStages::add(std::unique_ptr<Stage> stage) {
  PENTATRON_CHECK(stage != nullptr, kInternal, "no stage was made for chunk {}", size());
  stages_.push_back(&add_child(std::move(stage)));
  first_units_.push_back(first_units_.back() + static_cast<int>(stages_.back()->units().size()));
}

Stage& LocalStages::at(int chunk) const {
  PENTATRON_CHECK(chunk >= 0 && chunk < size(), kInternal, "there is no chunk {} of {}", chunk,
                  size());
  return *stages_[static_cast<std::size_t>(chunk)];
}

std::vector<Unit> LocalStages::units() const {
  std::vector<Unit> all;
  for (Stage* stage : stages_) {
    for (Unit& unit : stage->units()) all.push_back(std::move(unit));
  }
  return all;
}

std::pair<int, int> LocalStages::unit_range(int chunk) const {
  static_cast<void>(at(chunk));
  const auto index = static_cast<std::size_t>(chunk);
  return {first_units_[index], first_units_[index + 1]};
}

}  // namespace pentatron::nn
