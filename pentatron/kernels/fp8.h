// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/kernels/types.h"

// Quantisation to fp8 with one scale a tensor.
namespace pentatron::kernels {

enum class Fp8Kind { kE4M3, kE5M2 };

// *largest := max |x[i]| as fp32, a NaN where there is one (0 for count = 0). Reads `count`
// elements, 16-byte aligned; none where *known is above 0 (known may be null). Deterministic: a
// maximum does not depend on order.
[[nodiscard]] cudaError_t launch_largest_magnitude(const void* x, Type type, std::int64_t count,
                                                   const float* known, float* largest,
                                                   cudaStream_t stream);

// scale := max(m / L, smallest normal) with m = *known where that is there and above 0, else
// *largest, and L the format's largest finite value; every output := round_to_nearest_even(clamp(x
// * (1 / scale), -L, L)), in fp32, NaN where x is not finite.
struct Fp8Cast {
  const void* x = nullptr;  // [rows, columns], 16-byte aligned, columns a multiple of 16
  Type type = Type::kBFloat16;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  Fp8Kind format = Fp8Kind::kE4M3;
  const float* known = nullptr;
  const float* largest = nullptr;
  double* seen = nullptr;  // raised to max |x|; null: not wanted
  float* scale = nullptr;
  void* rows_out = nullptr;      // [rows, columns]; null: none
  void* columns_out = nullptr;   // [columns, padded_rows]; null: none
  std::int64_t padded_rows = 0;  // rows up to a multiple of 16; what lies behind is zero
};
// Moves bytes(x) + rows * columns for each output. Deterministic.
[[nodiscard]] cudaError_t launch_fp8_cast(const Fp8Cast& in, cudaStream_t stream);

}  // namespace pentatron::kernels
