// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/cross_entropy.h"

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

}  // namespace

Tensor row_max(const Tensor& logits_tv, std::int64_t valid_columns, DType statistics) {
  check_logits(logits_tv, valid_columns);
  const tensor::NoGrad no_grad;
  return op_table(logits_tv.device()).row_max(logits_tv, valid_columns, statistics);
}

SoftmaxPieces softmax_pieces(const Tensor& logits_tv, const Tensor& labels_t,
                             const Tensor& row_max_t, std::int64_t column_begin,
                             std::int64_t valid_columns) {
  check_logits(logits_tv, valid_columns);
  check_rows(labels_t, logits_tv, "labels");
  check_rows(row_max_t, logits_tv, "row maximum");
  const tensor::NoGrad no_grad;
  return op_table(logits_tv.device())
      .softmax_pieces(logits_tv, labels_t, row_max_t, column_begin, valid_columns);
}

void softmax_gradient_(Tensor logits_tv, const Tensor& labels_t, const Tensor& log_sum_exp_t,
                       const Tensor& coefficient_t, std::int64_t column_begin,
                       std::int64_t valid_columns) {
  check_logits(logits_tv, valid_columns);
  check_rows(labels_t, logits_tv, "labels");
  check_rows(log_sum_exp_t, logits_tv, "log-sum-exp");
  check_rows(coefficient_t, logits_tv, "coefficient");
  const tensor::NoGrad no_grad;
  op_table(logits_tv.device())
      .softmax_gradient_(logits_tv, labels_t, log_sum_exp_t, coefficient_t, column_begin,
                         valid_columns);
}

}  // namespace pentatron::ops
