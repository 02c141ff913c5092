// SPDX-License-Identifier: Apache-2.0
#include "pentatron/kernels/activation.h"

#include <limits>
#include <type_traits>

#include "pentatron/kernels/fp8.h"
#include "pentatron/kernels/largest.cuh"
#include "pentatron/kernels/reduce.cuh"

namespace pentatron::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kAhead = 2;  // vectors of a thread, whose loads are under way together
constexpr double kGeluScale = 0.79788456080286535588;  // sqrt(2 / pi)
constexpr double kGeluCubic = 0.044715;

constexpr double kInvSqrt2 = 0.70710678118654752440;
constexpr double kInvSqrt2Pi = 0.39894228040143267794;
constexpr double kQuickGelu = 1.702;

// One activation: value and slope at x. kFast: results are rounded to 16 bits.
// 0.5 (1 + tanh(u)) = sigmoid(2 u), which has no cancellation for negative u.
struct GeluTanh {
  template <bool kFast, typename C>
  static __device__ __forceinline__ C value(C x) {
    const C twice_u = C(2 * kGeluScale) * (x + C(kGeluCubic) * x * x * x);
    return x * sigmoid_of<kFast>(twice_u);
  }
  template <bool kFast, typename C>
  static __device__ __forceinline__ C slope(C x) {
    const C twice_u = C(2 * kGeluScale) * (x + C(kGeluCubic) * x * x * x);
    const C inner = C(2 * kGeluScale) * (C(1) + C(3 * kGeluCubic) * x * x);
    const C s = sigmoid_of<kFast>(twice_u);
    return s + x * s * (C(1) - s) * inner;
  }
};
// Phi(-|x|) of the normal distribution by the rational approximation 7.1.26 of M. Abramowitz,
// I. Stegun, "Handbook of Mathematical Functions" (1964), absolute error below 8e-8; `bell` is
// exp(-x x / 2).
__device__ __forceinline__ float normal_tail(float x, float bell) {
  const float t = __fdividef(1.0f, 1.0f + 0.3275911f * static_cast<float>(kInvSqrt2) * fabsf(x));
  const float series =
      t * (0.254829592f +
           t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
  return 0.5f * series * bell;
}
struct GeluErf {
  template <bool kFast, typename C>
  static __device__ __forceinline__ C value(C x) {
    if constexpr (kFast && std::is_same_v<C, float>) {
      const float tail = normal_tail(x, __expf(-0.5f * x * x));
      return x * (x > 0.0f ? 1.0f - tail : tail);
    } else {
      return C(0.5) * x * (C(1) + erf(x * C(kInvSqrt2)));
    }
  }
  template <bool kFast, typename C>
  static __device__ __forceinline__ C slope(C x) {
    if constexpr (kFast && std::is_same_v<C, float>) {
      const float bell = __expf(-0.5f * x * x), tail = normal_tail(x, bell);
      return (x > 0.0f ? 1.0f - tail : tail) + x * static_cast<float>(kInvSqrt2Pi) * bell;
    } else {
      return C(0.5) * (C(1) + erf(x * C(kInvSqrt2))) +
             x * C(kInvSqrt2Pi) * exp_of<kFast>(C(-0.5) * x * x);
    }
  }
};
struct SquaredRelu {
  template <bool kFast, typename C>
  static __device__ __forceinline__ C value(C x) {
    const C positive = x > C(0) ? x : C(0);
    return positive * positive;
  }
  template <bool kFast, typename C>
  static __device__ __forceinline__ C slope(C x) {
    return x > C(0) ? C(2) * x : C(0);
  }
};

// y = f(x), or y = dy f'(x) backward. A block has one tile; the last one goes element by element.
template <typename F, typename T, int V, bool kBackward>
__global__ void activation_kernel(const T* __restrict__ x, const T* __restrict__ dy,
                                  T* __restrict__ y, std::int64_t count) {
  using C = ComputeOf<T>;
  constexpr bool kFast = sizeof(T) == 2;
  const auto value = [](T in, T grad) {
    if constexpr (kBackward) {
      return narrow<T>(widen<C>(grad) * F::template slope<kFast>(widen<C>(in)));
    } else {
      return narrow<T>(F::template value<kFast>(widen<C>(in)));
    }
  };
  const std::int64_t tile = std::int64_t{blockIdx.x} * kAhead * kThreads * V;
  if (tile + kAhead * kThreads * V > count) {  // the last
    for (std::int64_t at = tile + threadIdx.x; at < count; at += kThreads) {
      y[at] = value(x[at], kBackward ? dy[at] : x[at]);
    }
    return;
  }
  const std::int64_t first = tile + threadIdx.x * V;
  Vec<T, V> in[kAhead], grad[kAhead];
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    in[k] = load<V>(x + first + k * kThreads * V);
    grad[k] = kBackward ? load<V>(dy + first + k * kThreads * V) : in[k];
  }
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    Vec<T, V> out;
#pragma unroll
    for (int i = 0; i < V; ++i) out.v[i] = value(in[k].v[i], grad[k].v[i]);
    store<V>(y + first + k * kThreads * V, out);
  }
}

