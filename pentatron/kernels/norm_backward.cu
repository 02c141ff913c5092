// SPDX-License-Identifier: Apache-2.0
#include "pentatron/kernels/async_ring.cuh"
#include "pentatron/kernels/norm.h"
#include "pentatron/kernels/norm_rows.cuh"
#include "pentatron/kernels/reduce.cuh"

namespace pentatron::kernels {
namespace {

// Of rows that are not longer than kMaxThreads of them.
constexpr int kUsualPerThread = 8;
constexpr int kMultiprocessors = 132;
constexpr int kThreadsOfMultiprocessor = 1024;
// Rows of a block's ring; up to 192 KiB.
template <int N>
constexpr int kStages = N <= 2 ? 4 : std::max(1, 8 / N);

// A product that is rounded before it meets a sum: where all of a row's g are equal, g - mean(g) is
// then exactly zero.
__device__ __forceinline__ float rounded_product(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double rounded_product(double a, double b) { return __dmul_rn(a, b); }

template <typename T>
struct BackwardRows {
  const T *x, *dy, *more;          // more null: no other gradient of x
  const ComputeOf<T>*mean, *rstd;  // mean null: RMS norm
  T* dx;                           // null: not asked for
  ComputeOf<T>*dweight, *dbias;    // partial sums; null: not asked for
  std::int64_t rows, columns;
};

// What a thread has of one row: h and g of the formula below.
template <typename C, int N, int V>
struct RowTerms {
  C h[N][V], g[N][V];
};

// A block's share of the weight gradients, in its threads' registers.
template <typename T, typename W, int V, int N, bool kFull>
struct WeightShare {
  using C = ComputeOf<T>;
  static constexpr int kSums = kFull ? 2 : 1;
  Vec<W, V> w[N];
  C dweight[N][V] = {}, dbias[kFull ? N : 1][V] = {};

  __device__ __forceinline__ WeightShare(const W* weight, std::int64_t columns) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const std::int64_t at = block_place<V>(k);
      w[k] = load<V>(weight + (at < columns ? at : 0));
    }
  }

  // Sums of g h and, with kFull, of g; the gradients take what the row brings.
  __device__ __forceinline__ void take(int k, const Vec<T, V>& x, const Vec<T, V>& dy,
                                       const Centred<T>& centred, RowTerms<C, N, V>& terms,
                                       C (&sums)[kSums]) {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const C d = widen<C>(dy.v[i]), h = centred(widen<C>(x.v[i]));
      const C g = rounded_product(d, widen<C>(w[k].v[i]));
      terms.h[k][i] = h;
      terms.g[k][i] = g;
      sums[0] += g * h;
      dweight[k][i] += d * h;
      if constexpr (kFull) {
        sums[1] += g;
        dbias[k][i] += d;
      }
    }
  }

  __device__ __forceinline__ void write(const BackwardRows<T>& rows) const {
    if (rows.dweight == nullptr) return;
    const std::int64_t partial = static_cast<std::int64_t>(blockIdx.x) * rows.columns;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const std::int64_t at = block_place<V>(k);
      if (at >= rows.columns) continue;
      store<V>(rows.dweight + partial + at, vector_of(dweight[k]));
      if constexpr (kFull) {
        if (rows.dbias != nullptr) store<V>(rows.dbias + partial + at, vector_of(dbias[k]));
      }
    }
  }

 private:
  static __device__ __forceinline__ Vec<C, V> vector_of(const C (&values)[V]) {
    Vec<C, V> out;
#pragma unroll
    for (int i = 0; i < V; ++i) out.v[i] = values[i];
    return out;
  }
};

// dx of one vector, from its terms and the row's means.
template <typename T, int V, bool kAdds>
__device__ __forceinline__ Vec<T, V> input_gradient(const ComputeOf<T> (&h)[V],
                                                    const ComputeOf<T> (&g)[V], ComputeOf<T> rstd,
                                                    ComputeOf<T> mean_g, ComputeOf<T> mean_gh,
                                                    const Vec<T, V>& more) {
  using C = ComputeOf<T>;
  Vec<T, V> out;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    C d = rounded_product(rstd, g[i] - mean_g - h[i] * mean_gh);
    if constexpr (kAdds) d += widen<C>(more.v[i]);
    out.v[i] = narrow<T>(d);
  }
  return out;
}

// The rows of a block, every gridDim.x-th, of which the next few are on their way into shared
// memory.
template <typename T, int V, int N, bool kAdds>
class RowFeed {
  static constexpr int kRows = kStages<N>;
  using Ring = AsyncRing<kRows, kAdds ? 3 : 2, N>;

 public:
  static constexpr std::size_t bytes(int threads) { return Ring::bytes(threads); }

