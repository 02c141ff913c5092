// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/kernels/common.cuh"

// What both directions of the norms share. Rows of up to kMaxThreads * kPerThread elements are held
// in registers or shared memory, so that x and dy are read once: short rows by a warp each, of
// which a block has several, longer ones by a block. Longer still or unaligned rows take the plain
// kernels, which read them again from the cache. A product that another gradient is added to is
// rounded first, so that fp32 has the bits of two kernels.
namespace pentatron::kernels {

// Elements of a row, where a block shares it: with an addition before a norm or without, so that
// both have the same bits.
constexpr int kPerThread = 16;
constexpr int kMaxThreads = 512;

// The column of a thread's k-th vector of V elements, where the block shares a row.
template <int V>
__device__ __forceinline__ std::int64_t block_place(int k) {
  return (static_cast<std::int64_t>(k) * blockDim.x + threadIdx.x) * V;
}

// Sums over a block of at most 16 warps, in every thread, of values that follow each other: a
// call's scratch is free again when the next call but one writes to it. Two sums share the steps of
// one.
template <typename C, int kCount>
class BlockSums {
 public:
  static constexpr int kScratch = 2 * 32;
  explicit __device__ BlockSums(C* scratch) : scratch_(scratch) {}

  __device__ __forceinline__ void operator()(C (&x)[kCount]) {
    static_assert(kCount <= 2 && kMaxThreads <= 512);
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int warps = static_cast<int>(blockDim.x) / 32, half = lane / 16;
    // The lower half of a warp has the first sum, the upper one the second.
    C mine = x[0];
    if constexpr (kCount == 2) mine = half == 0 ? x[0] : x[1];
    mine += __shfl_xor_sync(0xffffffffu, kCount == 2 && half == 0 ? x[kCount - 1] : x[0], 16);
    mine = half_warp_sum(mine);
    C* place = scratch_ + turn_ * 32;
    turn_ ^= 1;
    if (lane % 16 == 0 && half < kCount) place[half * 16 + warp] = mine;
    __syncthreads();
    const int from = lane % 16;
    mine = from < warps ? place[(kCount == 2 ? half * 16 : 0) + from] : C(0);
    mine = half_warp_sum(mine);
    x[0] = kCount == 2 ? __shfl_sync(0xffffffffu, mine, 0) : mine;
    if constexpr (kCount == 2) x[1] = __shfl_sync(0xffffffffu, mine, 16);
  }

 private:
  static __device__ __forceinline__ C half_warp_sum(C x) {
#pragma unroll
    for (int offset = 8; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
  }

  C* scratch_;
  int turn_ = 0;
};

// (x - mean) rstd; where results are rounded to 16 bits, in one operation.
template <typename T>
struct Centred {
  using C = ComputeOf<T>;
  C rstd, shift;

  __device__ __forceinline__ Centred(C mean, C rstd_of_row)
      : rstd(rstd_of_row), shift(sizeof(T) == 2 ? -mean * rstd_of_row : mean) {}
  __device__ __forceinline__ C operator()(C x) const {
    if constexpr (sizeof(T) == 2) return fma(x, rstd, shift);
    return (x - shift) * rstd;
  }
};

// A row's sum to its mean; where results are rounded to 16 bits, by a factor.
template <typename T>
struct RowMean {
  using C = ComputeOf<T>;
  C columns, factor;

  explicit __device__ __forceinline__ RowMean(std::int64_t count)
      : columns(static_cast<C>(count)), factor(C(1) / static_cast<C>(count)) {}
  __device__ __forceinline__ C operator()(C sum) const {
    return sizeof(T) == 2 ? sum * factor : sum / columns;
  }
};

inline int threads_of_a_row(std::int64_t columns, int elements) {
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

}  // namespace pentatron::kernels
