// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/rows.h"

#include <limits>

#include "pentatron/base/error.h"
#include "pentatron/ops/lanes.h"
#include "pentatron/ops/row_math.h"
#include "pentatron/tensor/vector_set.h"

// Bodies first, as templates over the width of the vector registers, which plain loops leave to
// the vectoriser; the two functions made of each (fp32, fp64) below.

namespace pentatron::ops::rows {
namespace {

int widest() {
  switch (tensor::vector_set()) {
    case tensor::VectorSet::kAvx512:
      return 64;
    case tensor::VectorSet::kAvx2:
      return 32;
    case tensor::VectorSet::kNone:
      break;
  }
  return 16;
}

constexpr double kGeluScale = 0.79788456080286535588;  // sqrt(2 / pi)
constexpr double kGeluCubic = 0.044715;

template <int kBytes, typename C>
PENTATRON_INLINE C sum_body(const C* x, std::int64_t n) {
  return lane_sum<C>(n, [=](std::int64_t i) PENTATRON_LAMBDA { return x[i]; });
}

template <int kBytes, typename C>
PENTATRON_INLINE C sum_squares_body(const C* x, C center, std::int64_t n) {
  return lane_sum<C>(n, [=](std::int64_t i) PENTATRON_LAMBDA {
    const C d = x[i] - center;
    return d * d;
  });
}

template <int kBytes, typename C>
PENTATRON_INLINE C dot_body(const C* x, const C* y, std::int64_t n) {
  return lane_sum<C>(n, [=](std::int64_t i) PENTATRON_LAMBDA { return x[i] * y[i]; });
}

template <int kBytes, typename C>
PENTATRON_INLINE C max_body(const C* x, std::int64_t n) {
  constexpr C kLowest = std::numeric_limits<C>::lowest();
  auto lanes = all_lanes<kBytes>(kLowest);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) lanes = max_lanes(lanes, load_lanes<kBytes>(x + i));
  if (i < n) lanes = max_lanes(lanes, fill_lanes<kBytes>(x + i, n - i, kLowest));
  return largest_lane(lanes);
}

template <int kBytes, typename C>
PENTATRON_INLINE C exp_shifted_body(const C* x, C shift, C* y, std::int64_t n) {
  auto sum = all_lanes<kBytes>(C(0));
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const auto v = exp_lanes(load_lanes<kBytes>(x + i) - shift);
    store_lanes(y + i, v);
    sum = sum + v;
  }
  if (i < n) {
    const auto v = exp_lanes(fill_lanes<kBytes>(x + i, n - i, shift) - shift);
    C values[kLanes];
    store_lanes(values, v);
    for (int lane = 0; lane < n - i; ++lane) y[i + lane] = values[lane];
    sum = sum + first_lanes(n - i, v, C(0));
  }
  return add_lanes(sum);
}

template <int kBytes, typename C>
PENTATRON_INLINE C sum_exp_shifted_body(const C* x, C shift, std::int64_t n) {
  auto sum = all_lanes<kBytes>(C(0));
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    sum = sum + exp_lanes(load_lanes<kBytes>(x + i) - shift);
  }
  if (i < n) {
    const auto v = exp_lanes(fill_lanes<kBytes>(x + i, n - i, shift) - shift);
    sum = sum + first_lanes(n - i, v, C(0));
  }
  return add_lanes(sum);
}

template <int kBytes, typename C>
PENTATRON_INLINE SoftmaxRow<C> softmax_visible_body(C* x, std::int64_t n, std::int64_t width,
                                                    C least) {
  constexpr C kHidden = -std::numeric_limits<C>::infinity();
  auto largest = all_lanes<kBytes>(least);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) largest = max_lanes(largest, load_lanes<kBytes>(x + i));
  if (i < n) {
    const auto v = first_lanes(n - i, load_lanes<kBytes>(x + i), kHidden);
    store_lanes(x + i, v);
    largest = max_lanes(largest, v);
  }
  const C maximum = largest_lane(largest);
  auto sum = all_lanes<kBytes>(C(0));
  for (i = 0; i < n; i += kLanes) {
    const auto v = exp_lanes(load_lanes<kBytes>(x + i) - maximum);
    store_lanes(x + i, v);
    sum = sum + v;
  }
  for (; i < width; i += kLanes) store_lanes(x + i, all_lanes<kBytes>(C(0)));
  return {maximum, add_lanes(sum)};
}

