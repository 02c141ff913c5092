// SPDX-License-Identifier: Apache-2.0
#include "pentatron/optimizer/rules/update_rule.h"

#include <algorithm>

#include "pentatron/base/error.h"

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

ops::ElementPlace place_of(const distributed::Piece& piece) {
  const nn::ShardPart& part = *piece.part;
  const Shape& logical = part.logical_shape;
  const nn::Box& box = part.box;
  const std::size_t dims = logical.size();
  // Columns are the dimensions from `split` on: of each group only the first may be cut.
  for (std::size_t split = std::min<std::size_t>(1, dims - 1); split < dims; ++split) {
    ops::ElementPlace place{.first = piece.box_begin};
    std::int64_t inner = 1;  // columns of one step along `split`
    bool fits = true;
    for (std::size_t d = 0; d < dims; ++d) {
      const bool may_be_cut = d == 0 || d == split;
      fits = fits && (may_be_cut || box.size[d] == logical[d]);
      if (d > split) inner *= logical[d];
    }
    if (!fits) continue;
    place.width = box.size[split] * inner;
    place.logical_width = logical[split] * inner;
    place.column_offset = box.offset[split] * inner;
    if (split > 0) {
      place.row_offset = box.offset[0];
      for (std::size_t d = 1; d < split; ++d) place.row_offset *= logical[d];
    }
    return place;
  }
  PENTATRON_THROW(kUnsupported,
                  "part {} is cut in a way for which rounding in bf16 has no keys: keep main "
                  "parameters and moments in fp32",
                  part.name);
}

}  // namespace pentatron::optimizer