unsigned tiles(std::int64_t count, int vector) {
  const std::int64_t tile = std::int64_t{kThreads} * kAhead * vector;
  return static_cast<unsigned>((count + tile - 1) / tile);
}

template <typename F, bool kBackward>
cudaError_t activate(Type type, const void* x, const void* dy, void* y, std::int64_t count,
                     cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  return dispatch(type, [&](auto tag) {
    using T = decltype(tag);
    const auto *in = static_cast<const T*>(x), *grad = static_cast<const T*>(dy);
    auto* out = static_cast<T*>(y);
    constexpr int V = kVector<T>;
    if (aligned16(in, grad, out)) {
      activation_kernel<F, T, V, kBackward>
          <<<tiles(count, V), kThreads, 0, stream>>>(in, grad, out, count);
    } else {
      activation_kernel<F, T, 1, kBackward>
          <<<tiles(count, 1), kThreads, 0, stream>>>(in, grad, out, count);
    }
    return cudaGetLastError();
  });
}

template <bool kBackward>
cudaError_t activate(Activation kind, Type type, const void* x, const void* dy, void* y,
                     std::int64_t count, cudaStream_t stream) {
  switch (kind) {
    case Activation::kGeluTanh:
      return activate<GeluTanh, kBackward>(type, x, dy, y, count, stream);
    case Activation::kGeluErf:
      return activate<GeluErf, kBackward>(type, x, dy, y, count, stream);
    case Activation::kSquaredRelu:
      return activate<SquaredRelu, kBackward>(type, x, dy, y, count, stream);
  }
  return cudaErrorInvalidValue;
}

// A product that no sum takes part in, so that its rounding is that of a product that is stored.
__device__ __forceinline__ float lone_product(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double lone_product(double a, double b) { return __dmul_rn(a, b); }

// As column_sum_kernel goes over dx (reduce.cuh), which is made here.
template <typename F, typename T, int V>
__global__ void activation_bias_backward_kernel(const T* __restrict__ x, const T* __restrict__ dy,
                                                T* __restrict__ dx, std::int64_t rows,
                                                std::int64_t columns, std::int64_t chunk,
                                                ComputeOf<T>* __restrict__ partials) {
  using C = ComputeOf<T>;
  constexpr bool kFast = sizeof(T) == 2;
  __shared__ C sums[kTileRows][kTileLanes * V];
  const int lane = static_cast<int>(threadIdx.x), group = static_cast<int>(threadIdx.y);
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * kTileLanes + lane) * V;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.y) * chunk;
  const std::int64_t end = begin + chunk < rows ? begin + chunk : rows;
  C sum[V] = {};
  if (column < columns) {
#pragma unroll 2
    for (std::int64_t r = begin + group; r < end; r += kTileRows) {
      const std::int64_t at = r * columns + column;
      const Vec<T, V> in = load<V>(x + at), grad = load<V>(dy + at);
      Vec<T, V> out;
#pragma unroll
      for (int i = 0; i < V; ++i) {
        out.v[i] = narrow<T>(
            lone_product(widen<C>(grad.v[i]), F::template slope<kFast>(widen<C>(in.v[i]))));
        sum[i] += widen<C>(out.v[i]);
      }
      store<V>(dx + at, out);
    }
  }
  write_partials<C, V>(sums, sum, column, columns, partials);
}