template <int kBytes, typename C>
PENTATRON_INLINE void softmax_visible_backward_body(C* p, C* dp, C lse, const C* delta,
                                                    std::int64_t n, std::int64_t width) {
  const std::int64_t whole = n / kLanes * kLanes, end = (n + kLanes - 1) / kLanes * kLanes;
  if (whole < n) {
    constexpr C kHidden = -std::numeric_limits<C>::infinity();
    store_lanes(p + whole, first_lanes(n - whole, load_lanes<kBytes>(p + whole), kHidden));
    store_lanes(dp + whole, first_lanes(n - whole, load_lanes<kBytes>(dp + whole), C(0)));
  }
  auto sum = all_lanes<kBytes>(C(0)), weighted = sum;
  for (std::int64_t i = 0; i < end; i += kLanes) {
    const auto v = exp_lanes(load_lanes<kBytes>(p + i) - lse);
    store_lanes(p + i, v);
    sum = sum + v;
    weighted = weighted + v * load_lanes<kBytes>(dp + i);
  }
  // Divided by the sum, which is 1 but for the rounding of lse, so that the gradients of a row add
  // up to zero.
  C mean = C(0);
  if (delta != nullptr) {
    mean = *delta;
  } else if (n > 0) {
    mean = add_lanes(weighted) / add_lanes(sum);
  }
  for (std::int64_t i = 0; i < end; i += kLanes) {
    store_lanes(dp + i, load_lanes<kBytes>(p + i) * (load_lanes<kBytes>(dp + i) - mean));
  }
  for (std::int64_t i = end; i < width; i += kLanes) {
    store_lanes(p + i, all_lanes<kBytes>(C(0)));
    store_lanes(dp + i, all_lanes<kBytes>(C(0)));
  }
}

template <int kBytes, typename C>
PENTATRON_INLINE void scale_body(C* x, C factor, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) x[i] *= factor;
}

template <int kBytes, typename C>
PENTATRON_INLINE void multiply_body(C* x, const C* factors, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) x[i] *= factors[i];
}

template <int kBytes, typename C>
PENTATRON_INLINE void add_body(const C* x, C* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] += x[i];
}

template <int kBytes, typename C>
PENTATRON_INLINE void normalize_body(const C* x, C mean, C rstd, const C* weight, const C* bias,
                                     C* y, std::int64_t n) {
  if (bias == nullptr) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * rstd * weight[i];
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * rstd * weight[i] + bias[i];
}

template <int kBytes, typename C>
PENTATRON_INLINE void norm_sums_body(const C* x, const C* dy, const C* weight, C mean, C rstd,
                                     C* sum_g, C* sum_gh, std::int64_t n) {
  *sum_g = lane_sum<C>(
      n, [=](std::int64_t i) PENTATRON_LAMBDA { return PENTATRON_ROUNDED(dy[i] * weight[i]); });
  *sum_gh = lane_sum<C>(n, [=](std::int64_t i) PENTATRON_LAMBDA {
    return PENTATRON_ROUNDED(dy[i] * weight[i]) * ((x[i] - mean) * rstd);
  });
}

template <int kBytes, typename C>
PENTATRON_INLINE void norm_input_grad_body(const C* x, const C* dy, const C* weight, C mean, C rstd,
                                           C mean_g, C mean_gh, C* dx, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    dx[i] = rstd * (PENTATRON_ROUNDED(dy[i] * weight[i]) - mean_g - (x[i] - mean) * rstd * mean_gh);
  }
}

template <int kBytes, typename C>
PENTATRON_INLINE void norm_weight_grad_body(const C* x, const C* dy, C mean, C rstd, C* dweight,
                                            C* dbias, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) dweight[i] += dy[i] * ((x[i] - mean) * rstd);
  if (dbias == nullptr) return;
  for (std::int64_t i = 0; i < n; ++i) dbias[i] += dy[i];
}

// 0.5 (1 + tanh(u)) = sigmoid(2 u), which has no cancellation for negative u; with its derivative.
// V: a number or a vector of C.
template <typename C, typename V>
PENTATRON_INLINE V gelu_gate(V v) {
  const V u = v * (C(-2 * kGeluScale) - C(2 * kGeluScale * kGeluCubic) * v * v);
  return C(1) / (C(1) + exp_part<C, V>(u));
}
template <typename C, typename V>
PENTATRON_INLINE V gelu_slope(V v) {
  const V s = gelu_gate<C>(v);
  return s + v * s * (C(1) - s) * (C(2 * kGeluScale) + C(6 * kGeluScale * kGeluCubic) * v * v);
}

