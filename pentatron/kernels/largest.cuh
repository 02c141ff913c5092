// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/kernels/common.cuh"

// Largest magnitudes, as bits: what fp8 scales stand on.
namespace pentatron::kernels {

// Magnitudes are ordered as their bits are; a NaN's bits lie above those of infinity.
__device__ __forceinline__ unsigned magnitude_bits(float x) {
  return __float_as_uint(x) & 0x7fffffffu;
}

struct LargerBits {
  __device__ __forceinline__ unsigned operator()(unsigned a, unsigned b) const {
    return a > b ? a : b;
  }
};

// Raises *largest to `most` of a warp, all of whose threads come here. Soon most warps find it as
// large already, and a maximum does not depend on order.
__device__ __forceinline__ void raise_largest(unsigned most, unsigned* largest) {
  most = warp_reduce(most, LargerBits{});
  const bool first = threadIdx.x % 32 == 0;
  if (first && most > *static_cast<volatile unsigned*>(largest)) atomicMax(largest, most);
}

}  // namespace pentatron::kernels