template <typename F>
cudaError_t activate_bias_backward(Type type, const void* x, const void* dy, void* dx,
                                   void* partials, std::int64_t rows, std::int64_t columns,
                                   cudaStream_t stream) {
  return dispatch(type, [&](auto tag) {
    using T = decltype(tag);
    const auto *in = static_cast<const T*>(x), *grad = static_cast<const T*>(dy);
    auto* out = static_cast<T*>(dx);
    auto* parts = static_cast<ComputeOf<T>*>(partials);
    const dim3 block(kTileLanes, kTileRows);
    const std::int64_t chunk = rows_per_chunk(rows);
    constexpr int V = kVector<T>;
    if (columns % V == 0 && aligned16(in, grad, out)) {
      activation_bias_backward_kernel<F, T, V>
          <<<column_sum_grid(rows, columns, V), block, 0, stream>>>(in, grad, out, rows, columns,
                                                                    chunk, parts);
    } else {
      activation_bias_backward_kernel<F, T, 1>
          <<<column_sum_grid(rows, columns, 1), block, 0, stream>>>(in, grad, out, rows, columns,
                                                                    chunk, parts);
    }
    return cudaGetLastError();
  });
}

// What a gate does to a pair, in the computing type; a clamp of 0 is infinite here. All are f(g) =
// g sigmoid(z(g)) with z = sharpness (g + cubic g^3). Plain SwiGLU has kernels without the general
// form's comparisons.
template <typename C, bool kPlain>
struct GateOf {
  C sharpness, cubic, offset, clamp;

  template <bool kFast>
  __device__ __forceinline__ C value(C gate, C up) const {
    if constexpr (kPlain) return gate * sigmoid_of<kFast>(gate) * up;
    const C g = gate > clamp ? clamp : gate;
    return g * sigmoid_of<kFast>(argument(g)) * (cut(up) + offset);
  }
  // Derivatives by gate and up, times d.
  template <bool kFast>
  __device__ __forceinline__ void slopes(C gate, C up, C d, C& dgate, C& dup) const {
    if constexpr (kPlain) {
      const C s = sigmoid_of<kFast>(gate);
      dgate = d * up * (s * (C(1) + gate * (C(1) - s)));
      dup = d * (gate * s);
      return;
    }
    const C g = gate > clamp ? clamp : gate;
    const C s = sigmoid_of<kFast>(argument(g));
    const C bend = argument_slope(g) * g * (C(1) - s);
    dgate = gate > clamp ? C(0) : d * (cut(up) + offset) * s * (C(1) + bend);
    dup = up > clamp || up < -clamp ? C(0) : d * (g * s);
  }

 private:
  __device__ __forceinline__ C argument(C g) const {
    return sharpness * g * (C(1) + cubic * g * g);
  }
  __device__ __forceinline__ C argument_slope(C g) const {
    return sharpness * (C(1) + C(3) * cubic * g * g);
  }
  __device__ __forceinline__ C cut(C up) const {
    return up > clamp ? clamp : (up < -clamp ? -clamp : up);
  }
};

template <typename C, bool kPlain>
GateOf<C, kPlain> gate_of(const Gate& gate) {
  const bool gelu = gate.kind == GateKind::kGeluTanh;
  const double sharpness = gate.kind == GateKind::kQuickGelu ? kQuickGelu : 1.0;
  return {static_cast<C>(gelu ? 2 * kGeluScale : sharpness),
          static_cast<C>(gelu ? kGeluCubic : 0.0), static_cast<C>(gate.offset),
          gate.clamp > 0.0 ? static_cast<C>(gate.clamp) : std::numeric_limits<C>::infinity()};
}

