// SPDX-License-Identifier: Apache-2.0
#include "pentatron/tensor/vector_set.h"

namespace pentatron::tensor {

VectorSet vector_set() {
// The kernels need GCC's function targets.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
  static const VectorSet kWidest =
      __builtin_cpu_supports("avx512f") != 0 ? VectorSet::kAvx512
      : __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0
          ? VectorSet::kAvx2
          : VectorSet::kNone;
  return kWidest;
#else
  return VectorSet::kNone;
#endif
}

}  // namespace pentatron::tensor