  __device__ __forceinline__ RowFeed(const BackwardRows<T>& rows, uint4* memory)
      : x_(rows.x),
        dy_(rows.dy),
        more_(rows.more),
        dx_(rows.dx),
        rows_(rows.rows),
        ring_(memory),
        step_(static_cast<std::int64_t>(gridDim.x) * rows.columns),
        here_(blockIdx.x * rows.columns + threadIdx.x * V),
        ahead_(here_),
        row_ahead_(blockIdx.x),
        stage_(ring_.stage(0)),
        free_(ring_.stage(kRows - 1)) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      has_[k] = block_place<V>(k) < rows.columns;
      if (!has_[k]) ring_.clear(k);
    }
#pragma unroll
    for (int number = 0; number < kRows - 1; ++number) start(ring_.stage(number));
  }

  // Asks for one row more; what came before is still on its way.
  __device__ __forceinline__ void ask() { start(free_); }
  // take() and put() mean the next row now.
  __device__ __forceinline__ void await() { await_copies<kRows - 1>(); }
  __device__ __forceinline__ void end() {
    here_ += step_;
    free_ = stage_;
    stage_ = ring_.after(stage_);
  }
  // Tensor 0: x; 1: dy; 2: the other gradient of x.
  __device__ __forceinline__ Vec<T, V> take(int tensor, int k) const {
    return ring_.template take<T, V>(stage_, tensor, k);
  }
  __device__ __forceinline__ void put(int k, const Vec<T, V>& dx) const {
    if (has_[k]) store<V>(dx_ + place(here_, k), dx);
  }

 private:
  static __device__ __forceinline__ std::int64_t place(std::int64_t row, int k) {
    return row + k * (blockDim.x * V);
  }
  __device__ __forceinline__ void start(typename Ring::Stage stage) {
    if (row_ahead_ < rows_) {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        if (!has_[k]) continue;
        ring_.copy(stage, 0, k, x_ + place(ahead_, k));
        ring_.copy(stage, 1, k, dy_ + place(ahead_, k));
        if constexpr (kAdds) ring_.copy(stage, 2, k, more_ + place(ahead_, k));
      }
    }
    end_copies();
    ahead_ += step_;
    row_ahead_ += gridDim.x;
  }

  const T *x_, *dy_, *more_;
  T* dx_;
  std::int64_t rows_;
  Ring ring_;
  std::int64_t step_, here_, ahead_, row_ahead_;
  typename Ring::Stage stage_, free_;
  bool has_[N];
};

// With h = (x - mean) rstd and g = dy weight: dx = rstd (g - mean(g) - h mean(g h)), the first mean
// for layer norm only, plus, with kAdds, another gradient of x. kFull: there may be a mean, and a
// bias's gradient.
template <typename T, typename W, int V, int N, bool kAdds, bool kFull>
__global__ void __launch_bounds__(kMaxThreads, N* V <= kUsualPerThread ? 2 : 1)
    norm_backward_kernel(BackwardRows<T> rows, const W* __restrict__ weight) {
  using C = ComputeOf<T>;
  using Share = WeightShare<T, W, V, N, kFull>;
  extern __shared__ uint4 dynamic_memory[];
  __shared__ C scratch[BlockSums<C, Share::kSums>::kScratch];
  RowFeed<T, V, N, kAdds> feed(rows, dynamic_memory);
  BlockSums<C, Share::kSums> sums_of(scratch);
  Share share(weight, rows.columns);
  const RowMean<T> mean_of(rows.columns);
  const bool has_mean = kFull && rows.mean != nullptr;
  const auto mean_at = [&](std::int64_t row) { return has_mean ? rows.mean[row] : C(0); };
  // Asked for a row ahead, used where they have come.
  C next_mean = mean_at(blockIdx.x), next_rstd = rows.rstd[blockIdx.x];
  const std::int64_t last = rows.rows - 1;
  for (std::int64_t row = blockIdx.x; row < rows.rows; row += gridDim.x) {
    feed.ask();
    const Centred<T> centred(next_mean, next_rstd);
    const std::int64_t next = row + gridDim.x < last ? row + gridDim.x : last;
    next_mean = mean_at(next);
    next_rstd = rows.rstd[next];
    feed.await();
    C sums[Share::kSums] = {};
    RowTerms<C, N, V> terms;
#pragma unroll
    for (int k = 0; k < N; ++k)
      share.take(k, feed.take(0, k), feed.take(1, k), centred, terms, sums);
    if (rows.dx != nullptr) {
      sums_of(sums);
      const C mean_gh = mean_of(sums[0]);
      const C mean_g = has_mean ? mean_of(sums[Share::kSums - 1]) : C(0);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        Vec<T, V> more{};
        if constexpr (kAdds) more = feed.take(2, k);
        feed.put(k, input_gradient<T, V, kAdds>(terms.h[k], terms.g[k], centred.rstd, mean_g,
                                                mean_gh, more));
      }
    }
    feed.end();
  }
  share.write(rows);
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

