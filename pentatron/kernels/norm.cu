// SPDX-License-Identifier: Apache-2.0
#include "pentatron/kernels/norm.h"

#include "pentatron/kernels/reduce.cuh"

// Rows of up to kMaxThreads * kPerThread elements are held in registers, so that x and dy are read
// once; longer or unaligned rows take the plain kernels, which read them again from the cache.
namespace pentatron::kernels {
namespace {

constexpr int kPerThread = 16;
constexpr int kMaxThreads = 512;

// A product that is rounded before it meets a sum: where all of a row's g are equal, g - mean(g) is
// then exactly zero.
__device__ __forceinline__ float rounded_product(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double rounded_product(double a, double b) { return __dmul_rn(a, b); }

template <typename T, typename W, int V, int N>
__global__ void __launch_bounds__(kMaxThreads)
    norm_forward_kernel(const T* __restrict__ x, const W* __restrict__ weight,
                        const W* __restrict__ bias, std::int64_t columns, ComputeOf<T> eps,
                        T* __restrict__ y, ComputeOf<T>* __restrict__ mean_t,
                        ComputeOf<T>* __restrict__ rstd_t) {
  using C = ComputeOf<T>;
  __shared__ C scratch[32];
  const std::int64_t row = blockIdx.x;
  x += row * columns;
  y += row * columns;
  const auto place = [&](int k) {
    return (static_cast<std::int64_t>(k) * blockDim.x + threadIdx.x) * V;
  };
  C value[N][V];
  C sum = 0;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    if (place(k) >= columns) continue;
    const Vec<T, V> in = load<V>(x + place(k));
#pragma unroll
    for (int i = 0; i < V; ++i) {
      value[k][i] = widen<C>(in.v[i]);
      sum += value[k][i];
    }
  }
  const C mean = mean_t != nullptr ? block_sum(sum, scratch) / C(columns) : C(0);
  C squares = 0;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    if (place(k) >= columns) continue;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const C d = value[k][i] - mean;
      squares += d * d;
    }
  }
  const C rstd = C(1) / sqrt(block_sum(squares, scratch) / C(columns) + eps);
#pragma unroll
  for (int k = 0; k < N; ++k) {
    if (place(k) >= columns) continue;
    const Vec<W, V> w = load<V>(weight + place(k));
    Vec<W, V> b{};
    if (bias != nullptr) b = load<V>(bias + place(k));
    Vec<T, V> out;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      C result = (value[k][i] - mean) * rstd * widen<C>(w.v[i]);
      if (bias != nullptr) result += widen<C>(b.v[i]);
      out.v[i] = narrow<T>(result);
    }
    store<V>(y + place(k), out);
  }
  if (threadIdx.x == 0) {
    if (mean_t != nullptr) mean_t[row] = mean;
    rstd_t[row] = rstd;
  }
}

template <typename T, typename W>
__global__ void plain_forward_kernel(const T* __restrict__ x, const W* __restrict__ weight,
                                     const W* __restrict__ bias, std::int64_t columns,
                                     ComputeOf<T> eps, T* __restrict__ y,
                                     ComputeOf<T>* __restrict__ mean_t,
                                     ComputeOf<T>* __restrict__ rstd_t) {
  using C = ComputeOf<T>;
  __shared__ C scratch[32];
  const std::int64_t row = blockIdx.x;
  x += row * columns;
  y += row * columns;
  C mean = 0;
  if (mean_t != nullptr) {
    C sum = 0;
    for (std::int64_t c = threadIdx.x; c < columns; c += blockDim.x) sum += widen<C>(x[c]);
    mean = block_sum(sum, scratch) / C(columns);
  }
  C squares = 0;
  for (std::int64_t c = threadIdx.x; c < columns; c += blockDim.x) {
    const C d = widen<C>(x[c]) - mean;
    squares += d * d;
  }
  const C rstd = C(1) / sqrt(block_sum(squares, scratch) / C(columns) + eps);
  for (std::int64_t c = threadIdx.x; c < columns; c += blockDim.x) {
    C result = (widen<C>(x[c]) - mean) * rstd * widen<C>(weight[c]);
    if (bias != nullptr) result += widen<C>(bias[c]);
    y[c] = narrow<T>(result);
  }
  if (threadIdx.x == 0) {
    if (mean_t != nullptr) mean_t[row] = mean;
    rstd_t[row] = rstd;
  }
}

