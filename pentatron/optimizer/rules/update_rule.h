// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pentatron/distributed/piece.h"
#include "pentatron/ops/adamw.h"
#include "pentatron/ops/narrow_adamw.h"
#include "pentatron/optimizer/width_scaling.h"

namespace pentatron::optimizer {

// State of a part that is not laid out as its pieces: a whole tensor on every rank that holds a box
// of the part. `part` describes it to checkpoints.
struct WholeState {
  nn::ShardPart part;
  std::string kind;
  Tensor values;
};

// The arithmetic of an update, on pieces of parameters: Piece::main and Piece::state change, by
// Piece::update_grad and scalars of device memory. Where the scalars' `skip` is not 0 nothing
// changes. Knows no store and no sharding; the host reads nothing.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  // What Piece::state holds, in order, under the names that checkpoints give it.
  [[nodiscard]] virtual std::vector<std::string_view> states() const = 0;
  // Called once with all of them, when they have their state: groups that updates need are made.
  virtual void prepare(std::span<distributed::Piece* const> pieces) {}
  // What a checkpoint stores of a state, 1-D: the live values, or a copy in another dtype, which
  // take_stored() makes live after a load wrote into it.
  [[nodiscard]] virtual Tensor stored_state(const distributed::Piece& piece, std::size_t state) {
    return piece.state[state];
  }
  // Called by all ranks together.
  virtual void take_stored() {}
  // State beside Piece::state, made by prepare().
  [[nodiscard]] virtual std::vector<WholeState*> whole_states() { return {}; }
  // Pieces of a rank, those of a weight together, that follow this rule, in the order of the
  // store: all of one device.
  virtual void update(std::span<distributed::Piece* const> pieces,
                      const ops::AdamScalars& scalars) = 0;
};

// The pieces as segments of one elementwise call, each with its rate and eps; state beyond what a
// piece has stays undefined.
[[nodiscard]] std::vector<ops::UpdateSegment> segments_of(
    std::span<distributed::Piece* const> pieces, const WidthScaling& scaling);
// Where a piece stands in its logical tensor. A box that is cut along more than two dimensions,
// with whole ones between: kUnsupported.
[[nodiscard]] ops::ElementPlace place_of(const distributed::Piece& piece);

}  // namespace pentatron::optimizer