// Calls launch(vectors of a thread) with a constant.
template <typename T, typename F>
void by_vectors(std::int64_t columns, F launch) {
  constexpr int V = kVector<T>;
  if (columns <= std::int64_t{kMaxThreads} * kUsualPerThread) {
    launch(std::integral_constant<int, kUsualPerThread / V>{});
  } else {
    launch(std::integral_constant<int, kPerThread / V>{});
  }
}

template <typename T, typename W>
cudaError_t backward_of(const NormArguments& in, const BackwardRows<T>& rows, cudaStream_t stream) {
  constexpr int V = kVector<T>;
  const auto* weight = static_cast<const W*>(in.weight);
  const auto partials = static_cast<unsigned>(norm_partials(in.rows, in.columns));
  if (fits_registers<T>(in.columns, rows.x, rows.dy, rows.more, weight, rows.dx)) {
    cudaError_t status = cudaSuccess;
    by_vectors<T>(in.columns, [&](auto vectors) {
      constexpr int N = decltype(vectors)::value;
      const int threads = threads_of_a_row(in.columns, N * V);
      by_flag(in.delta != nullptr, [&](auto adds) {
        constexpr bool kAdds = decltype(adds)::value;
        using Feed = RowFeed<T, V, N, kAdds>;
        by_flag(rows.mean != nullptr || rows.dbias != nullptr, [&](auto full) {
          const auto kernel = norm_backward_kernel<T, W, V, N, kAdds, decltype(full)::value>;
          status = allow_shared_memory(kernel, Feed::bytes(threads));
          if (status != cudaSuccess) return;
          kernel<<<partials, threads, Feed::bytes(threads), stream>>>(rows, weight);
          status = cudaGetLastError();
        });
      });
    });
    return status;
  }
  if (rows.dx != nullptr) {
    plain_backward_kernel<T, W>
        <<<static_cast<unsigned>(in.rows), threads_for_row(in.columns, 1024), 0, stream>>>(
            rows.x, rows.dy, rows.more, weight, rows.mean, rows.rstd, in.columns, rows.dx);
    const cudaError_t status = cudaGetLastError();
    if (status != cudaSuccess) return status;
  }
  if (rows.dweight == nullptr) return cudaSuccess;
  constexpr int kThreads = 128;
  const dim3 grid(static_cast<unsigned>((in.columns + kThreads - 1) / kThreads), partials);
  plain_weight_grad_kernel<T><<<grid, kThreads, 0, stream>>>(
      rows.x, rows.dy, rows.mean, rows.rstd, in.rows, in.columns, rows.dweight, rows.dbias);
  return cudaGetLastError();
}

}  // namespace

std::int64_t norm_partials(std::int64_t rows, std::int64_t columns) {
  const int blocks = kThreadsOfMultiprocessor / threads_of_a_row(columns, kUsualPerThread);
  return std::min<std::int64_t>(rows, std::int64_t{kMultiprocessors} * blocks);
}

cudaError_t norm_backward(const NormArguments& in, const void* dy, const void* mean,
                          const void* rstd, void* dx, void* dweight, void* dbias, void* partials,
                          cudaStream_t stream) {
  return dispatch(in.type, [&](auto tag) {
    using T = decltype(tag);
    using C = ComputeOf<T>;
    const std::int64_t count = norm_partials(in.rows, in.columns);
    auto* first = static_cast<C*>(partials);
    const BackwardRows<T> rows{.x = static_cast<const T*>(in.x),
                               .dy = static_cast<const T*>(dy),
                               .more = static_cast<const T*>(in.delta),
                               .mean = static_cast<const C*>(mean),
                               .rstd = static_cast<const C*>(rstd),
                               .dx = static_cast<T*>(dx),
                               .dweight = dweight != nullptr ? first : nullptr,
                               .dbias = dbias != nullptr ? first + count * in.columns : nullptr,
                               .rows = in.rows,
                               .columns = in.columns};
    cudaError_t status = cudaSuccess;
    if (in.rows > 0) {
      status = in.weight_computing ? backward_of<T, C>(in, rows, stream)
                                   : backward_of<T, T>(in, rows, stream);
    }
    if (status != cudaSuccess || dweight == nullptr) return status;
    return launch_sum_partials(first, count, in.columns,
                               SumOutputs<C>{static_cast<C*>(dweight), static_cast<C*>(dbias)},
                               false, stream);
  });
}

}  // namespace pentatron::kernels
