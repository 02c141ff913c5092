// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/kernels/common.cuh"

namespace pentatron::kernels {

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