// In fp32 by a power series where 1 - 2 / (exp(2x) + 1) cancels: its first missing term is 2e-9 at
// the border.
template <typename C>
PENTATRON_INLINE C tanh_of(C x) {
  if constexpr (sizeof(C) == sizeof(double)) {
    return std::tanh(x);
  } else {
    constexpr C kThird = C(1) / C(3), kFifth = C(2) / C(15);
    constexpr C kSeventh = C(17) / C(315), kNinth = C(62) / C(2835);
    const C s = x * x;
    const C series = x - x * s * (kThird - s * (kFifth - s * (kSeventh - s * kNinth)));
    const C whole = C(1) - C(2) / (exp_of(x + x) + C(1));
    return s < C(0.0625) ? series : whole;
  }
}

template <int kBytes, typename C>
PENTATRON_INLINE void softcap_body(C* x, C cap, std::int64_t n) {
  const C inverse = C(1) / cap;
  for (std::int64_t i = 0; i < n; ++i) x[i] = cap * tanh_of(x[i] * inverse);
}

template <int kBytes, typename C>
PENTATRON_INLINE void softcap_with_slope_body(C* x, C cap, C* slope, std::int64_t n) {
  const C inverse = C(1) / cap;
  for (std::int64_t i = 0; i < n; ++i) {
    const C t = tanh_of(x[i] * inverse);
    x[i] = cap * t;
    slope[i] = C(1) - t * t;
  }
}

template <int kBytes, typename C>
PENTATRON_INLINE void gelu_body(const C* x, C* y, std::int64_t n) {
  const auto f = [](auto v) PENTATRON_LAMBDA { return v * gelu_gate<C>(v); };
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store_lanes(y + i, map(load_lanes<kBytes>(x + i), f));
  for (; i < n; ++i) y[i] = f(x[i]);
}

template <int kBytes, typename C>
PENTATRON_INLINE void gelu_backward_body(const C* x, const C* dy, C* dx, std::int64_t n) {
  const auto f = [](auto v, auto d) PENTATRON_LAMBDA { return d * gelu_slope<C>(v); };
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    store_lanes(dx + i, zip(load_lanes<kBytes>(x + i), load_lanes<kBytes>(dy + i), f));
  }
  for (; i < n; ++i) dx[i] = f(x[i], dy[i]);
}

template <int kBytes, typename C>
PENTATRON_INLINE void swiglu_body(const C* gate, const C* up, C* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = gate[i] * sigmoid_of(gate[i]) * up[i];
}

template <int kBytes, typename C>
PENTATRON_INLINE void swiglu_backward_body(const C* gate, const C* up, const C* dy, C* dgate,
                                           C* dup, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const C g = gate[i], u = up[i], d = dy[i];
    const C s = sigmoid_of(g);
    dgate[i] = d * u * (s * (C(1) + g * (C(1) - s)));
    dup[i] = d * (g * s);
  }
}

template <int kBytes, typename C>
PENTATRON_INLINE void rotate_body(const C* x1, const C* x2, const C* cos, const C* sin, C direction,
                                  C* y1, C* y2, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const C a = x1[i], b = x2[i], c = cos[i], s = sin[i] * direction;
    y1[i] = a * c - b * s;
    y2[i] = b * c + a * s;
  }
}

template <int kBytes, typename C>
PENTATRON_INLINE void keep_body(const C* x, const std::uint8_t* mask, C factor, C* y,
                                std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = mask[i] != 0 ? x[i] * factor : C(0);
}

template <int kBytes, typename C>
PENTATRON_INLINE void widen_body(const std::uint16_t* x, C* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    y[i] = C(__builtin_bit_cast(float, static_cast<std::uint32_t>(x[i]) << 16));
  }
}

template <int kBytes, typename C>
PENTATRON_INLINE void narrow_body(const C* x, std::uint16_t* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const auto bits = __builtin_bit_cast(std::uint32_t, static_cast<float>(x[i]));
    const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    y[i] = static_cast<std::uint16_t>(is_nan ? 0x7fc0u : rounded);
  }
}

}  // namespace

int chosen_vector_bytes = widest();
int vector_bytes() { return chosen_vector_bytes; }
void set_vector_bytes(int bytes) {
  PENTATRON_CHECK((bytes == 16 || bytes == 32 || bytes == 64) && bytes <= widest(), kInternal,
                  "rows: vector registers of {} bytes, this processor or build has {}", bytes,
                  widest());
  chosen_vector_bytes = bytes;
}

