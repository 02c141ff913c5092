// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cfloat>

#include "pentatron/kernels/common.cuh"

// What the kernels of the cross entropy share.
namespace pentatron::kernels {

// Of 16-bit logits, whose own rounding is 2^-9: with the exact form the arithmetic, not the memory,
// sets the speed.
template <typename T>
constexpr bool kFastExp = sizeof(T) == 2;

template <typename C>
__device__ __forceinline__ C lowest() {
  if constexpr (std::is_same_v<C, double>) {
    return -DBL_MAX;
  } else {
    return -FLT_MAX;
  }
}

// Largest value of what a thread has met, and the sum of exp(value - that).
template <typename T>
struct RunningSum {
  using C = ComputeOf<T>;
  C largest = lowest<C>();
  C sum = 0;

  template <int N>
  __device__ __forceinline__ void take(const T (&values)[N]) {
    C most = largest;
#pragma unroll
    for (int i = 0; i < N; ++i) most = Larger{}(most, widen<C>(values[i]));
    if (most > largest) {
      sum *= exp_of<kFastExp<T>>(largest - most);
      largest = most;
    }
#pragma unroll
    for (int i = 0; i < N; ++i) sum += exp_of<kFastExp<T>>(widen<C>(values[i]) - largest);
  }
};

}  // namespace pentatron::kernels
