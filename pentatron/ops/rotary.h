// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/tensor/sequence_layout.h"
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
// rotary_dim/2]), as Megatron's non-interleaved form and Hugging Face Llama. x [rows, heads,
// head_dim] of the layout's rows and positions. A position outside the table: kData; shapes that do
// not fit: kInternal.
[[nodiscard]] Tensor rotary(const Tensor& x_tnd, const RotaryTable& table,
                            const SequenceLayout& layout);

}  // namespace pentatron::ops
