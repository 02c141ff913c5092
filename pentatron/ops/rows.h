// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// Loops over one contiguous row, in fp32 or fp64: the arithmetic of the CPU ops. Every sum runs
// over 16 fixed lanes, so that a result depends on the row's length alone, never on vector width or
// threads. In-place use (y == x) is allowed everywhere.
namespace pentatron::ops::rows {

// Bytes of the vector registers that the kernels use: 64 (AVX-512), 32 (AVX2 and fused
// multiply-add) or 16; at first what the processor has. Tests ask for less; for more: kInternal.
// Not while a kernel runs.
[[nodiscard]] int vector_bytes();
void set_vector_bytes(int bytes);

[[nodiscard]] float sum(const float* x, std::int64_t n);
[[nodiscard]] double sum(const double* x, std::int64_t n);
// sum of (x - center)^2
[[nodiscard]] float sum_squares(const float* x, float center, std::int64_t n);
[[nodiscard]] double sum_squares(const double* x, double center, std::int64_t n);
[[nodiscard]] float dot(const float* x, const float* y, std::int64_t n);
[[nodiscard]] double dot(const double* x, const double* y, std::int64_t n);
// The largest element; the lowest finite value for an empty row.
[[nodiscard]] float max(const float* x, std::int64_t n);
[[nodiscard]] double max(const double* x, std::int64_t n);

// y = exp(x - shift); returns the sum of y.
float exp_shifted(const float* x, float shift, float* y, std::int64_t n);
double exp_shifted(const double* x, double shift, double* y, std::int64_t n);
// A row of `width` scores of which the first n are visible; behind it there is room up to the next
// multiple of 16, which is overwritten. x becomes exp(x - maximum), 0 where hidden; maximum: the
// largest visible one, but at least `least`; sum: of all exponentials.
template <typename C>
struct SoftmaxRow {
  C maximum, sum;
};
SoftmaxRow<float> softmax_visible(float* x, std::int64_t n, std::int64_t width, float least);
SoftmaxRow<double> softmax_visible(double* x, std::int64_t n, std::int64_t width, double least);
// Scores p become probabilities exp(p - lse), their gradients dp become p (dp - delta); both 0
// where hidden. The same memory. delta: the sum of p dp over the whole row; null: this is the whole
// row, and it is summed here.
void softmax_visible_backward(float* p, float* dp, float lse, const float* delta, std::int64_t n,
                              std::int64_t width);
void softmax_visible_backward(double* p, double* dp, double lse, const double* delta,
                              std::int64_t n, std::int64_t width);
// sum of exp(x - shift) without storing it.
[[nodiscard]] float sum_exp_shifted(const float* x, float shift, std::int64_t n);
[[nodiscard]] double sum_exp_shifted(const double* x, double shift, std::int64_t n);

// x *= factor; x *= factors (elementwise); y += x.
void scale(float* x, float factor, std::int64_t n);
void scale(double* x, double factor, std::int64_t n);
void multiply(float* x, const float* factors, std::int64_t n);
void multiply(double* x, const double* factors, std::int64_t n);
void add(const float* x, float* y, std::int64_t n);
void add(const double* x, double* y, std::int64_t n);

// y = (x - mean) * rstd * weight (+ bias, may be null).
void normalize(const float* x, float mean, float rstd, const float* weight, const float* bias,
               float* y, std::int64_t n);
void normalize(const double* x, double mean, double rstd, const double* weight, const double* bias,
               double* y, std::int64_t n);
// With h = (x - mean) rstd and g = dy weight: the sums of g and of g h.
void norm_sums(const float* x, const float* dy, const float* weight, float mean, float rstd,
               float* sum_g, float* sum_gh, std::int64_t n);
void norm_sums(const double* x, const double* dy, const double* weight, double mean, double rstd,
               double* sum_g, double* sum_gh, std::int64_t n);
// dx = rstd (g - mean_g - h mean_gh); mean_g is 0 for RMS norm.
void norm_input_grad(const float* x, const float* dy, const float* weight, float mean, float rstd,
                     float mean_g, float mean_gh, float* dx, std::int64_t n);
void norm_input_grad(const double* x, const double* dy, const double* weight, double mean,
                     double rstd, double mean_g, double mean_gh, double* dx, std::int64_t n);
// dweight += dy h; dbias += dy (may be null).
void norm_weight_grad(const float* x, const float* dy, float mean, float rstd, float* dweight,
                      float* dbias, std::int64_t n);
void norm_weight_grad(const double* x, const double* dy, double mean, double rstd, double* dweight,
                      double* dbias, std::int64_t n);

// x = cap tanh(x / cap); with its derivative 1 - tanh^2(x / cap) in `slope`.
void softcap(float* x, float cap, std::int64_t n);
void softcap(double* x, double cap, std::int64_t n);
void softcap_with_slope(float* x, float cap, float* slope, std::int64_t n);
void softcap_with_slope(double* x, double cap, double* slope, std::int64_t n);
// y = gelu(x), tanh form; dx = dy gelu'(x).
void gelu(const float* x, float* y, std::int64_t n);
void gelu(const double* x, double* y, std::int64_t n);
void gelu_backward(const float* x, const float* dy, float* dx, std::int64_t n);
void gelu_backward(const double* x, const double* dy, double* dx, std::int64_t n);
// y = silu(gate) up, and its two gradients.
void swiglu(const float* gate, const float* up, float* y, std::int64_t n);
void swiglu(const double* gate, const double* up, double* y, std::int64_t n);
void swiglu_backward(const float* gate, const float* up, const float* dy, float* dgate, float* dup,
                     std::int64_t n);
void swiglu_backward(const double* gate, const double* up, const double* dy, double* dgate,
                     double* dup, std::int64_t n);
// (y1, y2) = (x1 cos - x2 sin * direction, x2 cos + x1 sin * direction); direction +1 or -1
// (backward).
void rotate(const float* x1, const float* x2, const float* cos, const float* sin, float direction,
            float* y1, float* y2, std::int64_t n);
void rotate(const double* x1, const double* x2, const double* cos, const double* sin,
            double direction, double* y1, double* y2, std::int64_t n);
// y = keep ? x * factor : 0 for a mask of 0 and 1.
void keep(const float* x, const std::uint8_t* mask, float factor, float* y, std::int64_t n);
void keep(const double* x, const std::uint8_t* mask, double factor, double* y, std::int64_t n);

// bf16 bits to and from wider rows; narrowing rounds to nearest even and keeps NaN.
void widen(const std::uint16_t* x, float* y, std::int64_t n);
void widen(const std::uint16_t* x, double* y, std::int64_t n);
void narrow(const float* x, std::uint16_t* y, std::int64_t n);
void narrow(const double* x, std::uint16_t* y, std::int64_t n);

}  // namespace pentatron::ops::rows
