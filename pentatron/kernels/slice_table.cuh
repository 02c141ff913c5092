// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/kernels/common.cuh"

// Many slices in one launch, for the kernels of the optimizer.
namespace pentatron::kernels {

// Elements of a block: long enough that what it computes once does not count.
constexpr std::int64_t kSliceChunk = 1 << 14;
constexpr std::size_t kMaxArgumentBytes = 32764;  // of a kernel, since CUDA 12.1

// The slices of one launch, an argument of its kernel. A block finds its slice by the number of
// blocks before it.
template <typename S, int kMost>
struct SliceTable {
  using Slice = S;
  static constexpr int kMostSlices = kMost;
  S slices[kMost];
  std::int32_t first_block[kMost + 1];
  std::int32_t num_slices;
};

// The last slice whose blocks begin at or before this block.
template <typename Table>
__device__ __forceinline__ int slice_of_block(const Table& table) {
  const auto block = static_cast<std::int32_t>(blockIdx.x);
  int low = 0, high = table.num_slices;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (table.first_block[middle] <= block) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// A null pointer is.
__device__ __forceinline__ bool aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
}

// Puts the slices that are not empty into `table` and calls launch(number of blocks) whenever it is
// full, and at the end. count_of(slice): its elements.
template <typename Table, typename Count, typename Launch>
cudaError_t launch_slices(Table& table, const typename Table::Slice* slices, std::size_t num_slices,
                          Count count_of, Launch launch) {
  const auto flush = [&] {
    const cudaError_t status = launch(table.first_block[table.num_slices]);
    table.num_slices = 0;
    return status;
  };
  table.num_slices = 0;
  table.first_block[0] = 0;
  for (std::size_t s = 0; s < num_slices; ++s) {
    const std::int64_t count = count_of(slices[s]);
    if (count == 0) continue;
    const auto blocks = static_cast<std::int32_t>((count + kSliceChunk - 1) / kSliceChunk);
    table.slices[table.num_slices] = slices[s];
    table.first_block[table.num_slices + 1] = table.first_block[table.num_slices] + blocks;
    if (++table.num_slices < Table::kMostSlices) continue;
    const cudaError_t status = flush();
    if (status != cudaSuccess) return status;
  }
  return table.num_slices == 0 ? cudaSuccess : flush();
}

}  // namespace pentatron::kernels
