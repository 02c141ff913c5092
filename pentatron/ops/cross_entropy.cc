// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/cross_entropy.h"

#include <limits>

#include "pentatron/base/error.h"
#include "pentatron/ops/op_table.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::ops {
namespace {

void check_logits(const Tensor& logits_tv, std::int64_t valid_columns) {
  PENTATRON_CHECK(logits_tv.dim() == 2 && logits_tv.is_contiguous() && valid_columns >= 0 &&
                      valid_columns <= logits_tv.size(1),
                  kInternal, "cross entropy: {} valid columns of contiguous logits {}",
                  valid_columns, tensor::describe(logits_tv));
}

void check_rows(const Tensor& t, const Tensor& logits_tv, std::string_view what) {
  PENTATRON_CHECK(t.dim() == 1 && t.size(0) == logits_tv.size(0), kInternal,
                  "cross entropy: {} {} for logits {}", what, tensor::describe(t),
                  tensor::describe(logits_tv));
}

SoftmaxPieces in_dtype(const SoftmaxPieces& computed, DType statistics) {
  if (computed.max_t.scalar_type() == statistics) return computed;
  // Lowest finite in the asked dtype, not the lowest of a wider one rounded to infinity.
  return {.max_t = computed.max_t.clamp_min(std::numeric_limits<float>::lowest()).to(statistics),
          .sum_exp_t = computed.sum_exp_t.to(statistics),
          .target_logit_t = computed.target_logit_t.to(statistics),
          .logit_sum_t =
              computed.logit_sum_t.defined() ? computed.logit_sum_t.to(statistics) : Tensor()};
}

}  // namespace

SoftmaxPieces softmax_pieces(const Tensor& logits_tv, const Tensor& labels_t,
                             std::int64_t column_begin, std::int64_t valid_columns,
                             DType statistics, bool logit_sum) {
  check_logits(logits_tv, valid_columns);
  check_rows(labels_t, logits_tv, "labels");
  const tensor::NoGrad no_grad;
  return in_dtype(
      op_table(logits_tv.device())
          .softmax_pieces(logits_tv, labels_t, column_begin, valid_columns, statistics, logit_sum),
      statistics);
}

Tensor sum_exp_below(const SoftmaxPieces& pieces, const Tensor& row_max_t) {
  return pieces.sum_exp_t.mul(pieces.max_t.sub(row_max_t).exp());
}

void softmax_gradient_(Tensor logits_tv, const Tensor& labels_t, const Tensor& log_sum_exp_t,
                       const Tensor& coefficient_t, std::int64_t column_begin,
                       std::int64_t valid_columns, const LossTarget& target) {
  check_logits(logits_tv, valid_columns);
  check_rows(labels_t, logits_tv, "labels");
  check_rows(log_sum_exp_t, logits_tv, "log-sum-exp");
  check_rows(coefficient_t, logits_tv, "coefficient");
  const tensor::NoGrad no_grad;
  op_table(logits_tv.device())
      .softmax_gradient_(logits_tv, labels_t, log_sum_exp_t, coefficient_t, column_begin,
                         valid_columns, target);
}

SoftmaxPieces softmax_with_gradient_(Tensor logits_tv, const Tensor& labels_t,
                                     const Tensor& coefficient_t, std::int64_t column_begin,
                                     std::int64_t valid_columns, DType statistics) {
  check_logits(logits_tv, valid_columns);
  check_rows(labels_t, logits_tv, "labels");
  check_rows(coefficient_t, logits_tv, "coefficient");
  const tensor::NoGrad no_grad;
  return in_dtype(op_table(logits_tv.device())
                      .softmax_with_gradient_(logits_tv, labels_t, coefficient_t, column_begin,
                                              valid_columns, statistics),
                  statistics);
}

}  // namespace pentatron::ops
