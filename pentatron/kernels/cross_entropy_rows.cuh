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

// Largest value of what a thread has met, the sum of exp(value - that) and, if kSums, the sum of
// the values.
template <typename T, bool kSums>
struct RunningSum {
  using C = ComputeOf<T>;
  C largest = lowest<C>();
  C sum = 0;
  C values_sum = 0;

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
    if constexpr (kSums) {
#pragma unroll
      for (int i = 0; i < N; ++i) values_sum += widen<C>(values[i]);
    }
  }
};

}  // namespace pentatron::kernels
