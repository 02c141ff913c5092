// SPDX-License-Identifier: Apache-2.0
#include "pentatron/kernels/norm.h"

#include "pentatron/kernels/fp8.h"
#include "pentatron/kernels/largest.cuh"
#include "pentatron/kernels/reduce.cuh"

// Rows of up to kMaxThreads * kPerThread elements are held in registers, so that x and dy are read
// once: short rows by a warp each, of which a block has several, longer ones by a block. Longer
// still or unaligned rows take the plain kernels, which read them again from the cache. A product
// that another gradient is added to is rounded first, so that fp32 has the bits of two kernels.
namespace pentatron::kernels {
namespace {

constexpr int kPerThread = 16;  // elements of a row, where a block shares it
constexpr int kMaxThreads = 512;
constexpr int kWarpsOfBlock = 8;  // rows at a time, where a warp has one
constexpr int kPerLane = 32;      // at most, where a warp has one
constexpr int kPerLaneNarrow = 24;
constexpr int kWarpColumns = 32 * kPerLane;
// Of backward, where a block shares a row whatever its length: few elements a thread leave
// registers for many threads, which hide the waiting.
constexpr int kBackwardPerThread = 8;
constexpr int kMultiprocessors = 132;
constexpr int kThreadsOfMultiprocessor = 1024;

// The threads that share a row: a warp, or the block.
template <bool kWarps>
struct Team {
  static __device__ __forceinline__ int size() {
    return kWarps ? 32 : static_cast<int>(blockDim.x);
  }
  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % size(); }
  static __device__ __forceinline__ std::int64_t first_row() {
    return kWarps ? static_cast<std::int64_t>(blockIdx.x) * kWarpsOfBlock + threadIdx.x / 32
                  : blockIdx.x;
  }
  // The column of a thread's k-th vector of V elements.
  template <int V>
  static __device__ __forceinline__ std::int64_t place(int k) {
    return (static_cast<std::int64_t>(k) * size() + lane()) * V;
  }
  template <typename C>
  static __device__ __forceinline__ C sum(C x, C* scratch) {
    return kWarps ? warp_reduce(x, Plus{}) : block_sum(x, scratch);
  }
};

// Sums of a and b over all threads of the block, in every thread; scratch of 64.
template <typename C>
__device__ __forceinline__ void block_sum_pair(C& a, C& b, C* scratch) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  a = warp_reduce(a, Plus{});
  b = warp_reduce(b, Plus{});
  __syncthreads();  // an earlier result may still be being read
  if (lane == 0) {
    scratch[warp] = a;
    scratch[32 + warp] = b;
  }
  __syncthreads();
  a = warp_reduce(lane < warps ? scratch[lane] : C(0), Plus{});
  b = warp_reduce(lane < warps ? scratch[32 + lane] : C(0), Plus{});
}

