// SPDX-License-Identifier: Apache-2.0
#include "pentatron/kernels/cross_entropy.h"

#include <limits>

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

Tensor cuda::row_max(const Tensor& logits_tv, std::int64_t valid_columns, DType statistics) {
  const DType computed = device_compute_dtype(logits_tv.scalar_type(), statistics);
  Tensor max_t = tensor::empty({logits_tv.size(0)}, computed, logits_tv.device());
  check_launch(kernels::row_max(rows_of(logits_tv, valid_columns), read(logits_tv), write(max_t),
                                stream_of(logits_tv)),
               "row_max");
  // Lowest finite in the asked dtype, not the lowest of a wider one rounded to infinity.
  return computed == statistics
             ? max_t
             : max_t.clamp_min(std::numeric_limits<float>::lowest()).to(statistics);
}

SoftmaxPieces cuda::softmax_pieces(const Tensor& logits_tv, const Tensor& labels_t,
                                   const Tensor& row_max_t, std::int64_t column_begin,
                                   std::int64_t valid_columns) {
  const DType statistics = row_max_t.scalar_type();
  const DType computed = device_compute_dtype(logits_tv.scalar_type(), statistics);
  const Device device = logits_tv.device();
  const Tensor max_t = row_max_t.to(computed).contiguous(), labels = labels_t.contiguous();
  Tensor sum_t = tensor::empty({logits_tv.size(0)}, computed, device);
  Tensor target_t = tensor::empty({logits_tv.size(0)}, computed, device);
  check_launch(
      kernels::softmax_pieces(rows_of(logits_tv, valid_columns), read(logits_tv), read(max_t),
                              labels.const_data_ptr<std::int64_t>(), column_begin, write(sum_t),
                              write(target_t), stream_of(logits_tv)),
      "softmax_pieces");
  return {.sum_exp_t = sum_t.to(statistics), .target_logit_t = target_t.to(statistics)};
}

void cuda::softmax_gradient_(const Tensor& logits_tv, const Tensor& labels_t,
                             const Tensor& log_sum_exp_t, const Tensor& coefficient_t,
                             std::int64_t column_begin, std::int64_t valid_columns) {
  const DType computed = device_compute_dtype(logits_tv.scalar_type(), log_sum_exp_t.scalar_type());
  const Tensor lse_t = log_sum_exp_t.to(computed).contiguous();
  const Tensor scale_t = coefficient_t.to(computed).contiguous(), labels = labels_t.contiguous();
  check_launch(kernels::softmax_gradient(
                   rows_of(logits_tv, valid_columns), write(logits_tv), read(lse_t), read(scale_t),
                   labels.const_data_ptr<std::int64_t>(), column_begin, stream_of(logits_tv)),
               "softmax_gradient");
}

}  // namespace pentatron::ops
