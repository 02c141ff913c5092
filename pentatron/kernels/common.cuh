// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "pentatron/kernels/types.h"

// Device-side helpers of the kernels: storage types, vectors of 16 bytes, sums over a block in a
// fixed order.
namespace pentatron::kernels {

template <typename T>
using ComputeOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <typename C, typename T>
__device__ __forceinline__ C widen(T x) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return static_cast<C>(__bfloat162float(x));
  } else if constexpr (std::is_same_v<T, __half>) {
    return static_cast<C>(__half2float(x));
  } else {
    return static_cast<C>(x);
  }
}

// Rounds to nearest even.
template <typename T, typename C>
__device__ __forceinline__ T narrow(C x) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(static_cast<float>(x));
  } else if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(static_cast<float>(x));
  } else {
    return static_cast<T>(x);
  }
}

// N neighbours, loaded and stored by accesses of at most 16 bytes.
template <typename T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Vec {
  T v[N];
};
// The access itself: the compiler may take a structure's apart.
template <std::size_t kBytes>
using AccessOf = std::conditional_t<
    kBytes % 16 == 0, uint4,
    std::conditional_t<kBytes == 8, uint2,
                       std::conditional_t<kBytes == 4, std::uint32_t, std::uint16_t>>>;
template <int N, typename T>
__device__ __forceinline__ Vec<T, N> load(const T* p) {
  using Access = AccessOf<sizeof(T) * N>;
  constexpr int kCount = static_cast<int>(sizeof(T) * N / sizeof(Access));
  Access parts[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) parts[i] = reinterpret_cast<const Access*>(p)[i];
  Vec<T, N> x;
  memcpy(&x, parts, sizeof(x));
  return x;
}
template <int N, typename T>
__device__ __forceinline__ void store(T* p, const Vec<T, N>& x) {
  using Access = AccessOf<sizeof(T) * N>;
  constexpr int kCount = static_cast<int>(sizeof(T) * N / sizeof(Access));
  Access parts[kCount];
  memcpy(parts, &x, sizeof(x));
#pragma unroll
  for (int i = 0; i < kCount; ++i) reinterpret_cast<Access*>(p)[i] = parts[i];
}

// Elements of one 16-byte access.
template <typename T>
constexpr int kVector = 16 / static_cast<int>(sizeof(T));

template <typename... P>
inline bool aligned16(const P*... pointers) {
  return ((reinterpret_cast<std::uintptr_t>(pointers) % 16 == 0) && ...);
}

// exp and 1 / (1 + exp(-x)); results that are rounded to 16 bits can use the fast forms, whose
// errors are below 2^-20.
template <bool kFast>
__device__ __forceinline__ float exp_of(float x) {
  return kFast ? __expf(x) : expf(x);
}
template <bool kFast>
__device__ __forceinline__ double exp_of(double x) {
  return exp(x);
}
template <bool kFast, typename C>
__device__ __forceinline__ C sigmoid_of(C x) {
  const C denominator = C(1) + exp_of<kFast>(-x);
  if constexpr (kFast && std::is_same_v<C, float>) {
    return __fdividef(1.0f, denominator);
  } else {
    return C(1) / denominator;
  }
}

struct Plus {
  template <typename C>
  __device__ __forceinline__ C operator()(C a, C b) const {
    return a + b;
  }
};
struct Larger {
  // A NaN in b is passed over, as the CPU does.
  template <typename C>
  __device__ __forceinline__ C operator()(C a, C b) const {
    return b > a ? b : a;
  }
};

template <typename C, typename F>
__device__ __forceinline__ C warp_reduce(C x, F f) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    x = f(x, __shfl_xor_sync(0xffffffffu, x, offset));
  }
  return x;
}

// Over all threads of a block (blockDim.x a multiple of 32, other dimensions 1), result in every
// thread. scratch: 32 elements of shared memory, free again after the next barrier of the block.
template <typename C, typename F>
__device__ __forceinline__ C block_reduce(C x, C neutral, C* scratch, F f) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  x = warp_reduce(x, f);
  __syncthreads();  // an earlier result may still be being read
  if (lane == 0) scratch[warp] = x;
  __syncthreads();
  return warp_reduce(lane < warps ? scratch[lane] : neutral, f);
}
template <typename C>
__device__ __forceinline__ C block_sum(C x, C* scratch) {
  return block_reduce(x, C(0), scratch, Plus{});
}

// Calls f(T{}) for the storage type.
template <typename F>
inline cudaError_t dispatch(Type type, F f) {
  switch (type) {
    case Type::kFloat:
      return f(float{});
    case Type::kBFloat16:
      return f(__nv_bfloat16{});
    case Type::kHalf:
      return f(__half{});
    case Type::kDouble:
      return f(double{});
  }
  return cudaErrorInvalidValue;
}

// Blocks of a grid-stride kernel: enough to fill a large device several times.
inline unsigned grid_for(std::int64_t items, int threads) {
  const std::int64_t blocks = (items + threads - 1) / threads;
  return static_cast<unsigned>(std::clamp<std::int64_t>(blocks, 1, 132 * 16));
}
// Threads of a block that shares one row of `items`.
inline int threads_for_row(std::int64_t items, int most) {
  const std::int64_t rounded = (items + 31) / 32 * 32;
  return static_cast<int>(std::clamp<std::int64_t>(rounded, 32, most));
}

}  // namespace pentatron::kernels
