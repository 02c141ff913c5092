// SPDX-License-Identifier: Apache-2.0
#include "pentatron/kernels/reduce.h"

#include "pentatron/kernels/reduce.cuh"

namespace pentatron::kernels {
namespace {

// partials[chunk, c] = sum of x[r, c] over the chunk's rows; V columns a thread.
template <typename T, typename C, int V>
__global__ void column_sum_kernel(const T* __restrict__ x, std::int64_t rows, std::int64_t columns,
                                  std::int64_t chunk, C* __restrict__ partials) {
  __shared__ C sums[kTileRows][kTileLanes * V];
  const int lane = static_cast<int>(threadIdx.x), group = static_cast<int>(threadIdx.y);
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * kTileLanes + lane) * V;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.y) * chunk;
  const std::int64_t end = begin + chunk < rows ? begin + chunk : rows;
  C sum[V] = {};
  if (column < columns) {
#pragma unroll 4
    for (std::int64_t r = begin + group; r < end; r += kTileRows) {
      const Vec<T, V> in = load<V>(x + r * columns + column);
#pragma unroll
      for (int i = 0; i < V; ++i) sum[i] += widen<C>(in.v[i]);
    }
  }
  write_partials<C, V>(sums, sum, column, columns, partials);
}

template <typename T, typename C>
cudaError_t column_sums_of(const T* x, std::int64_t rows, std::int64_t columns, C* partials,
                           cudaStream_t stream) {
  const std::int64_t chunk = rows_per_chunk(rows);
  const dim3 block(kTileLanes, kTileRows);
  constexpr int V = kVector<T>;
  if (columns % V == 0 && aligned16(x)) {
    column_sum_kernel<T, C, V><<<column_sum_grid(rows, columns, V), block, 0, stream>>>(
        x, rows, columns, chunk, partials);
  } else {
    column_sum_kernel<T, C, 1><<<column_sum_grid(rows, columns, 1), block, 0, stream>>>(
        x, rows, columns, chunk, partials);
  }
  return cudaGetLastError();
}

constexpr int kSquareThreads = 512;

// Elements of one block: a multiple of what the block reads at a time.
std::int64_t square_chunk(std::int64_t count) {
  constexpr std::int64_t kStep = 4096;
  const std::int64_t share = (count + kSquarePartials - 1) / kSquarePartials;
  return std::max<std::int64_t>(1, (share + kStep - 1) / kStep) * kStep;
}

template <typename T, int V>
__global__ void square_kernel(const T* __restrict__ x, std::int64_t count, std::int64_t chunk,
                              double* __restrict__ partials) {
  __shared__ double scratch[32];
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * chunk;
  const std::int64_t end = begin + chunk < count ? begin + chunk : count;
  const std::int64_t whole = begin + (end - begin) / V * V;
  double sum = 0;
#pragma unroll 4
  for (std::int64_t at = begin + static_cast<std::int64_t>(threadIdx.x) * V; at < whole;
       at += static_cast<std::int64_t>(kSquareThreads) * V) {
    const Vec<T, V> in = load<V>(x + at);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const double value = widen<double>(in.v[i]);
      sum += value * value;
    }
  }
  for (std::int64_t at = whole + threadIdx.x; at < end; at += kSquareThreads) {
    const double value = widen<double>(x[at]);
    sum += value * value;
  }
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__global__ void add_squares_kernel(const double* __restrict__ partials, std::int64_t count,
                                   double* __restrict__ out) {
  __shared__ double scratch[32];
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += kSquareThreads) sum += partials[i];
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) *out = sum;
}

}  // namespace

std::int64_t column_sum_partials(std::int64_t rows) {
  const std::int64_t chunk = rows_per_chunk(rows);
  return (rows + chunk - 1) / chunk;
}

cudaError_t sum_partials(bool wide, const void* partials, std::int64_t count, std::int64_t columns,
                         const Slot& slot, cudaStream_t stream) {
  return dispatch(slot.type, [&](auto tag) {
    using S = decltype(tag);
    const SumOutputs<S> out{static_cast<S*>(slot.data), nullptr};
    if (wide) {
      return launch_sum_partials(static_cast<const double*>(partials), count, columns, out,
                                 slot.accumulate, stream);
    }
    return launch_sum_partials(static_cast<const float*>(partials), count, columns, out,
                               slot.accumulate, stream);
  });
}

cudaError_t column_sums(Type type, const void* x, std::int64_t rows, std::int64_t columns,
                        const Slot& slot, void* partials, cudaStream_t stream) {
  const bool wide = type == Type::kDouble || slot.type == Type::kDouble;
  if (columns == 0) return cudaSuccess;
  if (rows > 0) {
    const cudaError_t status = dispatch(type, [&](auto tag) {
      const auto* in = static_cast<const decltype(tag)*>(x);
      if (wide) {
        return column_sums_of(in, rows, columns, static_cast<double*>(partials), stream);
      }
      return column_sums_of(in, rows, columns, static_cast<float*>(partials), stream);
    });
    if (status != cudaSuccess) return status;
  }
  return sum_partials(wide, partials, column_sum_partials(rows), columns, slot, stream);
}

cudaError_t sum_of_squares(Type type, const void* x, std::int64_t count, double* partials,
                           double* out, cudaStream_t stream) {
  const std::int64_t chunk = square_chunk(count);
  const std::int64_t blocks = (count + chunk - 1) / chunk;
  if (blocks > 0) {
    const cudaError_t status = dispatch(type, [&](auto tag) {
      using T = decltype(tag);
      const auto* in = static_cast<const T*>(x);
      if (aligned16(in)) {
        square_kernel<T, kVector<T>><<<static_cast<unsigned>(blocks), kSquareThreads, 0, stream>>>(
            in, count, chunk, partials);
      } else {
        square_kernel<T, 1><<<static_cast<unsigned>(blocks), kSquareThreads, 0, stream>>>(
            in, count, chunk, partials);
      }
      return cudaGetLastError();
    });
    if (status != cudaSuccess) return status;
  }
  add_squares_kernel<<<1, kSquareThreads, 0, stream>>>(partials, blocks, out);
  return cudaGetLastError();
}

}  // namespace pentatron::kernels
