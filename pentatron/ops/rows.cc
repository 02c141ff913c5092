// SPDX-License-Identifier: Apache-2.0
#include "pentatron/ops/rows.h"

#include <limits>

#include "pentatron/ops/row_math.h"

// Bodies first, as templates; the two compiled faces of each (fp32, fp64) below.
#define PENTATRON_LAMBDA __attribute__((always_inline))

namespace pentatron::ops::rows {
namespace {

constexpr double kGeluScale = 0.79788456080286535588;  // sqrt(2 / pi)
constexpr double kGeluCubic = 0.044715;

// x[0 .. n) and then `filler`, as one vector.
template <typename C>
PENTATRON_INLINE void fill_lanes(const C* x, int n, C filler, C* lanes) {
  for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = lane < n ? x[lane] : filler;
}

// The lanes of x that are among the first n of the row, `other` in the rest.
template <typename C>
PENTATRON_INLINE Lanes<C> first_lanes(std::int64_t n, const Lanes<C>& x, C other) {
  const int count = static_cast<int>(n < kLanes ? n : kLanes);
  return each_lane<C>(
      x, [=](C value, int lane) PENTATRON_LAMBDA { return lane < count ? value : other; });
}

// The larger ones; a NaN of y counts for nothing.
template <typename C>
PENTATRON_INLINE Lanes<C> max_lanes(const Lanes<C>& x, const Lanes<C>& y) {
  C others[kLanes];
  store_lanes(others, y);
  return each_lane<C>(x, [&](C value, int lane) PENTATRON_LAMBDA {
    return others[lane] > value ? others[lane] : value;
  });
}

template <typename C>
PENTATRON_INLINE C sum_body(const C* x, std::int64_t n) {
  return lane_sum<C>(n, [=](std::int64_t i) PENTATRON_LAMBDA { return x[i]; });
}

template <typename C>
PENTATRON_INLINE C sum_squares_body(const C* x, C center, std::int64_t n) {
  return lane_sum<C>(n, [=](std::int64_t i) PENTATRON_LAMBDA {
    const C d = x[i] - center;
    return d * d;
  });
}

template <typename C>
PENTATRON_INLINE C dot_body(const C* x, const C* y, std::int64_t n) {
  return lane_sum<C>(n, [=](std::int64_t i) PENTATRON_LAMBDA { return x[i] * y[i]; });
}

template <typename C>
PENTATRON_INLINE C max_body(const C* x, std::int64_t n) {
  constexpr C kLowest = std::numeric_limits<C>::lowest();
  Lanes<C> lanes = Lanes<C>{} + kLowest;
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    lanes = max_lanes<C>(lanes, load_lanes(x + i));
  }
  C values[kLanes];
  fill_lanes(x + i, static_cast<int>(n - i), kLowest, values);
  lanes = max_lanes<C>(lanes, load_lanes(values));
  return fold_lanes<C>(lanes, [](C a, C b) PENTATRON_LAMBDA { return b > a ? b : a; });
}

template <typename C>
PENTATRON_INLINE C exp_shifted_body(const C* x, C shift, C* y, std::int64_t n) {
  Lanes<C> sum = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Lanes<C> v = exp_any<C>(load_lanes(x + i) - shift);
    store_lanes(y + i, v);
    sum += v;
  }
  if (i < n) {
    const int rest = static_cast<int>(n - i);
    C values[kLanes];
    fill_lanes(x + i, rest, shift, values);
    store_lanes(values, exp_any<C>(load_lanes(values) - shift));
    for (int lane = 0; lane < kLanes; ++lane) {
      if (lane < rest) y[i + lane] = values[lane];
    }
    for (int lane = 0; lane < kLanes; ++lane) values[lane] = lane < rest ? values[lane] : C(0);
    sum += load_lanes(values);
  }
  return add_lanes<C>(sum);
}

