// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "pentatron/distributed/piece.h"
#include "pentatron/ops/adamw.h"
#include "pentatron/optimizer/width_scaling.h"

namespace pentatron::optimizer {

// The arithmetic of an update, on pieces of parameters: Piece::main and Piece::state change, by
// Piece::update_grad and scalars of device memory. Where the scalars' `skip` is not 0 nothing
// changes. Knows no store and no sharding; the host reads nothing.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  // What Piece::state holds, in order, under the names that checkpoints give it.
  [[nodiscard]] virtual std::vector<std::string_view> states() const = 0;
  // Called once with all of them, where groups that updates need are made.
  virtual void prepare(std::span<distributed::Piece* const> pieces) {}
  // All pieces of a rank that follow this rule, in the order of the store.
  virtual void update(std::span<distributed::Piece* const> pieces,
                      const ops::AdamScalars& scalars) = 0;
};

// The pieces as segments of one elementwise call, each with its rate and eps; state beyond what a
// piece has stays undefined.
[[nodiscard]] std::vector<ops::UpdateSegment> segments_of(
    std::span<distributed::Piece* const> pieces, const WidthScaling& scaling);

}  // namespace pentatron::optimizer
