// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/tensor/tensor.h"

// fp8 tensors with one scale, and their product.
namespace pentatron::tensor {

enum class Fp8Format { kE4M3, kE5M2 };  // more digits; more range (gradients)

// value = data * scale.
struct Fp8Tensor {
  Tensor data;   // e4m3 or e5m2, contiguous
  Tensor scale;  // fp32 scalar, at a multiple of 16 bytes
};

// Scaled so that the largest magnitude becomes the format's largest finite value; the scale stays
// on the device. A tensor of zeros, or without elements, gets the smallest normal scale or 1.
[[nodiscard]] Fp8Tensor quantize_fp8(const Tensor& x, Fp8Format format);
[[nodiscard]] Tensor dequantize_fp8(const Fp8Tensor& x, DType dtype);

// a_mk @ b_nk^T in out_dtype (bf16 or fp32), sums in fp32; at most one operand is e5m2 (two, or a
// scale of another kind: kInternal). k and n multiples of 16, else kUnsupported. On cards one
// library product; on CPUs the values that fp8 holds are multiplied in fp32.
[[nodiscard]] Tensor fp8_matmul(const Fp8Tensor& a_mk, const Fp8Tensor& b_nk, DType out_dtype);

}  // namespace pentatron::tensor
