// SPDX-License-Identifier: Apache-2.0
#include "pentatron/kernels/activation.h"

#include "pentatron/kernels/common.cuh"

namespace pentatron::kernels {
namespace {

constexpr int kThreads = 256;
constexpr double kGeluScale = 0.79788456080286535588;  // sqrt(2 / pi)
constexpr double kGeluCubic = 0.044715;

// 0.5 (1 + tanh(u)) = sigmoid(2 u), which has no cancellation for negative u.
template <bool kFast, typename C>
__device__ __forceinline__ C gelu_of(C x) {
  const C twice_u = C(2 * kGeluScale) * (x + C(kGeluCubic) * x * x * x);
  return x * sigmoid_of<kFast>(twice_u);
}
template <bool kFast, typename C>
__device__ __forceinline__ C gelu_slope(C x) {
  const C twice_u = C(2 * kGeluScale) * (x + C(kGeluCubic) * x * x * x);
  const C slope = C(2 * kGeluScale) * (C(1) + C(3 * kGeluCubic) * x * x);
  const C s = sigmoid_of<kFast>(twice_u);
  return s + x * s * (C(1) - s) * slope;
}

// dy null: y = gelu(x); else y = dy gelu'(x). V elements a thread and step; the last ones one by
// one.
template <typename T, int V, bool kBackward>
__global__ void gelu_kernel(const T* __restrict__ x, const T* __restrict__ dy, T* __restrict__ y,
                            std::int64_t count) {
  using C = ComputeOf<T>;
  constexpr bool kFast = sizeof(T) == 2;
  const auto value = [](T in, T grad) {
    if constexpr (kBackward) {
      return narrow<T>(widen<C>(grad) * gelu_slope<kFast>(widen<C>(in)));
    } else {
      return narrow<T>(gelu_of<kFast>(widen<C>(in)));
    }
  };
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t whole = count / V * V;
  for (std::int64_t at = thread * V; at < whole; at += threads * V) {
    const Vec<T, V> in = load<V>(x + at);
    Vec<T, V> grad = in, out;
    if constexpr (kBackward) grad = load<V>(dy + at);
#pragma unroll
    for (int i = 0; i < V; ++i) out.v[i] = value(in.v[i], grad.v[i]);
    store<V>(y + at, out);
  }
  for (std::int64_t at = whole + thread; at < count; at += threads) {
    y[at] = value(x[at], kBackward ? dy[at] : x[at]);
  }
}

template <bool kBackward>
cudaError_t gelu(Type type, const void* x, const void* dy, void* y, std::int64_t count,
                 cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  return dispatch(type, [&](auto tag) {
    using T = decltype(tag);
    const auto *in = static_cast<const T*>(x), *grad = static_cast<const T*>(dy);
    auto* out = static_cast<T*>(y);
    constexpr int V = kVector<T>;
    if (aligned16(in, grad, out)) {
      gelu_kernel<T, V, kBackward>
          <<<grid_for((count + V - 1) / V, kThreads), kThreads, 0, stream>>>(in, grad, out, count);
    } else {
      gelu_kernel<T, 1, kBackward>
          <<<grid_for(count, kThreads), kThreads, 0, stream>>>(in, grad, out, count);
    }
    return cudaGetLastError();
  });
}

// One thread V columns of a row; rows along blockIdx.y.
template <typename T, int V>
__global__ void swiglu_kernel(const T* __restrict__ x, T* __restrict__ y, std::int64_t rows,
                              std::int64_t columns) {
  using C = ComputeOf<T>;
  constexpr bool kFast = sizeof(T) == 2;
  const std::int64_t column =
      (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * V;
  if (column >= columns) return;
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const T* gate_place = x + row * 2 * columns + column;
    const Vec<T, V> gate = load<V>(gate_place), up = load<V>(gate_place + columns);
    Vec<T, V> out;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const C g = widen<C>(gate.v[i]);
      out.v[i] = narrow<T>(g * sigmoid_of<kFast>(g) * widen<C>(up.v[i]));
    }
    store<V>(y + row * columns + column, out);
  }
}

template <typename T, int V>
__global__ void swiglu_backward_kernel(const T* __restrict__ x, const T* __restrict__ dy,
                                       T* __restrict__ dx, std::int64_t rows,
                                       std::int64_t columns) {
  using C = ComputeOf<T>;
  constexpr bool kFast = sizeof(T) == 2;
  const std::int64_t column =
      (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * V;
  if (column >= columns) return;
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const std::int64_t place = row * 2 * columns + column;
    const Vec<T, V> gate = load<V>(x + place), up = load<V>(x + place + columns);
    const Vec<T, V> grad = load<V>(dy + row * columns + column);
    Vec<T, V> dgate, dup;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const C g = widen<C>(gate.v[i]), u = widen<C>(up.v[i]), d = widen<C>(grad.v[i]);
      const C s = sigmoid_of<kFast>(g);
      dgate.v[i] = narrow<T>(d * u * (s * (C(1) + g * (C(1) - s))));
      dup.v[i] = narrow<T>(d * (g * s));
    }
    store<V>(dx + place, dgate);
    store<V>(dx + place + columns, dup);
  }
}