// With h = (x - mean) rstd and g = dy weight: dx = rstd (g - mean(g) - h mean(g h)), the first mean
// for layer norm only. A block takes every gridDim.x-th row and keeps its share of the weight
// gradients in registers.
template <typename T, typename W, int V, int N>
__global__ void __launch_bounds__(kMaxThreads)
    norm_backward_kernel(const T* __restrict__ x, const T* __restrict__ dy,
                         const W* __restrict__ weight, const ComputeOf<T>* __restrict__ mean_t,
                         const ComputeOf<T>* __restrict__ rstd_t, std::int64_t rows,
                         std::int64_t columns, T* __restrict__ dx,
                         ComputeOf<T>* __restrict__ dweight_ph,
                         ComputeOf<T>* __restrict__ dbias_ph) {
  using C = ComputeOf<T>;
  __shared__ C scratch[32];
  const auto place = [&](int k) {
    return (static_cast<std::int64_t>(k) * blockDim.x + threadIdx.x) * V;
  };
  C dweight[N][V] = {}, dbias[N][V] = {};
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const C mean = mean_t != nullptr ? mean_t[row] : C(0), rstd = rstd_t[row];
    const std::int64_t begin = row * columns;
    C h[N][V], g[N][V];
    C sum_g = 0, sum_gh = 0;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      if (place(k) >= columns) continue;
      const Vec<T, V> in = load<V>(x + begin + place(k)), grad = load<V>(dy + begin + place(k));
      const Vec<W, V> w = load<V>(weight + place(k));
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const C d = widen<C>(grad.v[i]);
        h[k][i] = (widen<C>(in.v[i]) - mean) * rstd;
        g[k][i] = rounded_product(d, widen<C>(w.v[i]));
        sum_g += g[k][i];
        sum_gh += g[k][i] * h[k][i];
        dweight[k][i] += d * h[k][i];
        dbias[k][i] += d;
      }
    }
    if (dx == nullptr) continue;
    const C mean_g = mean_t != nullptr ? block_sum(sum_g, scratch) / C(columns) : C(0);
    const C mean_gh = block_sum(sum_gh, scratch) / C(columns);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      if (place(k) >= columns) continue;
      Vec<T, V> out;
#pragma unroll
      for (int i = 0; i < V; ++i) {
        out.v[i] = narrow<T>(rstd * (g[k][i] - mean_g - h[k][i] * mean_gh));
      }
      store<V>(dx + begin + place(k), out);
    }
  }
  if (dweight_ph == nullptr) return;
  const std::int64_t partial = static_cast<std::int64_t>(blockIdx.x) * columns;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    if (place(k) >= columns) continue;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      dweight_ph[partial + place(k) + i] = dweight[k][i];
      if (dbias_ph != nullptr) dbias_ph[partial + place(k) + i] = dbias[k][i];
    }
  }
}

