// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "pentatron/nn/stage.h"

namespace pentatron::nn {

// All stages of this rank, in order of chunk, as one module. Their units are counted through: the
// first unit of a chunk follows the last of the one before.
class LocalStages final : public Module {
 public:
  void add(std::unique_ptr<Stage> stage);

  [[nodiscard]] int size() const { return static_cast<int>(stages_.size()); }
  // A chunk that is not there: kInternal.
  [[nodiscard]] Stage& at(int chunk) const;
  // Of all chunks, by their index on the rank.
  [[nodiscard]] std::vector<Unit> units() const;
  // Indices [first, end) of a chunk's units.
  [[nodiscard]] std::pair<int, int> unit_range(int chunk) const;

 private:
  std::vector<Stage*> stages_;
  std::vector<int> first_units_ = {0};  // and behind the last
};

}  // namespace pentatron::nn
