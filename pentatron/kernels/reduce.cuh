// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "pentatron/kernels/common.cuh"

namespace pentatron::kernels {

// Sums over rows in parts: a block takes kTileLanes vectors of columns of a chunk of rows, each of
// its kTileRows groups every kTileRows-th row; groups are added in order.
constexpr int kTileLanes = 32;
constexpr int kTileRows = 8;

// Some 256 chunks of many rows, so that a few hundred columns fill a large device too.
inline std::int64_t rows_per_chunk(std::int64_t rows) {
  return std::max<std::int64_t>(64, (rows + 255) / 256);
}

inline dim3 column_sum_grid(std::int64_t rows, std::int64_t columns, int vector) {
  const std::int64_t tile = std::int64_t{kTileLanes} * vector, chunk = rows_per_chunk(rows);
  return {static_cast<unsigned>((columns + tile - 1) / tile),
          static_cast<unsigned>((rows + chunk - 1) / chunk)};
}

// The groups' sums of V columns a thread, written as one row of partials.
template <typename C, int V>
__device__ __forceinline__ void write_partials(C (&sums)[kTileRows][kTileLanes * V], C (&sum)[V],
                                               std::int64_t column, std::int64_t columns,
                                               C* __restrict__ partials) {
  const int lane = static_cast<int>(threadIdx.x), group = static_cast<int>(threadIdx.y);
#pragma unroll
  for (int i = 0; i < V; ++i) sums[group][lane * V + i] = sum[i];
  __syncthreads();
  if (group != 0 || column >= columns) return;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    for (int g = 1; g < kTileRows; ++g) sum[i] += sums[g][lane * V + i];
    partials[static_cast<std::int64_t>(blockIdx.y) * columns + column + i] = sum[i];
  }
}

// One thread a column and group; groups of partials are added in a fixed order.
constexpr int kPartialColumns = 32;
constexpr int kPartialGroups = 16;

template <typename C, typename S>
__global__ void sum_partials_kernel(const C* __restrict__ partials, std::int64_t count,
                                    std::int64_t columns, S* __restrict__ out, bool accumulate) {
  __shared__ C sums[kPartialGroups][kPartialColumns];
  const int lane = static_cast<int>(threadIdx.x), group = static_cast<int>(threadIdx.y);
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kPartialColumns + lane;
  C sum = 0;
  if (column < columns) {
    for (std::int64_t p = group; p < count; p += kPartialGroups) {
      sum += partials[p * columns + column];
    }
  }
  sums[group][lane] = sum;
  __syncthreads();
  if (group != 0 || column >= columns) return;
  for (int g = 1; g < kPartialGroups; ++g) sum += sums[g][lane];
  out[column] = narrow<S>(accumulate ? widen<C>(out[column]) + sum : sum);
}

template <typename C, typename S>
cudaError_t launch_sum_partials(const C* partials, std::int64_t count, std::int64_t columns, S* out,
                                bool accumulate, cudaStream_t stream) {
  if (columns == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>((columns + kPartialColumns - 1) / kPartialColumns);
  sum_partials_kernel<C, S><<<blocks, dim3(kPartialColumns, kPartialGroups), 0, stream>>>(
      partials, count, columns, out, accumulate);
  return cudaGetLastError();
}

}  // namespace pentatron::kernels
