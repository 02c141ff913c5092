// SPDX-License-Identifier: Apache-2.0
#include "pentatron/training/qk_clip.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "pentatron/base/error.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/transformer/attention.h"

namespace pentatron::training {
namespace {

using distributed::Piece;
using transformer::ClippedWeight;

// Of each query group: eta, exactly 1 where the largest logit is no larger than the threshold (or
// the attention saw no token) and where the step was skipped.
Tensor etas(const Tensor& max_logit_n, std::int64_t groups, double threshold,
            const Tensor& skipped) {
  const Tensor largest_g = max_logit_n.view({groups, -1}).amax(IntList{1}).clamp_min(threshold);
  const Tensor eta_g = largest_g.reciprocal().mul(threshold);
  const Tensor one = tensor::full({}, 1.0, kAccumulationDType, eta_g.device());
  return tensor::where(skipped.eq(0).logical_and(largest_g.gt(threshold)), eta_g, one);
}

// The factors of a part's rows on this rank.
Tensor row_factors(const Tensor& eta_g, const ClippedWeight& weight, const nn::ShardPart& part,
                   double alpha) {
  const bool queries = &part == weight.q;
  const std::int64_t groups = weight.groups, rows = part.logical_shape.at(0);
  const Tensor factor_g = eta_g.pow(queries ? alpha : 1.0 - alpha);
  return factor_g.unsqueeze(1)
      .expand({groups, rows / groups})
      .reshape({rows})
      .narrow(0, part.box.offset.at(0), part.box.size.at(0));
}

void clip(const Piece& piece, const ClippedWeight& weight, const Tensor& max_logits,
          const config::ModelConfig& model, const Tensor& skipped) {
  const Tensor eta_g =
      etas(max_logits.narrow(0, 0, weight.heads), weight.groups, model.qk_clip_threshold, skipped);
  const Tensor factor = row_factors(eta_g, weight, *piece.part, model.qk_clip_alpha);
  scale_rows(piece.main, piece.box_begin, piece.part->box.size.at(1),
             factor.to(piece.main.device()).to(piece.main.scalar_type()));
}

}  // namespace

void scale_rows(const Tensor& values, std::int64_t begin, std::int64_t columns,
                const Tensor& factor) {
  const std::int64_t end = begin + values.numel();
  PENTATRON_CHECK(end <= factor.numel() * columns, kInternal,
                  "elements {} to {} of a matrix of {} x {}", begin, end, factor.numel(), columns);
  for (std::int64_t at = begin; at < end;) {
    const std::int64_t row = at / columns, column = at % columns;
    // Whole rows together; what is left of the first and of the last by itself.
    const std::int64_t rows = column == 0 ? (end - at) / columns : 0;
    const std::int64_t length = rows > 0 ? rows * columns : std::min(columns - column, end - at);
    const Tensor run = values.narrow(0, at - begin, length);
    if (rows > 0) {
      run.view({rows, columns}).mul_(factor.narrow(0, row, rows).unsqueeze(1));
    } else {
      run.mul_(factor.select(0, row));
    }
    at += length;
  }
}

optimizer::AfterUpdate qk_clip(const config::ModelConfig& model, const nn::StepLedger& ledger) {
  if (!model.qk_clip) return {};
  return [&model, &ledger](std::vector<Piece>& pieces, const Tensor& skipped) {
    const tensor::NoGrad no_grad;
    for (Piece& piece : pieces) {
      const std::optional<ClippedWeight> weight = transformer::clipped_weight(*piece.weight, model);
      if (!weight || (piece.part != weight->q && piece.part != weight->k)) continue;
      clip(piece, *weight, ledger.max_slot(weight->max_logits), model, skipped);
    }
  };
}

}  // namespace pentatron::training
