// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/tensor/fp8.h"

// Products of the cuBLASLt library that the tensor library does not offer. CUDA library only.
namespace pentatron::tensor {

struct Fp8Product {
  Fp8Tensor a_mk;
  Fp8Tensor b_nk;
  Tensor out_mn;            // contiguous, bf16 or fp32
  Tensor bias_n = {};       // in out's dtype, bf16 only; undefined: none
  bool accumulate = false;  // out += a b^T instead of out =
  // Sums stay in the tensor cores' own registers, which keep fewer bits than fp32; faster. Without
  // it they are added to fp32 ones every 128 elements.
  // Without effect where scales are of blocks.
  bool fast_sums = false;
};

// out = a b^T with one scale a tensor, or with those of fp8_blockwise.h as op_table's fp8_orders
// lays them out, in one product on the current stream; nothing waits. k a multiple of kFp8Step, one
// operand at most e5m2; with blocks m a multiple of kFp8Step and no bias (else kInternal). The
// algorithm is one for all products of its sizes (product_algorithms.h).
void fp8_product(const Fp8Product& in);

}  // namespace pentatron::tensor