template <typename T, typename W>
__global__ void plain_backward_kernel(const T* __restrict__ x, const T* __restrict__ dy,
                                      const W* __restrict__ weight,
                                      const ComputeOf<T>* __restrict__ mean_t,
                                      const ComputeOf<T>* __restrict__ rstd_t, std::int64_t columns,
                                      T* __restrict__ dx) {
  using C = ComputeOf<T>;
  __shared__ C scratch[32];
  const std::int64_t row = blockIdx.x;
  const C mean = mean_t != nullptr ? mean_t[row] : C(0), rstd = rstd_t[row];
  x += row * columns;
  dy += row * columns;
  dx += row * columns;
  C sum_g = 0, sum_gh = 0;
  for (std::int64_t c = threadIdx.x; c < columns; c += blockDim.x) {
    const C g = rounded_product(widen<C>(dy[c]), widen<C>(weight[c]));
    sum_g += g;
    sum_gh += g * ((widen<C>(x[c]) - mean) * rstd);
  }
  const C mean_g = mean_t != nullptr ? block_sum(sum_g, scratch) / C(columns) : C(0);
  const C mean_gh = block_sum(sum_gh, scratch) / C(columns);
  for (std::int64_t c = threadIdx.x; c < columns; c += blockDim.x) {
    const C g = rounded_product(widen<C>(dy[c]), widen<C>(weight[c]));
    dx[c] = narrow<T>(rstd * (g - mean_g - (widen<C>(x[c]) - mean) * rstd * mean_gh));
  }
}

// One thread a column: partial p sums rows p, p + gridDim.y, ...
template <typename T>
__global__ void plain_weight_grad_kernel(const T* __restrict__ x, const T* __restrict__ dy,
                                         const ComputeOf<T>* __restrict__ mean_t,
                                         const ComputeOf<T>* __restrict__ rstd_t, std::int64_t rows,
                                         std::int64_t columns,
                                         ComputeOf<T>* __restrict__ dweight_ph,
                                         ComputeOf<T>* __restrict__ dbias_ph) {
  using C = ComputeOf<T>;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  C dweight = 0, dbias = 0;
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const C d = widen<C>(dy[row * columns + column]);
    const C mean = mean_t != nullptr ? mean_t[row] : C(0);
    dweight += d * ((widen<C>(x[row * columns + column]) - mean) * rstd_t[row]);
    dbias += d;
  }
  const std::int64_t place = static_cast<std::int64_t>(blockIdx.y) * columns + column;
  dweight_ph[place] = dweight;
  if (dbias_ph != nullptr) dbias_ph[place] = dbias;
}

// Threads whose registers hold a row, 0 if the plain kernels must do.
template <typename T, typename... P>
int threads_in_registers(std::int64_t columns, const P*... pointers) {
  constexpr int V = kVector<T>;
  if (columns % V != 0 || columns > std::int64_t{kMaxThreads} * kPerThread ||
      !aligned16(pointers...)) {
    return 0;
  }
  return threads_for_row((columns + kPerThread - 1) / kPerThread, kMaxThreads);
}

template <typename T, typename W>
cudaError_t forward_of(const NormArguments& in, const void* bias, double eps, void* y, void* mean,
                       void* rstd, cudaStream_t stream) {
  using C = ComputeOf<T>;
  constexpr int V = kVector<T>;
  const auto* x = static_cast<const T*>(in.x);
  const auto* weight = static_cast<const W*>(in.weight);
  const auto* shift = static_cast<const W*>(bias);
  auto* out = static_cast<T*>(y);
  auto *means = static_cast<C*>(mean), *rstds = static_cast<C*>(rstd);
  const auto blocks = static_cast<unsigned>(in.rows);
  const int threads = threads_in_registers<T>(in.columns, x, out, weight, shift);
  if (threads > 0) {
    norm_forward_kernel<T, W, V, kPerThread / V><<<blocks, threads, 0, stream>>>(
        x, weight, shift, in.columns, static_cast<C>(eps), out, means, rstds);
  } else {
    plain_forward_kernel<T, W><<<blocks, threads_for_row(in.columns, 1024), 0, stream>>>(
        x, weight, shift, in.columns, static_cast<C>(eps), out, means, rstds);
  }
  return cudaGetLastError();
}

struct BackwardPointers {
  const void *dy, *mean, *rstd;
  void *dx, *dweight_ph, *dbias_ph;
};

