// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/kernels/types.h"

namespace pentatron::kernels {

struct RotaryArguments {
  std::int64_t tokens, heads, head_dim;
  std::int64_t half;          // rotary_dim / 2
  std::int64_t max_position;  // rows of the tables
  std::int64_t token_stride;  // of x, in elements; channels stand side by side
  std::int64_t head_stride;   // in elements
  bool interleaved;           // pairs are x[2i], x[2i + 1] instead of x[i], x[i + half]
};

// Rotates the first 2 * half channels of each head by direction times the angle
// of the token's position and copies the rest; y [tokens, heads, head_dim] contiguous. cos and sin
// [max_position, half] in the computing type. A position outside the tables gives NaN.
[[nodiscard]] cudaError_t rotate(Type type, const RotaryArguments& arguments, const void* x,
                                 const void* cos, const void* sin, const std::int64_t* positions,
                                 double direction, void* y, cudaStream_t stream);

}  // namespace pentatron::kernels
