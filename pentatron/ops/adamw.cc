// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/adamw.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>
#include <vector>

#include "pentatron/ops/cpu_ops.h"
#include "pentatron/ops/dispatch.h"
#include "pentatron/ops/row_math.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/parallel.h"
#include "pentatron/tensor/precision.h"

namespace pentatron::ops {
namespace {

// What one step's element arithmetic needs, in the computing type.
template <typename C>
struct AdamConstants {
  C lr, beta1, beta2, eps, weight_decay, grad_scale, correction1, correction2;
};
template <typename C>
struct SgdConstants {
  C lr, momentum, weight_decay, grad_scale;
};

template <typename C>
PENTATRON_INLINE void adam_body(C* __restrict p, const C* __restrict grad, C* __restrict m,
                                C* __restrict v, AdamConstants<C> k, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const C g = grad[i] * k.grad_scale;
    m[i] = k.beta1 * m[i] + (C(1) - k.beta1) * g;
    v[i] = k.beta2 * v[i] + (C(1) - k.beta2) * g * g;
    const C update = (m[i] / k.correction1) / (std::sqrt(v[i] / k.correction2) + k.eps);
    p[i] = p[i] - k.lr * (k.weight_decay * p[i] + update);
  }
}
PENTATRON_CLONES void adam_row(float* p, const float* g, float* m, float* v, AdamConstants<float> k,
                               std::int64_t n) {
  adam_body(p, g, m, v, k, n);
}
PENTATRON_CLONES void adam_row(double* p, const double* g, double* m, double* v,
                               AdamConstants<double> k, std::int64_t n) {
  adam_body(p, g, m, v, k, n);
}

// m null: no momentum.
template <typename C>
PENTATRON_INLINE void sgd_body(C* __restrict p, const C* __restrict grad, C* __restrict m,
                               SgdConstants<C> k, std::int64_t n) {
  if (m == nullptr) {
    for (std::int64_t i = 0; i < n; ++i) {
      p[i] = p[i] - k.lr * (grad[i] * k.grad_scale + k.weight_decay * p[i]);
    }
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    m[i] = k.momentum * m[i] + (grad[i] * k.grad_scale + k.weight_decay * p[i]);
    p[i] = p[i] - k.lr * m[i];
  }
}
PENTATRON_CLONES void sgd_row(float* p, const float* g, float* m, SgdConstants<float> k,
                              std::int64_t n) {
  sgd_body(p, g, m, k, n);
}
PENTATRON_CLONES void sgd_row(double* p, const double* g, double* m, SgdConstants<double> k,
                              std::int64_t n) {
  sgd_body(p, g, m, k, n);
}

PENTATRON_CLONES double squares_row(const float* x, std::int64_t n) {
  return rows::lane_sum<double>(
      n, [=](std::int64_t i) __attribute__((always_inline)) {
        return static_cast<double>(x[i]) * static_cast<double>(x[i]);
      });
}
double squares_row(const double* x, std::int64_t n) { return rows::sum_squares(x, 0.0, n); }

// A CPU's fp64 scalar, without the dispatcher: a step reads six of them a piece.
double value_of(const Tensor& scalar) { return *scalar.const_data_ptr<double>(); }
double scalar_or(const Tensor& t, double otherwise) {
  return t.defined() ? value_of(t) : otherwise;
}

void check_flat(const Tensor& t, const Tensor& param, std::string_view what) {
  PENTATRON_CHECK(t.defined() && t.is_contiguous() && t.numel() == param.numel(), kInternal,
                  "optimizer step: {} {} does not match the parameter slice {}", what,
                  tensor::describe(t), tensor::describe(param));
}

// Whether the step is to change nothing.
bool skipped(const AdamScalars& scalars) { return scalar_or(scalars.skip, 0.0) != 0.0; }

// Threads share the elements of all segments, in chunks of this many.
constexpr std::int64_t kChunk = 1 << 14;

// Calls body(segment, gradient row as C, offset, length) over all segments in cache-sized pieces.
template <typename C, typename F>
void over_segments(UpdateSegments segments, F body) {
  std::vector<std::pair<std::size_t, std::int64_t>> chunks;  // segment, first element
  for (std::size_t s = 0; s < segments.size(); ++s) {
    for (std::int64_t at = 0; at < segments[s].param.numel(); at += kChunk)
      chunks.push_back({s, at});
  }
  const Tensor& first = segments[0].grad;
  dispatch_float(first.scalar_type(), segments[0].param.scalar_type(), [&](auto storage, auto) {
    using G = decltype(storage);
    tensor::parallel_for(
        0, static_cast<std::int64_t>(chunks.size()), 1, [&](std::int64_t from, std::int64_t to) {
          std::vector<C> buffer;
          for (std::int64_t c = from; c < to; ++c) {
            const auto [s, begin] = chunks[static_cast<std::size_t>(c)];
            const UpdateSegment& segment = segments[s];
            const G* gradient = segment.grad.template const_data_ptr<G>();
            const std::int64_t end = std::min(begin + kChunk, segment.param.numel());
            for (std::int64_t at = begin; at < end; at += kFlatRow) {
              const std::int64_t n = std::min(kFlatRow, end - at);
              if constexpr (std::is_same_v<G, C>) {
                body(segment, gradient + at, at, n);
              } else {
                buffer.resize(kFlatRow);
                for (std::int64_t i = 0; i < n; ++i) buffer[i] = static_cast<C>(gradient[at + i]);
                body(segment, buffer.data(), at, n);
              }
            }
          }
        });
  });
}

// Of each class, in the computing type.
template <typename C>
std::array<C, kNumRateClasses> rate_values(const AdamScalars& scalars) {
  std::array<C, kNumRateClasses> values{};
  const std::array<Tensor, kNumRateClasses> rates = rates_of(scalars);
  for (std::size_t i = 0; i < rates.size(); ++i) values[i] = static_cast<C>(value_of(rates[i]));
  return values;
}

template <typename C>
void adamw_of(UpdateSegments segments, const AdamScalars& scalars, const AdamOptions& options) {
  const double step = value_of(scalars.step);
  PENTATRON_CHECK(step >= 1.0, kInternal, "adamw: the first step is 1, got {}", step);
  const AdamConstants<C> usual{
      .lr = static_cast<C>(value_of(scalars.lr)),
      .beta1 = static_cast<C>(options.beta1),
      .beta2 = static_cast<C>(options.beta2),
      .eps = static_cast<C>(options.eps),
      .weight_decay = static_cast<C>(options.weight_decay * scalar_or(scalars.weight_decay, 1.0)),
      .grad_scale = static_cast<C>(scalar_or(scalars.grad_scale, 1.0)),
      .correction1 = static_cast<C>(1.0 - std::pow(options.beta1, step)),
      .correction2 = static_cast<C>(1.0 - std::pow(options.beta2, step))};
  const auto rates = rate_values<C>(scalars);
  over_segments<C>(
      segments, [&](const UpdateSegment& s, const C* g, std::int64_t at, std::int64_t n) {
        AdamConstants<C> k = usual;
        k.lr = rates[static_cast<std::size_t>(s.rate)];
        k.eps = static_cast<C>(options.eps * s.eps_factor);
        if (!s.decays) k.weight_decay = C(0);
        adam_row(s.param.template data_ptr<C>() + at, g, s.first.template data_ptr<C>() + at,
                 s.second.template data_ptr<C>() + at, k, n);
      });
}

template <typename C>
void sgd_of(UpdateSegments segments, const AdamScalars& scalars, double momentum,
            double weight_decay) {
  const SgdConstants<C> usual{
      .lr = static_cast<C>(value_of(scalars.lr)),
      .momentum = static_cast<C>(momentum),
      .weight_decay = static_cast<C>(weight_decay * scalar_or(scalars.weight_decay, 1.0)),
      .grad_scale = static_cast<C>(scalar_or(scalars.grad_scale, 1.0))};
  const auto rates = rate_values<C>(scalars);
  over_segments<C>(segments,
                   [&](const UpdateSegment& s, const C* g, std::int64_t at, std::int64_t n) {
                     SgdConstants<C> k = usual;
                     k.lr = rates[static_cast<std::size_t>(s.rate)];
                     if (!s.decays) k.weight_decay = C(0);
                     C* m = momentum == 0.0 ? nullptr : s.first.template data_ptr<C>() + at;
                     sgd_row(s.param.template data_ptr<C>() + at, g, m, k, n);
                   });
}

bool is_fp64(const Tensor& param) {
  PENTATRON_CHECK(param.scalar_type() == DType::Float || param.scalar_type() == DType::Double,
                  kUnsupported, "optimizer steps are for fp32 and fp64 parameters, got {}",
                  tensor::describe(param));
  return param.scalar_type() == DType::Double;
}

// All of one device and of the first segment's dtypes.
void check_segments(UpdateSegments segments, bool with_first, bool with_second) {
  const UpdateSegment& model = segments[0];
  for (const UpdateSegment& s : segments) {
    check_flat(s.param, s.param, "parameter");
    check_flat(s.grad, s.param, "gradient");
    if (with_first) check_flat(s.first, s.param, "first moment");
    if (with_second) check_flat(s.second, s.param, "second moment");
    PENTATRON_CHECK(s.param.scalar_type() == model.param.scalar_type() &&
                        s.grad.scalar_type() == model.grad.scalar_type() &&
                        s.param.device() == model.param.device(),
                    kInternal, "optimizer step: segments {} with gradient {} and {} with {}",
                    tensor::describe(model.param), tensor::describe(model.grad),
                    tensor::describe(s.param), tensor::describe(s.grad));
  }
}

// Partial sums stand at fixed places: a block is 4,096 elements wherever threads cut.
template <typename T>
double blocked_squares(const Tensor& t) {
  constexpr std::int64_t kBlock = 4096;
  const std::int64_t blocks = (t.numel() + kBlock - 1) / kBlock;
  std::vector<double> partial(static_cast<std::size_t>(blocks));
  const T* data = t.const_data_ptr<T>();
  tensor::parallel_for(0, blocks, 16, [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t b = from; b < to; ++b) {
      const std::int64_t begin = b * kBlock;
      partial[b] = squares_row(data + begin, std::min(kBlock, t.numel() - begin));
    }
  });
  double total = 0.0;
  for (const double part : partial) total += part;
  return total;
}

}  // namespace