PENTATRON_ROW_FUNCTION(float, sum, (const float* x, std::int64_t n), (x, n))
PENTATRON_ROW_FUNCTION(double, sum, (const double* x, std::int64_t n), (x, n))

PENTATRON_ROW_FUNCTION(float, sum_squares, (const float* x, float center, std::int64_t n),
                       (x, center, n))
PENTATRON_ROW_FUNCTION(double, sum_squares, (const double* x, double center, std::int64_t n),
                       (x, center, n))

PENTATRON_ROW_FUNCTION(float, dot, (const float* x, const float* y, std::int64_t n), (x, y, n))
PENTATRON_ROW_FUNCTION(double, dot, (const double* x, const double* y, std::int64_t n), (x, y, n))

PENTATRON_ROW_FUNCTION(float, max, (const float* x, std::int64_t n), (x, n))
PENTATRON_ROW_FUNCTION(double, max, (const double* x, std::int64_t n), (x, n))

PENTATRON_ROW_FUNCTION(float, exp_shifted, (const float* x, float shift, float* y, std::int64_t n),
                       (x, shift, y, n))
PENTATRON_ROW_FUNCTION(double, exp_shifted,
                       (const double* x, double shift, double* y, std::int64_t n), (x, shift, y, n))

PENTATRON_ROW_FUNCTION(SoftmaxRow<float>, softmax_visible,
                       (float* x, std::int64_t n, std::int64_t width, float least),
                       (x, n, width, least))
PENTATRON_ROW_FUNCTION(SoftmaxRow<double>, softmax_visible,
                       (double* x, std::int64_t n, std::int64_t width, double least),
                       (x, n, width, least))

PENTATRON_ROW_FUNCTION(void, softmax_visible_backward,
                       (float* p, float* dp, float lse, const float* delta, std::int64_t n,
                        std::int64_t width),
                       (p, dp, lse, delta, n, width))
PENTATRON_ROW_FUNCTION(void, softmax_visible_backward,
                       (double* p, double* dp, double lse, const double* delta, std::int64_t n,
                        std::int64_t width),
                       (p, dp, lse, delta, n, width))

PENTATRON_ROW_FUNCTION(float, sum_exp_shifted, (const float* x, float shift, std::int64_t n),
                       (x, shift, n))
PENTATRON_ROW_FUNCTION(double, sum_exp_shifted, (const double* x, double shift, std::int64_t n),
                       (x, shift, n))

PENTATRON_ROW_FUNCTION(void, scale, (float* x, float factor, std::int64_t n), (x, factor, n))
PENTATRON_ROW_FUNCTION(void, scale, (double* x, double factor, std::int64_t n), (x, factor, n))

PENTATRON_ROW_FUNCTION(void, multiply, (float* x, const float* factors, std::int64_t n),
                       (x, factors, n))
PENTATRON_ROW_FUNCTION(void, multiply, (double* x, const double* factors, std::int64_t n),
                       (x, factors, n))

PENTATRON_ROW_FUNCTION(void, add, (const float* x, float* y, std::int64_t n), (x, y, n))
PENTATRON_ROW_FUNCTION(void, add, (const double* x, double* y, std::int64_t n), (x, y, n))

PENTATRON_ROW_FUNCTION(void, normalize,
                       (const float* x, float mean, float rstd, const float* weight,
                        const float* bias, float* y, std::int64_t n),
                       (x, mean, rstd, weight, bias, y, n))
PENTATRON_ROW_FUNCTION(void, normalize,
                       (const double* x, double mean, double rstd, const double* weight,
                        const double* bias, double* y, std::int64_t n),
                       (x, mean, rstd, weight, bias, y, n))

PENTATRON_ROW_FUNCTION(void, norm_sums,
                       (const float* x, const float* dy, const float* weight, float mean,
                        float rstd, float* sum_g, float* sum_gh, std::int64_t n),
                       (x, dy, weight, mean, rstd, sum_g, sum_gh, n))
PENTATRON_ROW_FUNCTION(void, norm_sums,
                       (const double* x, const double* dy, const double* weight, double mean,
                        double rstd, double* sum_g, double* sum_gh, std::int64_t n),
                       (x, dy, weight, mean, rstd, sum_g, sum_gh, n))

PENTATRON_ROW_FUNCTION(void, norm_input_grad,
                       (const float* x, const float* dy, const float* weight, float mean,
                        float rstd, float mean_g, float mean_gh, float* dx, std::int64_t n),
                       (x, dy, weight, mean, rstd, mean_g, mean_gh, dx, n))
