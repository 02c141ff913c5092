// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

// Matrix product on raw row-major memory, for blocked ops that would drown in tensor overhead. May
// be called inside parallel_for (then it runs on the calling thread alone).
namespace pentatron::tensor {

enum class Transpose { kNo, kYes };

// c_mn = alpha * op(a) @ op(b) + beta * c. Leading dimensions are row strides of the stored
// matrices: op(a) is [m, k], op(b) [k, n]. With beta == 0, c is not read. Sizes past 2^31 - 1
// that go to BLAS (sgemm.h says which do not): kInternal.
void gemm(Transpose trans_a, Transpose trans_b, std::int64_t m, std::int64_t n, std::int64_t k,
          float alpha, const float* a, std::int64_t lda, const float* b, std::int64_t ldb,
          float beta, float* c, std::int64_t ldc);
void gemm(Transpose trans_a, Transpose trans_b, std::int64_t m, std::int64_t n, std::int64_t k,
          double alpha, const double* a, std::int64_t lda, const double* b, std::int64_t ldb,
          double beta, double* c, std::int64_t ldc);

}  // namespace pentatron::tensor