template <typename C>
PENTATRON_INLINE SoftmaxRow<C> softmax_visible_body(C* x, std::int64_t n, std::int64_t width,
                                                    C least) {
  constexpr C kHidden = -std::numeric_limits<C>::infinity();
  Lanes<C> largest = Lanes<C>{} + least;
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    largest = max_lanes<C>(largest, load_lanes(x + i));
  }
  if (i < n) {
    const Lanes<C> v = first_lanes<C>(n - i, load_lanes(x + i), kHidden);
    store_lanes(x + i, v);
    largest = max_lanes<C>(largest, v);
  }
  const C maximum = fold_lanes<C>(largest, [](C a, C b) PENTATRON_LAMBDA { return b > a ? b : a; });
  Lanes<C> sum = {};
  for (i = 0; i < n; i += kLanes) {
    const Lanes<C> v = exp_any<C>(load_lanes(x + i) - maximum);
    store_lanes(x + i, v);
    sum += v;
  }
  for (; i < width; i += kLanes) store_lanes(x + i, Lanes<C>{});
  return {maximum, add_lanes<C>(sum)};
}

template <typename C>
PENTATRON_INLINE void softmax_visible_backward_body(C* p, C* dp, C lse, const C* delta,
                                                    std::int64_t n, std::int64_t width) {
  const std::int64_t whole = n / kLanes * kLanes, end = (n + kLanes - 1) / kLanes * kLanes;
  if (whole < n) {
    constexpr C kHidden = -std::numeric_limits<C>::infinity();
    store_lanes<C>(p + whole, first_lanes<C>(n - whole, load_lanes(p + whole), kHidden));
    store_lanes<C>(dp + whole, first_lanes<C>(n - whole, load_lanes(dp + whole), C(0)));
  }
  Lanes<C> sum = {}, weighted = {};
  for (std::int64_t i = 0; i < end; i += kLanes) {
    const Lanes<C> v = exp_any<C>(load_lanes(p + i) - lse);
    store_lanes<C>(p + i, v);
    sum += v;
    weighted += v * load_lanes(dp + i);
  }
  // Divided by the sum, which is 1 but for the rounding of lse, so that the gradients of a row add
  // up to zero.
  C mean = C(0);
  if (delta != nullptr) {
    mean = *delta;
  } else if (n > 0) {
    mean = add_lanes<C>(weighted) / add_lanes<C>(sum);
  }
  for (std::int64_t i = 0; i < end; i += kLanes) {
    store_lanes<C>(dp + i, load_lanes(p + i) * (load_lanes(dp + i) - mean));
  }
  for (std::int64_t i = end; i < width; i += kLanes) {
    store_lanes(p + i, Lanes<C>{});
    store_lanes(dp + i, Lanes<C>{});
  }
}

template <typename C>
PENTATRON_INLINE C sum_exp_shifted_body(const C* x, C shift, std::int64_t n) {
  return lane_sum<C>(n, [=](std::int64_t i) PENTATRON_LAMBDA { return exp_of(x[i] - shift); });
}

template <typename C>
PENTATRON_INLINE void scale_body(C* x, C factor, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) x[i] *= factor;
}

template <typename C>
PENTATRON_INLINE void multiply_body(C* x, const C* factors, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) x[i] *= factors[i];
}

template <typename C>
PENTATRON_INLINE void add_body(const C* x, C* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] += x[i];
}

template <typename C>
PENTATRON_INLINE void normalize_body(const C* x, C mean, C rstd, const C* weight, const C* bias,
                                     C* y, std::int64_t n) {
  if (bias == nullptr) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * rstd * weight[i];
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * rstd * weight[i] + bias[i];
}

template <typename C>
PENTATRON_INLINE void norm_sums_body(const C* x, const C* dy, const C* weight, C mean, C rstd,
                                     C* sum_g, C* sum_gh, std::int64_t n) {
  *sum_g = lane_sum<C>(
      n, [=](std::int64_t i) PENTATRON_LAMBDA { return PENTATRON_ROUNDED(dy[i] * weight[i]); });
  *sum_gh = lane_sum<C>(n, [=](std::int64_t i) PENTATRON_LAMBDA {
    return PENTATRON_ROUNDED(dy[i] * weight[i]) * ((x[i] - mean) * rstd);
  });
}

template <typename C>
PENTATRON_INLINE void norm_input_grad_body(const C* x, const C* dy, const C* weight, C mean, C rstd,
                                           C mean_g, C mean_gh, C* dx, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    dx[i] = rstd * (PENTATRON_ROUNDED(dy[i] * weight[i]) - mean_g - (x[i] - mean) * rstd * mean_gh);
  }
}

