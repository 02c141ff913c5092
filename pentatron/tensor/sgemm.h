// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "pentatron/tensor/blas.h"
#include "pentatron/tensor/vector_set.h"

// Products of fp32 matrices with kernels of our own, where these are faster than the BLAS in
// libtorch (MKL): of any size on AMD's processors (MKL has no AVX-512 kernels for them, and is slow
// on wide outputs with AVX2), and with AVX-512 on Intel's those of small matrices, where packing
// and calling weigh. bench/ops/products.cc measures both.
namespace pentatron::tensor {

// c_mn = alpha op(a) op(b) + beta c + bias_n, as gemm() in blas.h has it; `bias` of n numbers may
// be null, b and c must not overlap. With beta == 0, c is not read.
struct Sgemm {
  Transpose trans_a = Transpose::kNo, trans_b = Transpose::kNo;
  std::int64_t m = 0, n = 0, k = 0;
  float alpha = 1.0f;
  const float* a = nullptr;
  std::int64_t lda = 0;
  const float* b = nullptr;
  std::int64_t ldb = 0;
  float beta = 0.0f;
  float* c = nullptr;
  std::int64_t ldc = 0;
  const float* bias = nullptr;
};

// Whether own_sgemm() is the faster way for these sizes on this machine. The number of threads
// plays no part: the same product gives the same bits with any.
[[nodiscard]] bool prefers_own_sgemm(std::int64_t m, std::int64_t n, std::int64_t k);

// Any sizes; k == 0 leaves beta c + bias. The sum over k runs in order, one fused multiply-add
// each, in blocks that follow from k alone and are added to c: an element does not depend on the
// sizes of the matrices around it, nor on threads, which share the rows or columns of c. `set`: at
// most vector_set(), else kInternal.
void own_sgemm(const Sgemm& p, VectorSet set = vector_set());

}  // namespace pentatron::tensor
