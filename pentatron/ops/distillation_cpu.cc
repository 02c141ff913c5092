// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "pentatron/ops/cpu_ops.h"
#include "pentatron/ops/dispatch.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/parallel.h"

namespace pentatron::ops {
namespace {

// logits / temperature of one row as C, in a buffer of its own unless they are there as they are.
template <typename T, typename C>
class TemperedRow final {
 public:
  explicit TemperedRow(double temperature) : factor_(static_cast<C>(1.0 / temperature)) {}
  const C* operator()(const T* row, std::int64_t n) {
    const C* in = read_(row, n);
    if (factor_ == C(1)) return in;
    scaled_.assign(in, in + n);
    rows::scale(scaled_.data(), factor_, n);
    return scaled_.data();
  }

 private:
  C factor_;
  RowReader<T, C> read_;
  std::vector<C> scaled_;
};

template <typename C>
double divergence(const C* student, const C* teacher, const C* q, C shift, std::int64_t n) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < n; ++i) {
    // log q - log p in one difference: nothing is lost where the models agree.
    sum += static_cast<double>(q[i]) * static_cast<double>((teacher[i] - student[i]) - shift);
  }
  return sum;
}

struct Normalisers {
  Tensor student, teacher;
};
Normalisers in_dtype(const LogitNormalisers& lse, DType computed) {
  return {tensor::cast(lse.student_t, computed).contiguous(),
          tensor::cast(lse.teacher_t, computed).contiguous()};
}

template <typename T, typename C>
void terms_of_rows(const LogitPair& logits, const Normalisers& lse, const Tensor& terms_t) {
  const std::int64_t v = logits.student_tv.size(1), valid = logits.valid_columns;
  const T* student = logits.student_tv.const_data_ptr<T>();
  const T* teacher = logits.teacher_tv.const_data_ptr<T>();
  const C* student_lse = lse.student.const_data_ptr<C>();
  const C* teacher_lse = lse.teacher.const_data_ptr<C>();
  C* terms = terms_t.data_ptr<C>();
  const auto body = [&](std::int64_t from, std::int64_t to) {
    TemperedRow<T, C> students(logits.temperature), teachers(logits.temperature);
    std::vector<C> q(static_cast<std::size_t>(valid));
    for (std::int64_t t = from; t < to; ++t) {
      const C* of_student = students(student + t * v, valid);
      const C* of_teacher = teachers(teacher + t * v, valid);
      rows::exp_shifted(of_teacher, teacher_lse[t], q.data(), valid);
      terms[t] = static_cast<C>(divergence(of_student, of_teacher, q.data(),
                                           static_cast<C>(teacher_lse[t] - student_lse[t]), valid));
    }
  };
  tensor::parallel_for(0, logits.student_tv.size(0), row_grain(2 * v), body);
}

// What a row of the gradient is made of, in the computing dtype.
struct Coefficients {
  Tensor divergence, plain, plain_lse, labels;
};

