// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/kernels/types.h"

// Quantisation to fp8 with one scale a tensor, or one for each 128 values or 128 x 128 of them.
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

// With scales of blocks: scale := 1 / min(2^floor(log2(L / m)), 2^126) with m the block's max |x|
// and L / m rounded to fp32, NaN where m is not finite; outputs as above. The block of an output is
// 128 of its neighbours in a row, so that the two outputs have scales and values of their own, or,
// with `square`, 128 x 128 for both. Blocks may be cut off at the edges.
struct Fp8BlockCast {
  const void* x = nullptr;  // as above
  Type type = Type::kBFloat16;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  Fp8Kind format = Fp8Kind::kE4M3;
  bool square = false;
  void* rows_out = nullptr;      // [stored_rows, columns]; null: none
  std::int64_t stored_rows = 0;  // at least `rows`; what lies behind is zero
  // Of value (row, column) at [column / 128 * row_scale_step + row], or, with `square`, at
  // [row / 128 * row_scale_step + column / 128].
  float* row_scales = nullptr;
  std::int64_t row_scale_step = 0;
  void* columns_out = nullptr;   // [columns, padded_rows]; null: none
  std::int64_t padded_rows = 0;  // as above
  // Of value (row, column) at [row / 128 * column_scale_step + column], or, with `square`, at
  // [column / 128 * column_scale_step + row / 128].
  float* column_scales = nullptr;
  std::int64_t column_scale_step = 0;
};
// Reads x once: moves bytes(x) + rows * columns for each output. Deterministic.
[[nodiscard]] cudaError_t launch_fp8_block_cast(const Fp8BlockCast& in, cudaStream_t stream);

}  // namespace pentatron::kernels