template <typename C>
PENTATRON_INLINE void norm_weight_grad_body(const C* x, const C* dy, C mean, C rstd, C* dweight,
                                            C* dbias, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) dweight[i] += dy[i] * ((x[i] - mean) * rstd);
  if (dbias == nullptr) return;
  for (std::int64_t i = 0; i < n; ++i) dbias[i] += dy[i];
}

// 0.5 (1 + tanh(u)) = sigmoid(2 u), which has no cancellation for negative u; with its derivative.
// V: a number or a vector of C, `exp` its exponential.
template <typename C, typename V, typename E>
PENTATRON_INLINE V gelu_gate(const V& v, E exp) {
  return C(1) / (C(1) + exp(v * (C(-2 * kGeluScale) - C(2 * kGeluScale * kGeluCubic) * v * v)));
}
template <typename C, typename V, typename E>
PENTATRON_INLINE V gelu_slope(const V& v, E exp) {
  const V s = gelu_gate<C>(v, exp);
  return s + v * s * (C(1) - s) * (C(2 * kGeluScale) + C(6 * kGeluScale * kGeluCubic) * v * v);
}

template <typename C>
PENTATRON_INLINE void gelu_body(const C* x, C* y, std::int64_t n) {
  const auto exp = [](const auto& v) PENTATRON_LAMBDA { return exp_any<C>(v); };
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Lanes<C> v = load_lanes(x + i);
    store_lanes<C>(y + i, v * gelu_gate<C>(v, exp));
  }
  for (; i < n; ++i) y[i] = x[i] * gelu_gate<C>(x[i], exp);
}

template <typename C>
PENTATRON_INLINE void gelu_backward_body(const C* x, const C* dy, C* dx, std::int64_t n) {
  const auto exp = [](const auto& v) PENTATRON_LAMBDA { return exp_any<C>(v); };
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    store_lanes<C>(dx + i, load_lanes(dy + i) * gelu_slope<C>(load_lanes(x + i), exp));
  }
  for (; i < n; ++i) dx[i] = dy[i] * gelu_slope<C>(x[i], exp);
}

template <typename C>
PENTATRON_INLINE void swiglu_body(const C* gate, const C* up, C* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = gate[i] * sigmoid_of(gate[i]) * up[i];
}

template <typename C>
PENTATRON_INLINE void swiglu_backward_body(const C* gate, const C* up, const C* dy, C* dgate,
                                           C* dup, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const C g = gate[i], u = up[i], d = dy[i];
    const C s = sigmoid_of(g);
    dgate[i] = d * u * (s * (C(1) + g * (C(1) - s)));
    dup[i] = d * (g * s);
  }
}

template <typename C>
PENTATRON_INLINE void rotate_body(const C* x1, const C* x2, const C* cos, const C* sin, C direction,
                                  C* y1, C* y2, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const C a = x1[i], b = x2[i], c = cos[i], s = sin[i] * direction;
    y1[i] = a * c - b * s;
    y2[i] = b * c + a * s;
  }
}

template <typename C>
PENTATRON_INLINE void keep_body(const C* x, const std::uint8_t* mask, C factor, C* y,
                                std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = mask[i] != 0 ? x[i] * factor : C(0);
}

template <typename C>
PENTATRON_INLINE void widen_body(const std::uint16_t* x, C* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    y[i] = C(__builtin_bit_cast(float, static_cast<std::uint32_t>(x[i]) << 16));
  }
}

template <typename C>
PENTATRON_INLINE void narrow_body(const C* x, std::uint16_t* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const auto bits = __builtin_bit_cast(std::uint32_t, static_cast<float>(x[i]));
    const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    y[i] = static_cast<std::uint16_t>(is_nan ? 0x7fc0u : rounded);
  }
}

}  // namespace

PENTATRON_FUSED_CLONES float sum(const float* x, std::int64_t n) { return sum_body(x, n); }
PENTATRON_FUSED_CLONES double sum(const double* x, std::int64_t n) { return sum_body(x, n); }

PENTATRON_FUSED_CLONES float sum_squares(const float* x, float center, std::int64_t n) {
  return sum_squares_body(x, center, n);
}
PENTATRON_FUSED_CLONES double sum_squares(const double* x, double center, std::int64_t n) {
  return sum_squares_body(x, center, n);
}