// A product that is rounded before it meets a sum: where all of a row's g are equal, g - mean(g) is
// then exactly zero.
__device__ __forceinline__ float rounded_product(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double rounded_product(double a, double b) { return __dmul_rn(a, b); }

// x + delta, rounded as it is stored.
template <typename T, int V>
__device__ __forceinline__ Vec<T, V> rounded_sum(const Vec<T, V>& x, const Vec<T, V>& delta) {
  using C = ComputeOf<T>;
  Vec<T, V> sum;
#pragma unroll
  for (int i = 0; i < V; ++i) sum.v[i] = narrow<T>(widen<C>(x.v[i]) + widen<C>(delta.v[i]));
  return sum;
}

// With kAdds delta comes to x first, and the sum is written; with kSeeks *largest is raised.
template <typename T, typename W, int V, int N, bool kWarps, bool kAdds, bool kSeeks>
__global__ void __launch_bounds__(kMaxThreads)
    norm_forward_kernel(const T* __restrict__ x, const T* __restrict__ delta,
                        T* __restrict__ sum_th, const W* __restrict__ weight,
                        const W* __restrict__ bias, std::int64_t rows, std::int64_t columns,
                        ComputeOf<T> eps, T* __restrict__ y, ComputeOf<T>* __restrict__ mean_t,
                        ComputeOf<T>* __restrict__ rstd_t, unsigned* __restrict__ largest) {
  using C = ComputeOf<T>;
  using Mine = Team<kWarps>;
  __shared__ C scratch[32];
  const std::int64_t row = Mine::first_row();
  if (row >= rows) return;  // whole warps
  x += row * columns;
  y += row * columns;
  C value[N][V];
  C sum = 0;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const std::int64_t at = Mine::template place<V>(k);
    if (at >= columns) continue;
    Vec<T, V> in = load<V>(x + at);
    if constexpr (kAdds) {
      in = rounded_sum(in, load<V>(delta + row * columns + at));
      store<V>(sum_th + row * columns + at, in);
    }
#pragma unroll
    for (int i = 0; i < V; ++i) {
      value[k][i] = widen<C>(in.v[i]);
      sum += value[k][i];
    }
  }
  const C mean = mean_t != nullptr ? Mine::sum(sum, scratch) / C(columns) : C(0);
  C squares = 0;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    if (Mine::template place<V>(k) >= columns) continue;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const C d = value[k][i] - mean;
      squares += d * d;
    }
  }
  const C rstd = C(1) / sqrt(Mine::sum(squares, scratch) / C(columns) + eps);
  unsigned most = 0;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const std::int64_t at = Mine::template place<V>(k);
    if (at >= columns) continue;
    const Vec<W, V> w = load<V>(weight + at);
    Vec<W, V> b{};
    if (bias != nullptr) b = load<V>(bias + at);
    Vec<T, V> out;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      C result = (value[k][i] - mean) * rstd * widen<C>(w.v[i]);
      if (bias != nullptr) result += widen<C>(b.v[i]);
      out.v[i] = narrow<T>(result);
      if constexpr (kSeeks) most = max(most, magnitude_bits(widen<float>(out.v[i])));
    }
    store<V>(y + at, out);
  }
  if constexpr (kSeeks) raise_largest(most, largest);
  if (Mine::lane() == 0) {
    if (mean_t != nullptr) mean_t[row] = mean;
    rstd_t[row] = rstd;
  }
}

template <typename T>
__global__ void plain_add_kernel(const T* __restrict__ x, const T* __restrict__ delta,
                                 std::int64_t count, T* __restrict__ sum) {
  using C = ComputeOf<T>;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    sum[i] = narrow<T>(widen<C>(x[i]) + widen<C>(delta[i]));
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

// A thread's share of a row of x and dy, as stored.
template <typename T, int V, int N>
struct RowShare {
  Vec<T, V> x[N], dy[N];

  __device__ __forceinline__ void load_from(const T* __restrict__ x_row,
                                            const T* __restrict__ dy_row, std::int64_t columns) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const std::int64_t at = Team<false>::template place<V>(k);
      if (at >= columns) continue;
      x[k] = load<V>(x_row + at);
      dy[k] = load<V>(dy_row + at);
    }
  }
};

