// SPDX-License-Identifier: Apache-2.0
#include "pentatron/kernels/fp8.h"
#include "pentatron/kernels/largest.cuh"
#include "pentatron/kernels/norm.h"
#include "pentatron/kernels/norm_rows.cuh"

namespace pentatron::kernels {
namespace {

constexpr int kWarpsOfBlock = 8;  // rows at a time, where a warp has one
constexpr int kPerLane = 32;      // at most, where a warp has one
constexpr int kPerLaneNarrow = 24;
constexpr int kWarpColumns = 32 * kPerLane;

template <typename T>
struct ForwardRows {
  const T *x, *delta;  // delta null: none
  T *sum, *y;
  ComputeOf<T>*mean, *rstd;  // mean null: RMS norm
  std::int64_t rows, columns;
  ComputeOf<T> eps;
  unsigned* largest;  // null: not asked for
};

// x + delta, rounded as it is stored.
template <typename T, int V>
__device__ __forceinline__ Vec<T, V> rounded_sum(const Vec<T, V>& x, const Vec<T, V>& delta) {
  using C = ComputeOf<T>;
  Vec<T, V> sum;
#pragma unroll
  for (int i = 0; i < V; ++i) sum.v[i] = narrow<T>(widen<C>(x.v[i]) + widen<C>(delta.v[i]));
  return sum;
}

// (x - mean) rstd weight + bias of one vector.
template <typename T, typename W, int V>
__device__ __forceinline__ Vec<T, V> normalised(const Vec<T, V>& x, const Centred<T>& centred,
                                                const W* weight, const W* bias) {
  using C = ComputeOf<T>;
  const Vec<W, V> w = load<V>(weight);
  Vec<W, V> b{};
  if (bias != nullptr) b = load<V>(bias);
  Vec<T, V> out;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    C result = centred(widen<C>(x.v[i])) * widen<C>(w.v[i]);
    if (bias != nullptr) result += widen<C>(b.v[i]);
    out.v[i] = narrow<T>(result);
  }
  return out;
}

// The threads that share a row: a warp, or the block.
template <typename C, bool kWarps>
class Team {
 public:
  static __device__ __forceinline__ std::int64_t row() {
    return kWarps ? static_cast<std::int64_t>(blockIdx.x) * kWarpsOfBlock + threadIdx.x / 32
                  : blockIdx.x;
  }
  static __device__ __forceinline__ int lane() {
    return static_cast<int>(kWarps ? threadIdx.x % 32 : threadIdx.x);
  }
  // The column of a thread's k-th vector of V elements.
  template <int V>
  static __device__ __forceinline__ std::int64_t place(int k) {
    return kWarps ? (std::int64_t{k} * 32 + lane()) * V : block_place<V>(k);
  }
  explicit __device__ Team(C* scratch) : sums_(scratch) {}
  __device__ __forceinline__ C operator()(C x) {
    if constexpr (kWarps) return warp_reduce(x, Plus{});
    C sum[1] = {x};
    sums_(sum);
    return sum[0];
  }

 private:
  BlockSums<C, 1> sums_;
};

// A thread's share of a row that begins at `begin`; with kAdds delta comes to x first, and the sum
// is written. Places behind the row's end read its first vector and count nothing: without a branch
// between them all loads are under way together.
template <typename T, int V, int N, bool kAdds, typename Mine>
__device__ __forceinline__ void load_row(const ForwardRows<T>& rows, std::int64_t begin,
                                         Vec<T, V> (&in)[N]) {
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const std::int64_t at = Mine::template place<V>(k);
    in[k] = load<V>(rows.x + begin + (at < rows.columns ? at : 0));
  }
  if constexpr (kAdds) {
    Vec<T, V> delta[N];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const std::int64_t at = Mine::template place<V>(k);
      delta[k] = load<V>(rows.delta + begin + (at < rows.columns ? at : 0));
    }
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const std::int64_t at = Mine::template place<V>(k);
      in[k] = rounded_sum(in[k], delta[k]);
      if (at < rows.columns) store<V>(rows.sum + begin + at, in[k]);
    }
  }
}