PENTATRON_FUSED_CLONES float dot(const float* x, const float* y, std::int64_t n) {
  return dot_body(x, y, n);
}
PENTATRON_FUSED_CLONES double dot(const double* x, const double* y, std::int64_t n) {
  return dot_body(x, y, n);
}

PENTATRON_FUSED_CLONES float max(const float* x, std::int64_t n) { return max_body(x, n); }
PENTATRON_FUSED_CLONES double max(const double* x, std::int64_t n) { return max_body(x, n); }

PENTATRON_FUSED_CLONES float exp_shifted(const float* x, float shift, float* y, std::int64_t n) {
  return exp_shifted_body(x, shift, y, n);
}
PENTATRON_FUSED_CLONES double exp_shifted(const double* x, double shift, double* y,
                                          std::int64_t n) {
  return exp_shifted_body(x, shift, y, n);
}

PENTATRON_FUSED_CLONES SoftmaxRow<float> softmax_visible(float* x, std::int64_t n,
                                                         std::int64_t width, float least) {
  return softmax_visible_body(x, n, width, least);
}
PENTATRON_FUSED_CLONES SoftmaxRow<double> softmax_visible(double* x, std::int64_t n,
                                                          std::int64_t width, double least) {
  return softmax_visible_body(x, n, width, least);
}

PENTATRON_FUSED_CLONES void softmax_visible_backward(float* p, float* dp, float lse,
                                                     const float* delta, std::int64_t n,
                                                     std::int64_t width) {
  softmax_visible_backward_body(p, dp, lse, delta, n, width);
}
PENTATRON_FUSED_CLONES void softmax_visible_backward(double* p, double* dp, double lse,
                                                     const double* delta, std::int64_t n,
                                                     std::int64_t width) {
  softmax_visible_backward_body(p, dp, lse, delta, n, width);
}

PENTATRON_FUSED_CLONES float sum_exp_shifted(const float* x, float shift, std::int64_t n) {
  return sum_exp_shifted_body(x, shift, n);
}
PENTATRON_FUSED_CLONES double sum_exp_shifted(const double* x, double shift, std::int64_t n) {
  return sum_exp_shifted_body(x, shift, n);
}

PENTATRON_FUSED_CLONES void scale(float* x, float factor, std::int64_t n) {
  scale_body(x, factor, n);
}
PENTATRON_FUSED_CLONES void scale(double* x, double factor, std::int64_t n) {
  scale_body(x, factor, n);
}

PENTATRON_FUSED_CLONES void multiply(float* x, const float* factors, std::int64_t n) {
  multiply_body(x, factors, n);
}
PENTATRON_FUSED_CLONES void multiply(double* x, const double* factors, std::int64_t n) {
  multiply_body(x, factors, n);
}

PENTATRON_FUSED_CLONES void add(const float* x, float* y, std::int64_t n) { add_body(x, y, n); }
PENTATRON_FUSED_CLONES void add(const double* x, double* y, std::int64_t n) { add_body(x, y, n); }

PENTATRON_FUSED_CLONES void normalize(const float* x, float mean, float rstd, const float* weight,
                                      const float* bias, float* y, std::int64_t n) {
  normalize_body(x, mean, rstd, weight, bias, y, n);
}
PENTATRON_FUSED_CLONES void normalize(const double* x, double mean, double rstd,
                                      const double* weight, const double* bias, double* y,
                                      std::int64_t n) {
  normalize_body(x, mean, rstd, weight, bias, y, n);
}

PENTATRON_FUSED_CLONES void norm_sums(const float* x, const float* dy, const float* weight,
                                      float mean, float rstd, float* sum_g, float* sum_gh,
                                      std::int64_t n) {
  norm_sums_body(x, dy, weight, mean, rstd, sum_g, sum_gh, n);
}
PENTATRON_FUSED_CLONES void norm_sums(const double* x, const double* dy, const double* weight,
                                      double mean, double rstd, double* sum_g, double* sum_gh,
                                      std::int64_t n) {
  norm_sums_body(x, dy, weight, mean, rstd, sum_g, sum_gh, n);
}