// With h = (x - mean) rstd and g = dy weight: dx = rstd (g - mean(g) - h mean(g h)), the first mean
// for layer norm only, plus, with kAdds, another gradient of x. A block takes every gridDim.x-th
// row, asks for the next one before it works on one, and keeps its share of the weight gradients in
// registers.
template <typename T, typename W, int V, int N, bool kAdds>
__global__ void __launch_bounds__(kMaxThreads, N* V <= kBackwardPerThread ? 2 : 1)
    norm_backward_kernel(const T* __restrict__ x, const T* __restrict__ dy,
                         const T* __restrict__ more, const W* __restrict__ weight,
                         const ComputeOf<T>* __restrict__ mean_t,
                         const ComputeOf<T>* __restrict__ rstd_t, std::int64_t rows,
                         std::int64_t columns, T* __restrict__ dx,
                         ComputeOf<T>* __restrict__ dweight_ph,
                         ComputeOf<T>* __restrict__ dbias_ph) {
  using C = ComputeOf<T>;
  using Mine = Team<false>;
  __shared__ C scratch[64];
  C dweight[N][V] = {}, dbias[N][V] = {};
  RowShare<T, V, N> next{};
  std::int64_t row = blockIdx.x;
  if (row < rows) next.load_from(x + row * columns, dy + row * columns, columns);
  for (; row < rows; row += gridDim.x) {
    const RowShare<T, V, N> now = next;
    const std::int64_t ahead = row + gridDim.x;
    if (ahead < rows) next.load_from(x + ahead * columns, dy + ahead * columns, columns);
    // Wanted behind the sums over the block, which hide the waiting for it.
    Vec<T, V> also[kAdds ? N : 1];
    if constexpr (kAdds) {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const std::int64_t at = Mine::template place<V>(k);
        if (at < columns) also[k] = load<V>(more + row * columns + at);
      }
    }
    const C mean = mean_t != nullptr ? mean_t[row] : C(0), rstd = rstd_t[row];
    C sum_g = 0, sum_gh = 0;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const std::int64_t at = Mine::template place<V>(k);
      if (at >= columns) continue;
      const Vec<W, V> w = load<V>(weight + at);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const C d = widen<C>(now.dy[k].v[i]);
        const C h = (widen<C>(now.x[k].v[i]) - mean) * rstd;
        const C g = rounded_product(d, widen<C>(w.v[i]));
        sum_g += g;
        sum_gh += g * h;
        dweight[k][i] += d * h;
        dbias[k][i] += d;
      }
    }
    if (dx == nullptr) continue;
    block_sum_pair(sum_g, sum_gh, scratch);
    const C mean_g = mean_t != nullptr ? sum_g / C(columns) : C(0);
    const C mean_gh = sum_gh / C(columns);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const std::int64_t at = Mine::template place<V>(k);
      if (at >= columns) continue;
      const Vec<W, V> w = load<V>(weight + at);
      Vec<T, V> out;
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const C h = (widen<C>(now.x[k].v[i]) - mean) * rstd;
        const C g = rounded_product(widen<C>(now.dy[k].v[i]), widen<C>(w.v[i]));
        C d = rounded_product(rstd, g - mean_g - h * mean_gh);
        if constexpr (kAdds) d += widen<C>(also[k].v[i]);
        out.v[i] = narrow<T>(d);
      }
      store<V>(dx + row * columns + at, out);
    }
  }
  if (dweight_ph == nullptr) return;
  const std::int64_t partial = static_cast<std::int64_t>(blockIdx.x) * columns;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const std::int64_t at = Mine::template place<V>(k);
    if (at >= columns) continue;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      dweight_ph[partial + at + i] = dweight[k][i];
      if (dbias_ph != nullptr) dbias_ph[partial + at + i] = dbias[k][i];
    }
  }
}