// Values stay as they are stored: few registers, so that many rows are under way at a time. With
// kSeeks *largest is raised.
template <typename T, typename W, int V, int N, bool kWarps, bool kAdds, bool kSeeks>
__global__ void __launch_bounds__(kMaxThreads, 2)
    norm_forward_kernel(ForwardRows<T> rows, const W* __restrict__ weight,
                        const W* __restrict__ bias) {
  using C = ComputeOf<T>;
  using Mine = Team<C, kWarps>;
  __shared__ C scratch[BlockSums<C, 1>::kScratch];
  Mine sum_of(scratch);
  const RowMean<T> mean_of(rows.columns);
  const std::int64_t row = Mine::row(), columns = rows.columns, begin = row * columns;
  if (row >= rows.rows) return;  // whole warps
  Vec<T, V> in[N];
  load_row<T, V, N, kAdds, Mine>(rows, begin, in);
  C mean = 0;
  if (rows.mean != nullptr) {
    C sum = 0;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const bool counts = Mine::template place<V>(k) < columns;
#pragma unroll
      for (int i = 0; i < V; ++i) sum += counts ? widen<C>(in[k].v[i]) : C(0);
    }
    mean = mean_of(sum_of(sum));
  }
  C squares = 0;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const bool counts = Mine::template place<V>(k) < columns;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const C d = counts ? widen<C>(in[k].v[i]) - mean : C(0);
      squares += d * d;
    }
  }
  const C rstd = C(1) / sqrt(mean_of(sum_of(squares)) + rows.eps);
  const Centred<T> centred(mean, rstd);
  unsigned most = 0;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const std::int64_t at = Mine::template place<V>(k);
    if (at >= columns) continue;
    const Vec<T, V> out =
        normalised<T, W, V>(in[k], centred, weight + at, bias != nullptr ? bias + at : nullptr);
    store<V>(rows.y + begin + at, out);
    if constexpr (kSeeks) {
#pragma unroll
      for (int i = 0; i < V; ++i) most = max(most, magnitude_bits(widen<float>(out.v[i])));
    }
  }
  if constexpr (kSeeks) raise_largest(most, rows.largest);
  if (Mine::lane() != 0) return;
  if (rows.mean != nullptr) rows.mean[row] = mean;
  rows.rstd[row] = rstd;
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
  ForwardRows<T> rows{.x = static_cast<const T*>(in.x),
                      .delta = static_cast<const T*>(in.delta),
                      .sum = static_cast<T*>(in.sum),
                      .y = static_cast<T*>(y),
                      .mean = static_cast<C*>(mean),
                      .rstd = static_cast<C*>(rstd),
                      .rows = in.rows,
                      .columns = in.columns,
                      .eps = static_cast<C>(eps),
                      .largest = reinterpret_cast<unsigned*>(in.largest)};
  // Only what is cast to fp8 has kernels that seek.
  constexpr bool kMaySeek = std::is_same_v<T, __nv_bfloat16>;
  const auto seek_apart = [&] {
    const cudaError_t status = cudaGetLastError();
    if (status != cudaSuccess || in.largest == nullptr) return status;
    return launch_largest_magnitude(y, in.type, in.rows * in.columns, nullptr, in.largest, stream);
  };
  const auto* weight = static_cast<const W*>(in.weight);
  const auto* shift = static_cast<const W*>(bias);
  const auto blocks = static_cast<unsigned>(in.rows);
  if (fits_registers<T>(in.columns, rows.x, rows.delta, rows.sum, rows.y, weight, shift)) {
    if (kMaySeek && in.largest != nullptr) {
      const cudaError_t status = cudaMemsetAsync(in.largest, 0, sizeof(*in.largest), stream);
      if (status != cudaSuccess) return status;
    }
    const auto launch = [&](auto adds, auto seeks) {
      constexpr bool kAdds = decltype(adds)::value, kSeeks = decltype(seeks)::value;
      by_team<T>(in.columns, [&](auto vectors, auto warps) {
        constexpr int N = decltype(vectors)::value;
        constexpr bool kWarps = decltype(warps)::value;
        const unsigned teams = kWarps ? (blocks + kWarpsOfBlock - 1) / kWarpsOfBlock : blocks;
        const int threads = kWarps ? 32 * kWarpsOfBlock : threads_of_a_row(in.columns, N * V);
        norm_forward_kernel<T, W, V, N, kWarps, kAdds, kSeeks>
            <<<teams, threads, 0, stream>>>(rows, weight, shift);
      });
    };
    by_flag(in.delta != nullptr, [&](auto adds) {
      by_flag(kMaySeek && in.largest != nullptr, [&](auto seeks) {
        launch(adds, std::bool_constant<kMaySeek&& decltype(seeks)::value>{});
      });
    });
    return kMaySeek ? cudaGetLastError() : seek_apart();
  }
  if (in.delta != nullptr) {
    constexpr int kThreads = 256;
    const std::int64_t count = in.rows * in.columns;
    plain_add_kernel<T>
        <<<grid_for(count, kThreads), kThreads, 0, stream>>>(rows.x, rows.delta, count, rows.sum);
    const cudaError_t status = cudaGetLastError();
    if (status != cudaSuccess) return status;
    rows.x = rows.sum;
  }
  plain_forward_kernel<T, W><<<blocks, threads_for_row(in.columns, 1024), 0, stream>>>(
      rows.x, weight, shift, in.columns, rows.eps, rows.y, rows.mean, rows.rstd);
  return seek_apart();
}

}  // namespace

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

}  // namespace pentatron::kernels
