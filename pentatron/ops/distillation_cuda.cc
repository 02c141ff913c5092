// SPDX-License-Identifier: Apache-2.0
// Written with the library's tensor functions, some rows at a time: fp32 copies never take more
// than a few pieces of memory.
#include <algorithm>
#include <limits>
#include <vector>

#include "pentatron/ops/cuda_ops.h"
#include "pentatron/ops/dispatch.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::ops {
namespace {

constexpr std::int64_t kPieceElements = std::int64_t{1} << 24;

// body(first row, rows) of each piece.
template <typename Body>
void each_piece(const Tensor& logits_tv, const Body& body) {
  const std::int64_t rows = logits_tv.size(0);
  const std::int64_t columns = std::max<std::int64_t>(1, logits_tv.size(1));
  const std::int64_t at_once = std::max<std::int64_t>(1, kPieceElements / columns);
  for (std::int64_t begin = 0; begin < rows; begin += at_once) {
    body(begin, std::min(at_once, rows - begin));
  }
}

// Rows of the valid columns in the computing dtype, over the temperature; a tensor of its own.
Tensor tempered(const Tensor& logits_tv, std::int64_t begin, std::int64_t count,
                std::int64_t valid_columns, double temperature, DType computed) {
  const Tensor piece = logits_tv.narrow(0, begin, count).narrow(1, 0, valid_columns);
  return tensor::cast(piece, computed).div(temperature);
}

Tensor column(const Tensor& t, std::int64_t begin, std::int64_t count, DType computed) {
  return tensor::cast(t.narrow(0, begin, count), computed).unsqueeze(1);
}

const std::vector<std::int64_t> kLast{1};

}  // namespace

SoftmaxPieces cuda::tempered_pieces(const Tensor& logits_tv, std::int64_t valid_columns,
                                    double temperature, DType statistics) {
  const DType computed = device_compute_dtype(logits_tv.scalar_type(), statistics);
  const std::int64_t rows = logits_tv.size(0);
  const Tensor max_t =
      tensor::full({rows}, std::numeric_limits<float>::lowest(), computed, logits_tv.device());
  const Tensor sum_t = tensor::zeros({rows}, computed, logits_tv.device());
  if (valid_columns > 0) {
    each_piece(logits_tv, [&](std::int64_t begin, std::int64_t count) {
      const Tensor z = tempered(logits_tv, begin, count, valid_columns, temperature, computed);
      const Tensor largest = z.amax(kLast, /*keepdim=*/true);
      max_t.narrow(0, begin, count).copy_(largest.squeeze(1));
      sum_t.narrow(0, begin, count).copy_(z.sub(largest).exp_().sum(kLast));
    });
  }
  return {.max_t = max_t, .sum_exp_t = sum_t, .target_logit_t = {}, .logit_sum_t = {}};
}

Tensor cuda::divergence_terms(const LogitPair& logits, const LogitNormalisers& lse) {
  const DType computed =
      device_compute_dtype(logits.student_tv.scalar_type(), lse.student_t.scalar_type());
  const Tensor terms_t =
      tensor::zeros({logits.student_tv.size(0)}, computed, logits.student_tv.device());
  each_piece(logits.student_tv, [&](std::int64_t begin, std::int64_t count) {
    const auto log_p = [&](const Tensor& logits_tv, const Tensor& lse_t) {
      return tempered(logits_tv, begin, count, logits.valid_columns, logits.temperature, computed)
          .sub_(column(lse_t, begin, count, computed));
    };
    const Tensor teacher = log_p(logits.teacher_tv, lse.teacher_t);
    const Tensor difference = teacher.sub(log_p(logits.student_tv, lse.student_t));
    terms_t.narrow(0, begin, count).copy_(difference.mul_(teacher.exp()).sum(kLast));
  });
  return terms_t;
}

void cuda::divergence_gradient_(const LogitPair& logits, const LogitNormalisers& lse,
                                const Tensor& coefficient_t, const CrossEntropyGradient& plain) {
  const DType computed =
      device_compute_dtype(logits.student_tv.scalar_type(), lse.student_t.scalar_type());
  const double temperature = logits.temperature;
  const std::int64_t valid = logits.valid_columns;
  each_piece(logits.student_tv, [&](std::int64_t begin, std::int64_t count) {
    const auto softmax = [&](const Tensor& logits_tv, const Tensor& lse_t) {
      return tempered(logits_tv, begin, count, valid, temperature, computed)
          .sub_(column(lse_t, begin, count, computed))
          .exp_();
    };
    const Tensor learnt = softmax(logits.student_tv, lse.student_t)
                              .sub_(softmax(logits.teacher_tv, lse.teacher_t))
                              .mul_(column(coefficient_t, begin, count, computed).div(temperature));
    const Tensor piece = logits.student_tv.narrow(0, begin, count);
    cuda::softmax_gradient_(
        piece, plain.labels_t.narrow(0, begin, count), plain.log_sum_exp_t.narrow(0, begin, count),
        plain.coefficient_t.narrow(0, begin, count), plain.column_begin, valid, plain.target);
    const Tensor valid_piece = piece.narrow(1, 0, valid);
    valid_piece.copy_(learnt.add_(tensor::cast(valid_piece, computed)));
  });
}

}  // namespace pentatron::ops
