// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "pentatron/ops/cpu_ops.h"
#include "pentatron/ops/dispatch.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/parallel.h"

namespace pentatron::ops {
namespace {

template <typename C>
double sum_of(const C* row, std::int64_t n) {
  double total = 0.0;
  for (std::int64_t i = 0; i < n; ++i) total += static_cast<double>(row[i]);
  return total;
}

template <typename T, typename C>
void gradient_rows(const Tensor& logits_tv, const Tensor& labels_t, const Tensor& lse_t,
                   const Tensor& coefficient_t, std::int64_t column_begin,
                   std::int64_t valid_columns, const LossTarget& target) {
  const std::int64_t v = logits_tv.size(1);
  T* logits = logits_tv.data_ptr<T>();
  const auto* labels = labels_t.const_data_ptr<std::int64_t>();
  const C* lse = lse_t.const_data_ptr<C>();
  const C* coefficient = coefficient_t.const_data_ptr<C>();
  tensor::parallel_for(0, logits_tv.size(0), row_grain(v), [&](std::int64_t from, std::int64_t to) {
    RowReader<T, C> read;
    RowWriter<T, C> write;
    for (std::int64_t t = from; t < to; ++t) {
      T* row = logits + t * v;
      const C* in = read(row, valid_columns);
      C* out = write.begin(row, valid_columns);
      rows::exp_shifted(in, lse[t], out, valid_columns);
      const std::int64_t label = labels[t] - column_begin;
      if (target.every != 0.0) {
        for (std::int64_t c = 0; c < valid_columns; ++c) out[c] -= static_cast<C>(target.every);
      }
      if (label >= 0 && label < valid_columns) out[label] -= static_cast<C>(target.label);
      rows::scale(out, coefficient[t], valid_columns);
      write.end(row, valid_columns);
      std::fill(row + valid_columns, row + v, T(0));
    }
  });
}

}  // namespace

SoftmaxPieces cpu::softmax_pieces(const Tensor& logits_tv, const Tensor& labels_t,
                                  std::int64_t column_begin, std::int64_t valid_columns,
                                  DType statistics, bool logit_sum) {
  const DType computed = compute_dtype(logits_tv.scalar_type(), statistics);
  const std::int64_t num_rows = logits_tv.size(0), v = logits_tv.size(1);
  const Tensor max_t = tensor::empty({num_rows}, computed),
               sum_t = tensor::empty({num_rows}, computed),
               target_t = tensor::empty({num_rows}, computed);
  const Tensor logit_sum_t = logit_sum ? tensor::empty({num_rows}, computed) : Tensor();
  const Tensor labels = labels_t.contiguous();
  dispatch_float(logits_tv.scalar_type(), statistics, [&](auto storage, auto compute) {
    using T = decltype(storage);
    using C = decltype(compute);
    const T* logits = logits_tv.const_data_ptr<T>();
    const auto* label = labels.const_data_ptr<std::int64_t>();
    C* maxima = max_t.data_ptr<C>();
    C* sums = sum_t.data_ptr<C>();
    C* targets = target_t.data_ptr<C>();
    C* logit_sums = logit_sum ? logit_sum_t.data_ptr<C>() : nullptr;
    tensor::parallel_for(0, num_rows, row_grain(v), [&](std::int64_t from, std::int64_t to) {
      RowReader<T, C> read;
      for (std::int64_t t = from; t < to; ++t) {
        const C* row = read(logits + t * v, valid_columns);
        maxima[t] = rows::max(row, valid_columns);
        sums[t] = static_cast<C>(sum_exp_in_blocks(row, maxima[t], valid_columns));
        const std::int64_t column = label[t] - column_begin;
        targets[t] = column >= 0 && column < valid_columns ? row[column] : C(0);
        if (logit_sum) logit_sums[t] = static_cast<C>(sum_of(row, valid_columns));
      }
    });
  });
  return {
      .max_t = max_t, .sum_exp_t = sum_t, .target_logit_t = target_t, .logit_sum_t = logit_sum_t};
}

void cpu::softmax_gradient_(const Tensor& logits_tv, const Tensor& labels_t,
                            const Tensor& log_sum_exp_t, const Tensor& coefficient_t,
                            std::int64_t column_begin, std::int64_t valid_columns,
                            const LossTarget& target) {
  const DType statistics = log_sum_exp_t.scalar_type();
  const DType computed = compute_dtype(logits_tv.scalar_type(), statistics);
  const Tensor lse = tensor::cast(log_sum_exp_t, computed).contiguous();
  const Tensor coefficient = tensor::cast(coefficient_t, computed).contiguous();
  const Tensor labels = labels_t.contiguous();
  dispatch_float(logits_tv.scalar_type(), statistics, [&](auto storage, auto compute) {
    gradient_rows<decltype(storage), decltype(compute)>(logits_tv, labels, lse, coefficient,
                                                        column_begin, valid_columns, target);
  });
}

SoftmaxPieces cpu::softmax_with_gradient_(const Tensor& logits_tv, const Tensor& labels_t,
                                          const Tensor& coefficient_t, std::int64_t column_begin,
                                          std::int64_t valid_columns, DType statistics) {
  const SoftmaxPieces pieces =
      softmax_pieces(logits_tv, labels_t, column_begin, valid_columns, statistics, false);
  softmax_gradient_(logits_tv, labels_t, pieces.max_t.add(pieces.sum_exp_t.log()), coefficient_t,
                    column_begin, valid_columns, {});
  return pieces;
}

}  // namespace pentatron::ops