PENTATRON_ROW_FUNCTION(void, norm_input_grad,
                       (const double* x, const double* dy, const double* weight, double mean,
                        double rstd, double mean_g, double mean_gh, double* dx, std::int64_t n),
                       (x, dy, weight, mean, rstd, mean_g, mean_gh, dx, n))

PENTATRON_ROW_FUNCTION(void, norm_weight_grad,
                       (const float* x, const float* dy, float mean, float rstd, float* dweight,
                        float* dbias, std::int64_t n),
                       (x, dy, mean, rstd, dweight, dbias, n))
PENTATRON_ROW_FUNCTION(void, norm_weight_grad,
                       (const double* x, const double* dy, double mean, double rstd,
                        double* dweight, double* dbias, std::int64_t n),
                       (x, dy, mean, rstd, dweight, dbias, n))

PENTATRON_ROW_FUNCTION(void, softcap, (float* x, float cap, std::int64_t n), (x, cap, n))
PENTATRON_ROW_FUNCTION(void, softcap, (double* x, double cap, std::int64_t n), (x, cap, n))
PENTATRON_ROW_FUNCTION(void, softcap_with_slope,
                       (float* x, float cap, float* slope, std::int64_t n), (x, cap, slope, n))
PENTATRON_ROW_FUNCTION(void, softcap_with_slope,
                       (double* x, double cap, double* slope, std::int64_t n), (x, cap, slope, n))

PENTATRON_ROW_FUNCTION(void, gelu, (const float* x, float* y, std::int64_t n), (x, y, n))
PENTATRON_ROW_FUNCTION(void, gelu, (const double* x, double* y, std::int64_t n), (x, y, n))

PENTATRON_ROW_FUNCTION(void, gelu_backward,
                       (const float* x, const float* dy, float* dx, std::int64_t n), (x, dy, dx, n))
PENTATRON_ROW_FUNCTION(void, gelu_backward,
                       (const double* x, const double* dy, double* dx, std::int64_t n),
                       (x, dy, dx, n))

PENTATRON_ROW_FUNCTION(void, swiglu, (const float* gate, const float* up, float* y, std::int64_t n),
                       (gate, up, y, n))
PENTATRON_ROW_FUNCTION(void, swiglu,
                       (const double* gate, const double* up, double* y, std::int64_t n),
                       (gate, up, y, n))

PENTATRON_ROW_FUNCTION(void, swiglu_backward,
                       (const float* gate, const float* up, const float* dy, float* dgate,
                        float* dup, std::int64_t n),
                       (gate, up, dy, dgate, dup, n))
PENTATRON_ROW_FUNCTION(void, swiglu_backward,
                       (const double* gate, const double* up, const double* dy, double* dgate,
                        double* dup, std::int64_t n),
                       (gate, up, dy, dgate, dup, n))

PENTATRON_ROW_FUNCTION(void, rotate,
                       (const float* x1, const float* x2, const float* cos, const float* sin,
                        float direction, float* y1, float* y2, std::int64_t n),
                       (x1, x2, cos, sin, direction, y1, y2, n))
PENTATRON_ROW_FUNCTION(void, rotate,
                       (const double* x1, const double* x2, const double* cos, const double* sin,
                        double direction, double* y1, double* y2, std::int64_t n),
                       (x1, x2, cos, sin, direction, y1, y2, n))

PENTATRON_ROW_FUNCTION(void, keep,
                       (const float* x, const std::uint8_t* mask, float factor, float* y,
                        std::int64_t n),
                       (x, mask, factor, y, n))
PENTATRON_ROW_FUNCTION(void, keep,
                       (const double* x, const std::uint8_t* mask, double factor, double* y,
                        std::int64_t n),
                       (x, mask, factor, y, n))

PENTATRON_ROW_FUNCTION(void, widen, (const std::uint16_t* x, float* y, std::int64_t n), (x, y, n))
PENTATRON_ROW_FUNCTION(void, widen, (const std::uint16_t* x, double* y, std::int64_t n), (x, y, n))

PENTATRON_ROW_FUNCTION(void, narrow, (const float* x, std::uint16_t* y, std::int64_t n), (x, y, n))
PENTATRON_ROW_FUNCTION(void, narrow, (const double* x, std::uint16_t* y, std::int64_t n), (x, y, n))

}  // namespace pentatron::ops::rows
