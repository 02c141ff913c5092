// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/kernels/common.cuh"

namespace pentatron::kernels {

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
