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

// Two sets of partials, one behind the other, where the second's sums are asked for.
template <typename S>
struct SumOutputs {
  S *first, *second;  // second null: one set
};

template <typename C, typename S>
__global__ void sum_partials_kernel(const C* partials, std::int64_t count, std::int64_t columns,
                                    SumOutputs<S> outputs, bool accumulate) {
  __shared__ C sums[kPartialGroups][kPartialColumns];
  const int lane = static_cast<int>(threadIdx.x), group = static_cast<int>(threadIdx.y);
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kPartialColumns + lane;
  if (blockIdx.y == 1) partials += count * columns;
  S* out = blockIdx.y == 1 ? outputs.second : outputs.first;
  C sum = 0;
  if (column < columns) {
    // Several loads are under way at a time.
    constexpr int kAhead = 8;
    for (std::int64_t p = group; p < count; p += kAhead * kPartialGroups) {
      C ahead[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) {
        const std::int64_t at = p + k * kPartialGroups;
        ahead[k] = at < count ? partials[at * columns + column] : C(0);
      }
#pragma unroll
      for (int k = 0; k < kAhead; ++k) sum += ahead[k];
    }
  }
  sums[group][lane] = sum;
  __syncthreads();
  if (group != 0 || column >= columns) return;
  for (int g = 1; g < kPartialGroups; ++g) sum += sums[g][lane];
  out[column] = narrow<S>(accumulate ? widen<C>(out[column]) + sum : sum);
}

template <typename C, typename S>
cudaError_t launch_sum_partials(const C* partials, std::int64_t count, std::int64_t columns,
                                SumOutputs<S> outputs, bool accumulate, cudaStream_t stream) {
  if (columns == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>((columns + kPartialColumns - 1) / kPartialColumns);
  const dim3 grid(blocks, outputs.second != nullptr ? 2 : 1);
  sum_partials_kernel<C, S><<<grid, dim3(kPartialColumns, kPartialGroups), 0, stream>>>(
      partials, count, columns, outputs, accumulate);
  return cudaGetLastError();
}

}  // namespace pentatron::kernels