template <typename T, typename W>
cudaError_t backward_of(const NormArguments& in, const BackwardPointers& p, cudaStream_t stream) {
  using C = ComputeOf<T>;
  constexpr int V = kVector<T>;
  const auto* x = static_cast<const T*>(in.x);
  const auto* dy = static_cast<const T*>(p.dy);
  const auto* weight = static_cast<const W*>(in.weight);
  const auto *mean = static_cast<const C*>(p.mean), *rstd = static_cast<const C*>(p.rstd);
  auto* dx = static_cast<T*>(p.dx);
  auto *dweight = static_cast<C*>(p.dweight_ph), *dbias = static_cast<C*>(p.dbias_ph);
  const auto partials = static_cast<unsigned>(norm_partials(in.rows));
  const int threads = threads_in_registers<T>(in.columns, x, dy, weight, dx);
  if (threads > 0) {
    norm_backward_kernel<T, W, V, kPerThread / V><<<partials, threads, 0, stream>>>(
        x, dy, weight, mean, rstd, in.rows, in.columns, dx, dweight, dbias);
    return cudaGetLastError();
  }
  if (dx != nullptr) {
    plain_backward_kernel<T, W>
        <<<static_cast<unsigned>(in.rows), threads_for_row(in.columns, 1024), 0, stream>>>(
            x, dy, weight, mean, rstd, in.columns, dx);
    const cudaError_t status = cudaGetLastError();
    if (status != cudaSuccess) return status;
  }
  if (dweight == nullptr) return cudaSuccess;
  constexpr int kThreads = 128;
  const dim3 grid(static_cast<unsigned>((in.columns + kThreads - 1) / kThreads), partials);
  plain_weight_grad_kernel<T>
      <<<grid, kThreads, 0, stream>>>(x, dy, mean, rstd, in.rows, in.columns, dweight, dbias);
  return cudaGetLastError();
}

}  // namespace

std::int64_t norm_partials(std::int64_t rows) { return std::min<std::int64_t>(rows, 264); }

cudaError_t norm_forward(const NormArguments& in, const void* bias, double eps, void* y, void* mean,
                         void* rstd, cudaStream_t stream) {
  if (in.rows == 0) return cudaSuccess;
  return dispatch(in.type, [&](auto tag) {
    using T = decltype(tag);
    if (in.weight_computing) {
      return forward_of<T, ComputeOf<T>>(in, bias, eps, y, mean, rstd, stream);
    }
    return forward_of<T, T>(in, bias, eps, y, mean, rstd, stream);
  });
}

cudaError_t norm_backward(const NormArguments& in, const void* dy, const void* mean,
                          const void* rstd, void* dx, void* dweight, void* dbias, void* partials,
                          cudaStream_t stream) {
  return dispatch(in.type, [&](auto tag) {
    using T = decltype(tag);
    using C = ComputeOf<T>;
    const std::int64_t count = norm_partials(in.rows);
    auto* first = static_cast<C*>(partials);
    const BackwardPointers p{.dy = dy,
                             .mean = mean,
                             .rstd = rstd,
                             .dx = dx,
                             .dweight_ph = dweight != nullptr ? first : nullptr,
                             .dbias_ph = dbias != nullptr ? first + count * in.columns : nullptr};
    cudaError_t status = cudaSuccess;
    if (in.rows > 0) {
      status =
          in.weight_computing ? backward_of<T, C>(in, p, stream) : backward_of<T, T>(in, p, stream);
    }
    if (status != cudaSuccess || dweight == nullptr) return status;
    status = launch_sum_partials(first, count, in.columns, static_cast<C*>(dweight), false, stream);
    if (status != cudaSuccess || dbias == nullptr) return status;
    return launch_sum_partials(first + count * in.columns, count, in.columns,
                               static_cast<C*>(dbias), false, stream);
  });
}

}  // namespace pentatron::kernels
