// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "pentatron/tensor/fp8.h"

// The blocks of --fp8-recipe blockwise (DeepSeek-V3, arXiv 2412.19437, section 3.3), which products
// on Hopper take: of activations and output gradients 128 values of a row, along what a product
// sums over, of weights squares.
namespace pentatron::tensor {

constexpr std::int64_t kFp8Block = 128;
constexpr ScaleBlock kActivationBlock{.rows = 1, .columns = kFp8Block};
constexpr ScaleBlock kWeightBlock{.rows = kFp8Block, .columns = kFp8Block};

// Whether a b^T is a product of such blocks: at most one of the operands has squares.
[[nodiscard]] inline bool blockwise(const Fp8Tensor& a_mk, const Fp8Tensor& b_nk) {
  return a_mk.block == kActivationBlock &&
         (b_nk.block == kActivationBlock || b_nk.block == kWeightBlock);
}

}  // namespace pentatron::tensor
