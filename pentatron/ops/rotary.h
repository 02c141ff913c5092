// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/tensor/tensor.h"

namespace pentatron::ops {

// Angles cos/sin, [max_position, rotary_dim / 2], computed in fp64 and stored in `dtype`: angle(p,
// i) = p * base^(-2i / rotary_dim). An odd rotary_dim or a base of 0 and below: kConfig.
struct RotaryTable {
  Tensor cos;
  Tensor sin;
};
[[nodiscard]] RotaryTable make_rotary_table(std::int64_t max_position, std::int64_t rotary_dim,
                                            double base, DType dtype, Device device = kCpu);

// Rotates the first rotary_dim channels of each head, halves convention (x[i], x[i +
// rotary_dim/2]), as Megatron's non-interleaved form and Hugging Face Llama. x [tokens, heads,
// head_dim]; positions int64 [tokens]. A position beyond the table: kData on CPUs, NaN on cards,
// which are not read on the host. Shapes that do not fit: kInternal.
[[nodiscard]] Tensor rotary(const Tensor& x_tnd, const RotaryTable& table,
                            const Tensor& positions_t);

}  // namespace pentatron::ops
