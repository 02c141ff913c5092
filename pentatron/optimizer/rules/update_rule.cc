// SPDX-License-Identifier: Apache-2.0
#include "pentatron/optimizer/rules/update_rule.h"

namespace pentatron::optimizer {

std::vector<ops::UpdateSegment> segments_of(std::span<distributed::Piece* const> pieces,
                                            const WidthScaling& scaling) {
  std::vector<ops::UpdateSegment> segments;
  segments.reserve(pieces.size());
  for (const distributed::Piece* piece : pieces) {
    const auto state = [&](std::size_t i) {
      return i < piece->state.size() ? piece->state[i] : Tensor();
    };
    segments.push_back({.param = piece->main,
                        .grad = piece->update_grad,
                        .first = state(0),
                        .second = state(1),
                        .decays = nn::decays(piece->part->role),
                        .rate = scaling.rate_of(piece->part->role),
                        .eps_factor = scaling.eps_factor_of(piece->part->role)});
  }
  return segments;
}

}  // namespace pentatron::optimizer