PENTATRON_FUSED_CLONES void norm_input_grad(const float* x, const float* dy, const float* weight,
                                            float mean, float rstd, float mean_g, float mean_gh,
                                            float* dx, std::int64_t n) {
  norm_input_grad_body(x, dy, weight, mean, rstd, mean_g, mean_gh, dx, n);
}
PENTATRON_FUSED_CLONES void norm_input_grad(const double* x, const double* dy, const double* weight,
                                            double mean, double rstd, double mean_g, double mean_gh,
                                            double* dx, std::int64_t n) {
  norm_input_grad_body(x, dy, weight, mean, rstd, mean_g, mean_gh, dx, n);
}

PENTATRON_FUSED_CLONES void norm_weight_grad(const float* x, const float* dy, float mean,
                                             float rstd, float* dweight, float* dbias,
                                             std::int64_t n) {
  norm_weight_grad_body(x, dy, mean, rstd, dweight, dbias, n);
}
PENTATRON_FUSED_CLONES void norm_weight_grad(const double* x, const double* dy, double mean,
                                             double rstd, double* dweight, double* dbias,
                                             std::int64_t n) {
  norm_weight_grad_body(x, dy, mean, rstd, dweight, dbias, n);
}

PENTATRON_FUSED_CLONES void gelu(const float* x, float* y, std::int64_t n) { gelu_body(x, y, n); }
PENTATRON_FUSED_CLONES void gelu(const double* x, double* y, std::int64_t n) { gelu_body(x, y, n); }

PENTATRON_FUSED_CLONES void gelu_backward(const float* x, const float* dy, float* dx,
                                          std::int64_t n) {
  gelu_backward_body(x, dy, dx, n);
}
PENTATRON_FUSED_CLONES void gelu_backward(const double* x, const double* dy, double* dx,
                                          std::int64_t n) {
  gelu_backward_body(x, dy, dx, n);
}

PENTATRON_FUSED_CLONES void swiglu(const float* gate, const float* up, float* y, std::int64_t n) {
  swiglu_body(gate, up, y, n);
}
PENTATRON_FUSED_CLONES void swiglu(const double* gate, const double* up, double* y,
                                   std::int64_t n) {
  swiglu_body(gate, up, y, n);
}

PENTATRON_FUSED_CLONES void swiglu_backward(const float* gate, const float* up, const float* dy,
                                            float* dgate, float* dup, std::int64_t n) {
  swiglu_backward_body(gate, up, dy, dgate, dup, n);
}
PENTATRON_FUSED_CLONES void swiglu_backward(const double* gate, const double* up, const double* dy,
                                            double* dgate, double* dup, std::int64_t n) {
  swiglu_backward_body(gate, up, dy, dgate, dup, n);
}

PENTATRON_FUSED_CLONES void rotate(const float* x1, const float* x2, const float* cos,
                                   const float* sin, float direction, float* y1, float* y2,
                                   std::int64_t n) {
  rotate_body(x1, x2, cos, sin, direction, y1, y2, n);
}
PENTATRON_FUSED_CLONES void rotate(const double* x1, const double* x2, const double* cos,
                                   const double* sin, double direction, double* y1, double* y2,
                                   std::int64_t n) {
  rotate_body(x1, x2, cos, sin, direction, y1, y2, n);
}

PENTATRON_FUSED_CLONES void keep(const float* x, const std::uint8_t* mask, float factor, float* y,
                                 std::int64_t n) {
  keep_body(x, mask, factor, y, n);
}
PENTATRON_FUSED_CLONES void keep(const double* x, const std::uint8_t* mask, double factor,
                                 double* y, std::int64_t n) {
  keep_body(x, mask, factor, y, n);
}

PENTATRON_FUSED_CLONES void widen(const std::uint16_t* x, float* y, std::int64_t n) {
  widen_body(x, y, n);
}
PENTATRON_FUSED_CLONES void widen(const std::uint16_t* x, double* y, std::int64_t n) {
  widen_body(x, y, n);
}

PENTATRON_FUSED_CLONES void narrow(const float* x, std::uint16_t* y, std::int64_t n) {
  narrow_body(x, y, n);
}
PENTATRON_FUSED_CLONES void narrow(const double* x, std::uint16_t* y, std::int64_t n) {
  narrow_body(x, y, n);
}

}  // namespace pentatron::ops::rows