std::array<Tensor, kNumRateClasses> rates_of(const AdamScalars& scalars) {
  const auto or_usual = [&](const Tensor& rate) { return rate.defined() ? rate : scalars.lr; };
  return {scalars.lr, or_usual(scalars.decoupled_lr), or_usual(scalars.width_lr)};
}

void cpu::adamw_step(UpdateSegments segments, const AdamScalars& scalars,
                     const AdamOptions& options) {
  if (skipped(scalars)) return;
  if (is_fp64(segments[0].param)) {
    adamw_of<double>(segments, scalars, options);
  } else {
    adamw_of<float>(segments, scalars, options);
  }
}

void cpu::sgd_step(UpdateSegments segments, const AdamScalars& scalars, double momentum,
                   double weight_decay) {
  if (skipped(scalars)) return;
  if (is_fp64(segments[0].param)) {
    sgd_of<double>(segments, scalars, momentum, weight_decay);
  } else {
    sgd_of<float>(segments, scalars, momentum, weight_decay);
  }
}

void adamw_step(UpdateSegments segments, const AdamScalars& scalars, const AdamOptions& options) {
  if (segments.empty()) return;
  check_segments(segments, /*with_first=*/true, /*with_second=*/true);
  op_table(segments[0].param.device()).adamw_step(segments, scalars, options);
}