template <typename T, typename W>
__global__ void plain_backward_kernel(const T* __restrict__ x, const T* __restrict__ dy,
                                      const T* __restrict__ more, const W* __restrict__ weight,
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
    C d = rounded_product(rstd, g - mean_g - (widen<C>(x[c]) - mean) * rstd * mean_gh);
    if (more != nullptr) d += widen<C>(more[row * columns + c]);
    dx[c] = narrow<T>(d);
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

int threads_of_a_row(std::int64_t columns, int elements) {
  return threads_for_row((columns + elements - 1) / elements, kMaxThreads);
}

// Whether registers hold a row; else the plain kernels must do.
template <typename T, typename... P>
bool fits_registers(std::int64_t columns, const P*... pointers) {
  return columns % kVector<T> == 0 && columns <= std::int64_t{kMaxThreads} * kPerThread &&
         aligned16(pointers...);
}

// Calls launch(flag) with a constant.
template <typename F>
void by_flag(bool flag, F launch) {
  if (flag) {
    launch(std::true_type{});
  } else {
    launch(std::false_type{});
  }
}

// Calls launch(vectors of a thread, whether a warp has a row) with constants.
template <typename T, typename F>
void by_team(std::int64_t columns, F launch) {
  constexpr int V = kVector<T>;
  if (columns <= 32 * kPerLaneNarrow) {
    launch(std::integral_constant<int, kPerLaneNarrow / V>{}, std::true_type{});
  } else if (columns <= kWarpColumns) {
    launch(std::integral_constant<int, kPerLane / V>{}, std::true_type{});
  } else {
    launch(std::integral_constant<int, kPerThread / V>{}, std::false_type{});
  }
}

template <typename T, typename W>
cudaError_t forward_of(const NormArguments& in, const void* bias, double eps, void* y, void* mean,
                       void* rstd, cudaStream_t stream) {
  using C = ComputeOf<T>;
  constexpr int V = kVector<T>;
  const auto *x = static_cast<const T*>(in.x), *delta = static_cast<const T*>(in.delta);
  const auto* weight = static_cast<const W*>(in.weight);
  const auto* shift = static_cast<const W*>(bias);
  auto *out = static_cast<T*>(y), *sum = static_cast<T*>(in.sum);
  auto *means = static_cast<C*>(mean), *rstds = static_cast<C*>(rstd);
  const auto blocks = static_cast<unsigned>(in.rows);
  // Only what is cast to fp8 has kernels that seek.
  constexpr bool kMaySeek = std::is_same_v<T, __nv_bfloat16>;
  auto* largest = reinterpret_cast<unsigned*>(in.largest);
  const auto seek_apart = [&] {
    const cudaError_t status = cudaGetLastError();
    if (status != cudaSuccess || largest == nullptr) return status;
    return launch_largest_magnitude(y, in.type, in.rows * in.columns, nullptr, in.largest, stream);
  };
  if (fits_registers<T>(in.columns, x, delta, sum, out, weight, shift)) {
    if (kMaySeek && largest != nullptr) {
      const cudaError_t status = cudaMemsetAsync(largest, 0, sizeof(*largest), stream);
      if (status != cudaSuccess) return status;
    }
    by_team<T>(in.columns, [&](auto vectors, auto warps) {
      constexpr bool kWarps = decltype(warps)::value;
      const unsigned teams = kWarps ? (blocks + kWarpsOfBlock - 1) / kWarpsOfBlock : blocks;
      const int threads = kWarps ? 32 * kWarpsOfBlock : threads_of_a_row(in.columns, kPerThread);
      const auto launch = [&](auto adds, auto seeks) {
        norm_forward_kernel<T, W, V, decltype(vectors)::value, kWarps, decltype(adds)::value,
                            decltype(seeks)::value>
            <<<teams, threads, 0, stream>>>(x, delta, sum, weight, shift, in.rows, in.columns,
                                            static_cast<C>(eps), out, means, rstds, largest);
      };
      by_flag(delta != nullptr, [&](auto adds) {
        if constexpr (kMaySeek) {
          by_flag(largest != nullptr, [&](auto seeks) { launch(adds, seeks); });
        } else {
          launch(adds, std::false_type{});
        }
      });
    });
    return kMaySeek ? cudaGetLastError() : seek_apart();
  }
  if (delta != nullptr) {
    constexpr int kThreads = 256;
    const std::int64_t count = in.rows * in.columns;
    plain_add_kernel<T><<<grid_for(count, kThreads), kThreads, 0, stream>>>(x, delta, count, sum);
    const cudaError_t status = cudaGetLastError();
    if (status != cudaSuccess) return status;
    x = sum;
  }
  plain_forward_kernel<T, W><<<blocks, threads_for_row(in.columns, 1024), 0, stream>>>(
      x, weight, shift, in.columns, static_cast<C>(eps), out, means, rstds);
  return seek_apart();
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
  const auto *dy = static_cast<const T*>(p.dy), *more = static_cast<const T*>(in.delta);
  const auto* weight = static_cast<const W*>(in.weight);
  const auto *mean = static_cast<const C*>(p.mean), *rstd = static_cast<const C*>(p.rstd);
  auto* dx = static_cast<T*>(p.dx);
  auto *dweight = static_cast<C*>(p.dweight_ph), *dbias = static_cast<C*>(p.dbias_ph);
  const auto partials = static_cast<unsigned>(norm_partials(in.rows, in.columns));
  if (fits_registers<T>(in.columns, x, dy, more, weight, dx)) {
    const int threads = threads_of_a_row(in.columns, kBackwardPerThread);
    by_flag(more != nullptr, [&](auto adds) {
      constexpr bool kAdds = decltype(adds)::value;
      const auto launch = [&](auto per_thread) {
        norm_backward_kernel<T, W, V, decltype(per_thread)::value / V, kAdds>
            <<<partials, threads, 0, stream>>>(x, dy, more, weight, mean, rstd, in.rows, in.columns,
                                               dx, dweight, dbias);
      };
      if (in.columns <= std::int64_t{kMaxThreads} * kBackwardPerThread) {
        launch(std::integral_constant<int, kBackwardPerThread>{});
      } else {
        launch(std::integral_constant<int, kPerThread>{});
      }
    });
    return cudaGetLastError();
  }
  if (dx != nullptr) {
    plain_backward_kernel<T, W>
        <<<static_cast<unsigned>(in.rows), threads_for_row(in.columns, 1024), 0, stream>>>(
            x, dy, more, weight, mean, rstd, in.columns, dx);
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

std::int64_t norm_partials(std::int64_t rows, std::int64_t columns) {
  const int threads = threads_of_a_row(columns, kBackwardPerThread);
  const int blocks = std::max(2, kThreadsOfMultiprocessor / threads);
  return std::min<std::int64_t>(rows, std::int64_t{kMultiprocessors} * blocks);
}

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
    const std::int64_t count = norm_partials(in.rows, in.columns);
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