dim3 row_grid(std::int64_t rows, std::int64_t columns, int vector) {
  const std::int64_t per_block = std::int64_t{kThreads} * vector;
  return {static_cast<unsigned>((columns + per_block - 1) / per_block),
          static_cast<unsigned>(std::min<std::int64_t>(rows, 32768))};
}

}  // namespace

cudaError_t gelu_forward(Type type, const void* x, void* y, std::int64_t count,
                         cudaStream_t stream) {
  return gelu<false>(type, x, nullptr, y, count, stream);
}

cudaError_t gelu_backward(Type type, const void* x, const void* dy, void* dx, std::int64_t count,
                          cudaStream_t stream) {
  return gelu<true>(type, x, dy, dx, count, stream);
}

cudaError_t swiglu_forward(Type type, const void* x, void* y, std::int64_t rows,
                           std::int64_t columns, cudaStream_t stream) {
  if (rows == 0 || columns == 0) return cudaSuccess;
  return dispatch(type, [&](auto tag) {
    using T = decltype(tag);
    const auto* in = static_cast<const T*>(x);
    auto* out = static_cast<T*>(y);
    constexpr int V = kVector<T>;
    if (columns % V == 0 && aligned16(in, out)) {
      swiglu_kernel<T, V>
          <<<row_grid(rows, columns, V), kThreads, 0, stream>>>(in, out, rows, columns);
    } else {
      swiglu_kernel<T, 1>
          <<<row_grid(rows, columns, 1), kThreads, 0, stream>>>(in, out, rows, columns);
    }
    return cudaGetLastError();
  });
}

cudaError_t swiglu_backward(Type type, const void* x, const void* dy, void* dx, std::int64_t rows,
                            std::int64_t columns, cudaStream_t stream) {
  if (rows == 0 || columns == 0) return cudaSuccess;
  return dispatch(type, [&](auto tag) {
    using T = decltype(tag);
    const auto *in = static_cast<const T*>(x), *grad = static_cast<const T*>(dy);
    auto* out = static_cast<T*>(dx);
    constexpr int V = kVector<T>;
    if (columns % V == 0 && aligned16(in, grad, out)) {
      swiglu_backward_kernel<T, V>
          <<<row_grid(rows, columns, V), kThreads, 0, stream>>>(in, grad, out, rows, columns);
    } else {
      swiglu_backward_kernel<T, 1>
          <<<row_grid(rows, columns, 1), kThreads, 0, stream>>>(in, grad, out, rows, columns);
    }
    return cudaGetLastError();
  });
}

}  // namespace pentatron::kernels