// One thread V columns of a row; rows along blockIdx.y: body(row, column, most). With kSeeks
// *largest is raised to `most`.
template <int V, bool kSeeks, typename F>
__device__ __forceinline__ void each_row(std::int64_t rows, std::int64_t columns, unsigned* largest,
                                         F body) {
  const std::int64_t column =
      (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * V;
  // A warp stays together where it seeks.
  if (!kSeeks && column >= columns) return;
  unsigned most = 0;
  for (std::int64_t row = blockIdx.y; row < rows && column < columns; row += gridDim.y) {
    body(row, column, most);
  }
  if constexpr (kSeeks) raise_largest(most, largest);
}

template <typename T, int V, bool kPlain, bool kSeeks>
__global__ void gated_kernel(GateOf<ComputeOf<T>, kPlain> gated, const T* __restrict__ x,
                             T* __restrict__ y, std::int64_t rows, std::int64_t columns,
                             unsigned* __restrict__ largest) {
  using C = ComputeOf<T>;
  constexpr bool kFast = sizeof(T) == 2;
  each_row<V, kSeeks>(
      rows, columns, largest, [&](std::int64_t row, std::int64_t column, unsigned& most) {
        const T* gate_place = x + row * 2 * columns + column;
        const Vec<T, V> gate = load<V>(gate_place), up = load<V>(gate_place + columns);
        Vec<T, V> out;
#pragma unroll
        for (int i = 0; i < V; ++i) {
          out.v[i] = narrow<T>(gated.template value<kFast>(widen<C>(gate.v[i]), widen<C>(up.v[i])));
          if constexpr (kSeeks) most = max(most, magnitude_bits(widen<float>(out.v[i])));
        }
        store<V>(y + row * columns + column, out);
      });
}

template <typename T, int V, bool kPlain, bool kSeeks>
__global__ void gated_backward_kernel(GateOf<ComputeOf<T>, kPlain> gated, const T* __restrict__ x,
                                      const T* __restrict__ dy, T* __restrict__ dx,
                                      std::int64_t rows, std::int64_t columns,
                                      unsigned* __restrict__ largest) {
  using C = ComputeOf<T>;
  constexpr bool kFast = sizeof(T) == 2;
  each_row<V, kSeeks>(
      rows, columns, largest, [&](std::int64_t row, std::int64_t column, unsigned& most) {
        const std::int64_t place = row * 2 * columns + column;
        const Vec<T, V> gate = load<V>(x + place), up = load<V>(x + place + columns);
        const Vec<T, V> grad = load<V>(dy + row * columns + column);
        Vec<T, V> dgate, dup;
#pragma unroll
        for (int i = 0; i < V; ++i) {
          C by_gate, by_up;
          gated.template slopes<kFast>(widen<C>(gate.v[i]), widen<C>(up.v[i]), widen<C>(grad.v[i]),
                                       by_gate, by_up);
          dgate.v[i] = narrow<T>(by_gate);
          dup.v[i] = narrow<T>(by_up);
          if constexpr (kSeeks) {
            most = max(most, max(magnitude_bits(widen<float>(dgate.v[i])),
                                 magnitude_bits(widen<float>(dup.v[i]))));
          }
        }
        store<V>(dx + place, dgate);
        store<V>(dx + place + columns, dup);
      });
}

dim3 row_grid(std::int64_t rows, std::int64_t columns, int vector) {
  const std::int64_t per_block = std::int64_t{kThreads} * vector;
  return {static_cast<unsigned>((columns + per_block - 1) / per_block),
          static_cast<unsigned>(std::min<std::int64_t>(rows, 32768))};
}

// Launches run(vectors, seeks) with constants and sees to *largest, of `count` values at y, where
// the kernel does not.
template <typename T, typename F>
cudaError_t run_gated(bool in_vectors, Type type, const void* y, std::int64_t count, float* largest,
                      cudaStream_t stream, F run) {
  constexpr int V = kVector<T>;
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    if (in_vectors && largest != nullptr) {
      const cudaError_t status = cudaMemsetAsync(largest, 0, sizeof(*largest), stream);
      if (status != cudaSuccess) return status;
      run(std::integral_constant<int, V>{}, std::true_type{});
      return cudaGetLastError();
    }
  }
  if (in_vectors) {
    run(std::integral_constant<int, V>{}, std::false_type{});
  } else {
    run(std::integral_constant<int, 1>{}, std::false_type{});
  }
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess || largest == nullptr) return status;
  return launch_largest_magnitude(y, type, count, nullptr, largest, stream);
}

