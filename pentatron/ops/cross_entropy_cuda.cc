// SPDX-License-Identifier: Apache-2.0
#include "pentatron/kernels/cross_entropy.h"

#include "pentatron/ops/cuda_ops.h"
#include "pentatron/ops/dispatch.h"
#include "pentatron/tensor/kernel_launch.h"
#include "pentatron/tensor/ops.h"

namespace pentatron::ops {
namespace {

using tensor::check_launch;
using tensor::read;
using tensor::stream_of;
using tensor::write;

kernels::LogitRows rows_of(const Tensor& logits_tv, std::int64_t valid_columns) {
  return {.type = tensor::kernel_type(logits_tv.scalar_type()),
          .rows = logits_tv.size(0),
          .columns = logits_tv.size(1),
          .valid = valid_columns};
}

}  // namespace

SoftmaxPieces cuda::softmax_pieces(const Tensor& logits_tv, const Tensor& labels_t,
                                   std::int64_t column_begin, std::int64_t valid_columns,
                                   DType statistics, bool logit_sum) {
  const DType computed = device_compute_dtype(logits_tv.scalar_type(), statistics);
  const Tensor labels = labels_t.contiguous();
  const auto row_values = [&] {
    return tensor::empty({logits_tv.size(0)}, computed, logits_tv.device());
  };
  const Tensor max_t = row_values(), sum_t = row_values(), target_t = row_values();
  const Tensor logit_sum_t = logit_sum ? row_values() : Tensor();
  check_launch(kernels::softmax_pieces(
                   rows_of(logits_tv, valid_columns), read(logits_tv),
                   labels.const_data_ptr<std::int64_t>(), column_begin, write(max_t), write(sum_t),
                   write(target_t), logit_sum ? write(logit_sum_t) : nullptr, stream_of(logits_tv)),
               "softmax_pieces");
  return {
      .max_t = max_t, .sum_exp_t = sum_t, .target_logit_t = target_t, .logit_sum_t = logit_sum_t};
}

void cuda::softmax_gradient_(const Tensor& logits_tv, const Tensor& labels_t,
                             const Tensor& log_sum_exp_t, const Tensor& coefficient_t,
                             std::int64_t column_begin, std::int64_t valid_columns,
                             const LossTarget& target) {
  const DType computed = device_compute_dtype(logits_tv.scalar_type(), log_sum_exp_t.scalar_type());
  const Tensor lse_t = log_sum_exp_t.to(computed).contiguous();
  const Tensor scale_t = coefficient_t.to(computed).contiguous(), labels = labels_t.contiguous();
  check_launch(kernels::softmax_gradient(
                   rows_of(logits_tv, valid_columns), write(logits_tv), read(lse_t), read(scale_t),
                   labels.const_data_ptr<std::int64_t>(), column_begin,
                   {.label = target.label, .every = target.every}, stream_of(logits_tv)),
               "softmax_gradient");
}

SoftmaxPieces cuda::softmax_with_gradient_(const Tensor& logits_tv, const Tensor& labels_t,
                                           const Tensor& coefficient_t, std::int64_t column_begin,
                                           std::int64_t valid_columns, DType statistics) {
  const DType computed = device_compute_dtype(logits_tv.scalar_type(), statistics);
  const kernels::LogitRows rows = rows_of(logits_tv, valid_columns);
  // The kernel computes in fp32.
  if (tensor::item_bytes(computed) != sizeof(float) ||
      !kernels::softmax_with_gradient_fits(rows, read(logits_tv))) {
    const SoftmaxPieces pieces =
        softmax_pieces(logits_tv, labels_t, column_begin, valid_columns, statistics, false);
    softmax_gradient_(logits_tv, labels_t, pieces.max_t.add(pieces.sum_exp_t.log()), coefficient_t,
                      column_begin, valid_columns, {});
    return pieces;
  }
  const Tensor labels = labels_t.contiguous(), scale_t = coefficient_t.to(computed).contiguous();
  const auto row_values = [&] {
    return tensor::empty({logits_tv.size(0)}, computed, logits_tv.device());
  };
  const SoftmaxPieces pieces{
      .max_t = row_values(), .sum_exp_t = row_values(), .target_logit_t = row_values()};
  check_launch(kernels::softmax_with_gradient(
                   rows, write(logits_tv), labels.const_data_ptr<std::int64_t>(), column_begin,
                   scale_t.const_data_ptr<float>(), pieces.max_t.mutable_data_ptr<float>(),
                   pieces.sum_exp_t.mutable_data_ptr<float>(),
                   pieces.target_logit_t.mutable_data_ptr<float>(), stream_of(logits_tv)),
               "softmax_with_gradient");
  return pieces;
}

}  // namespace pentatron::ops
