// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/tensor/tensor.h"

// fp8 tensors with their scales, and the product of two.
namespace pentatron::tensor {

enum class Fp8Format { kE4M3, kE5M2 };  // more digits; more range (gradients)

// How many rows and columns of a matrix share one scale; 0: all of them. {0, 0} is one scale a
// tensor, {1, 128} one for each 128 values of a row, {128, 128} square blocks.
struct ScaleBlock {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  bool operator==(const ScaleBlock&) const = default;
};

// value = data * scale of its block.
struct Fp8Tensor {
  Tensor data;   // e4m3 or e5m2, contiguous
  Tensor scale;  // fp32 at a multiple of 16 bytes: a scalar, or one value for each smaller block,
                 // [ceil(rows / block.rows), ceil(columns / block.columns)], of any strides
  ScaleBlock block = {};
};

// The scales stay on the device: data = round(x * (1 / scale)), in fp32, with scale = max|x| /
// largest finite value, rounded up to a power of two for blocks smaller than the tensor. A block of
// zeros gets the smallest normal scale, a tensor without elements 1; a block with an infinity or
// NaN holds NaN. Blocks smaller than the tensor want a matrix, else kInternal.
[[nodiscard]] Fp8Tensor quantize_fp8(const Tensor& x, Fp8Format format, ScaleBlock block = {});
[[nodiscard]] Tensor dequantize_fp8(const Fp8Tensor& x, DType dtype);

// A matrix quantised once, in the orders in which products read it: what is summed over lies side
// by side.
struct Fp8Orders {
  Fp8Tensor rows_mk;     // sums over k
  Fp8Tensor columns_km;  // sums over m: [k, m rounded up to kFp8Step], zeros behind m
};
struct Fp8Request {
  Fp8Format format = Fp8Format::kE4M3;
  ScaleBlock block = {};  // of the matrix as it comes
  bool rows = true;
  bool columns = false;
  // Delayed scaling, with one scale a tensor: the magnitude that the scale stands for, an fp32
  // scalar on x's device; where it is 0 nothing is known yet and x's own largest value takes its
  // place. Larger values are clipped. Undefined: x's own.
  Tensor known = {};
  // An fp64 scalar that is raised to x's largest magnitude; undefined: nobody wants it.
  Tensor seen = {};
};
// Sizes that fp8 products take are multiples of this.
constexpr std::int64_t kFp8Step = 16;
// What is not asked for stays undefined. Both orders have the same values and scales, but blocks of
// one row are those of each order; the reference: op_table(device).fp8_orders is the fast one.
[[nodiscard]] Fp8Orders fp8_orders(const Tensor& x_mk, const Fp8Request& request);

// a_mk @ b_nk^T in out_dtype (bf16 or fp32), sums in fp32; at most one operand is e5m2 (two, or
// scales that do not fit their block: kInternal). k and n multiples of 16, else kUnsupported. On a
// GPU one library product, with one scale a tensor (blocks: ops/products_cuda.cc); on CPUs the
// values that fp8 holds are multiplied in fp32.
[[nodiscard]] Tensor fp8_matmul(const Fp8Tensor& a_mk, const Fp8Tensor& b_nk, DType out_dtype);

}  // namespace pentatron::tensor