template <bool kPlain>
cudaError_t launch_gated(const Gate& gate, Type type, const void* x, void* y, std::int64_t rows,
                         std::int64_t columns, float* largest, cudaStream_t stream) {
  return dispatch(type, [&](auto tag) {
    using T = decltype(tag);
    const auto gated = gate_of<ComputeOf<T>, kPlain>(gate);
    const auto* in = static_cast<const T*>(x);
    auto* out = static_cast<T*>(y);
    auto* bits = reinterpret_cast<unsigned*>(largest);
    return run_gated<T>(columns % kVector<T> == 0 && aligned16(in, out), type, y, rows * columns,
                        largest, stream, [&](auto vector, auto seeks) {
                          constexpr int V = decltype(vector)::value;
                          gated_kernel<T, V, kPlain, decltype(seeks)::value>
                              <<<row_grid(rows, columns, V), kThreads, 0, stream>>>(
                                  gated, in, out, rows, columns, bits);
                        });
  });
}

template <bool kPlain>
cudaError_t launch_gated_backward(const Gate& gate, Type type, const void* x, const void* dy,
                                  void* dx, std::int64_t rows, std::int64_t columns, float* largest,
                                  cudaStream_t stream) {
  return dispatch(type, [&](auto tag) {
    using T = decltype(tag);
    const auto gated = gate_of<ComputeOf<T>, kPlain>(gate);
    const auto *in = static_cast<const T*>(x), *grad = static_cast<const T*>(dy);
    auto* out = static_cast<T*>(dx);
    auto* bits = reinterpret_cast<unsigned*>(largest);
    return run_gated<T>(columns % kVector<T> == 0 && aligned16(in, grad, out), type, dx,
                        2 * rows * columns, largest, stream, [&](auto vector, auto seeks) {
                          constexpr int V = decltype(vector)::value;
                          gated_backward_kernel<T, V, kPlain, decltype(seeks)::value>
                              <<<row_grid(rows, columns, V), kThreads, 0, stream>>>(
                                  gated, in, grad, out, rows, columns, bits);
                        });
  });
}

}  // namespace

cudaError_t activation_forward(Activation kind, Type type, const void* x, void* y,
                               std::int64_t count, cudaStream_t stream) {
  return activate<false>(kind, type, x, nullptr, y, count, stream);
}

cudaError_t activation_backward(Activation kind, Type type, const void* x, const void* dy, void* dx,
                                std::int64_t count, cudaStream_t stream) {
  return activate<true>(kind, type, x, dy, dx, count, stream);
}

cudaError_t activation_bias_backward(Activation kind, Type type, const void* x, const void* dy,
                                     void* dx, void* partials, std::int64_t rows,
                                     std::int64_t columns, cudaStream_t stream) {
  if (rows == 0 || columns == 0) return cudaSuccess;
  const auto run = [&](auto form) {
    return activate_bias_backward<decltype(form)>(type, x, dy, dx, partials, rows, columns, stream);
  };
  switch (kind) {
    case Activation::kGeluTanh:
      return run(GeluTanh{});
    case Activation::kGeluErf:
      return run(GeluErf{});
    case Activation::kSquaredRelu:
      return run(SquaredRelu{});
  }
  return cudaErrorInvalidValue;
}

cudaError_t gated_forward(const Gate& gate, Type type, const void* x, void* y, std::int64_t rows,
                          std::int64_t columns, float* largest, cudaStream_t stream) {
  if (rows == 0 || columns == 0) return cudaSuccess;
  return is_plain_swiglu(gate)
             ? launch_gated<true>(gate, type, x, y, rows, columns, largest, stream)
             : launch_gated<false>(gate, type, x, y, rows, columns, largest, stream);
}

cudaError_t gated_backward(const Gate& gate, Type type, const void* x, const void* dy, void* dx,
                           std::int64_t rows, std::int64_t columns, float* largest,
                           cudaStream_t stream) {
  if (rows == 0 || columns == 0) return cudaSuccess;
  return is_plain_swiglu(gate)
             ? launch_gated_backward<true>(gate, type, x, dy, dx, rows, columns, largest, stream)
             : launch_gated_backward<false>(gate, type, x, dy, dx, rows, columns, largest, stream);
}

}  // namespace pentatron::kernels