void adamw_step(Tensor param, const Tensor& grad, Tensor exp_avg, Tensor exp_avg_sq,
                const AdamScalars& scalars, const AdamOptions& options) {
  const UpdateSegment one{.param = std::move(param),
                          .grad = grad,
                          .first = std::move(exp_avg),
                          .second = std::move(exp_avg_sq)};
  adamw_step({&one, 1}, scalars, options);
}

void sgd_step(UpdateSegments segments, const AdamScalars& scalars, double momentum,
              double weight_decay) {
  if (segments.empty()) return;
  check_segments(segments, /*with_first=*/momentum != 0.0, /*with_second=*/false);
  op_table(segments[0].param.device()).sgd_step(segments, scalars, momentum, weight_decay);
}

void sgd_step(Tensor param, const Tensor& grad, Tensor momentum_buffer, const AdamScalars& scalars,
              double momentum, double weight_decay) {
  const UpdateSegment one{
      .param = std::move(param), .grad = grad, .first = std::move(momentum_buffer)};
  sgd_step({&one, 1}, scalars, momentum, weight_decay);
}

void cpu::add_squares(const Tensor& flat, const Tensor& sum) {
  *sum.data_ptr<double>() += flat.scalar_type() == DType::Double
                                 ? blocked_squares<double>(flat)
                                 : blocked_squares<float>(tensor::cast(flat, DType::Float));
}

void add_squares(const Tensor& t, const Tensor& sum) {
  PENTATRON_CHECK(
      sum.dim() == 0 && sum.scalar_type() == kAccumulationDType && sum.device() == t.device(),
      kInternal, "squares of {} cannot be added to {}", tensor::describe(t), tensor::describe(sum));
  op_table(t.device()).add_squares(t.contiguous(), sum);
}

Tensor sum_of_squares(const Tensor& t) {
  Tensor sum = tensor::scalar(0.0, kAccumulationDType, t.device());
  add_squares(t, sum);
  return sum;
}

}  // namespace pentatron::ops