template <typename T, typename C>
void gradient_of_rows(const LogitPair& logits, const Normalisers& lse, const Coefficients& by,
                      const CrossEntropyGradient& plain) {
  const std::int64_t v = logits.student_tv.size(1), valid = logits.valid_columns;
  T* student = logits.student_tv.data_ptr<T>();
  const T* teacher = logits.teacher_tv.const_data_ptr<T>();
  const auto of = [](const Tensor& t) { return t.const_data_ptr<C>(); };
  const C *student_lse = of(lse.student), *teacher_lse = of(lse.teacher);
  const C *of_divergence = of(by.divergence), *of_plain = of(by.plain), *lse_t = of(by.plain_lse);
  const auto* labels = by.labels.const_data_ptr<std::int64_t>();
  const auto every = static_cast<C>(plain.target.every);
  const auto body = [&](std::int64_t from, std::int64_t to) {
    TemperedRow<T, C> students(logits.temperature), teachers(logits.temperature);
    RowReader<T, C> read;
    RowWriter<T, C> write;
    std::vector<C> p(static_cast<std::size_t>(valid)), q(p.size());
    for (std::int64_t t = from; t < to; ++t) {
      T* row = student + t * v;
      rows::exp_shifted(students(row, valid), student_lse[t], p.data(), valid);
      rows::exp_shifted(teachers(teacher + t * v, valid), teacher_lse[t], q.data(), valid);
      const C scale = of_divergence[t] / static_cast<C>(logits.temperature),
              coefficient = of_plain[t];
      const C* in = read(row, valid);
      C* out = write.begin(row, valid);
      rows::exp_shifted(in, lse_t[t], out, valid);
      const std::int64_t label = labels[t] - plain.column_begin;
      if (label >= 0 && label < valid) out[label] -= static_cast<C>(plain.target.label);
      for (std::int64_t c = 0; c < valid; ++c) {
        out[c] = (out[c] - every) * coefficient + (p[c] - q[c]) * scale;
      }
      write.end(row, valid);
      std::fill(row + valid, row + v, T(0));
    }
  };
  tensor::parallel_for(0, logits.student_tv.size(0), row_grain(3 * v), body);
}

}  // namespace

SoftmaxPieces cpu::tempered_pieces(const Tensor& logits_tv, std::int64_t valid_columns,
                                   double temperature, DType statistics) {
  const DType computed = compute_dtype(logits_tv.scalar_type(), statistics);
  const std::int64_t num_rows = logits_tv.size(0), v = logits_tv.size(1);
  const Tensor max_t = tensor::empty({num_rows}, computed),
               sum_t = tensor::empty({num_rows}, computed);
  dispatch_float(logits_tv.scalar_type(), statistics, [&](auto storage, auto compute) {
    using T = decltype(storage);
    using C = decltype(compute);
    const T* logits = logits_tv.const_data_ptr<T>();
    C *maxima = max_t.data_ptr<C>(), *sums = sum_t.data_ptr<C>();
    tensor::parallel_for(0, num_rows, row_grain(v), [&](std::int64_t from, std::int64_t to) {
      TemperedRow<T, C> tempered(temperature);
      for (std::int64_t t = from; t < to; ++t) {
        const C* row = tempered(logits + t * v, valid_columns);
        maxima[t] = rows::max(row, valid_columns);
        sums[t] = static_cast<C>(sum_exp_in_blocks(row, maxima[t], valid_columns));
      }
    });
  });
  return {.max_t = max_t, .sum_exp_t = sum_t, .target_logit_t = {}, .logit_sum_t = {}};
}

Tensor cpu::divergence_terms(const LogitPair& logits, const LogitNormalisers& lse) {
  const DType storage = logits.student_tv.scalar_type(), statistics = lse.student_t.scalar_type();
  const DType computed = compute_dtype(storage, statistics);
  const Normalisers own = in_dtype(lse, computed);
  const Tensor terms_t = tensor::empty({logits.student_tv.size(0)}, computed);
  dispatch_float(storage, statistics, [&](auto stored, auto compute) {
    terms_of_rows<decltype(stored), decltype(compute)>(logits, own, terms_t);
  });
  return terms_t;
}

void cpu::divergence_gradient_(const LogitPair& logits, const LogitNormalisers& lse,
                               const Tensor& coefficient_t, const CrossEntropyGradient& plain) {
  const DType storage = logits.student_tv.scalar_type(), statistics = lse.student_t.scalar_type();
  const DType computed = compute_dtype(storage, statistics);
  const Normalisers own = in_dtype(lse, computed);
  const auto cast = [&](const Tensor& t) { return tensor::cast(t, computed).contiguous(); };
  const Coefficients by{.divergence = cast(coefficient_t),
                        .plain = cast(plain.coefficient_t),
                        .plain_lse = cast(plain.log_sum_exp_t),
                        .labels = plain.labels_t.contiguous()};
  dispatch_float(storage, statistics, [&](auto stored, auto compute) {
    gradient_of_rows<decltype(stored), decltype(compute)>(logits, own, by, plain);
  });
}

}  // namespace pentatron::ops
