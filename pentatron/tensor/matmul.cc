// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <cpuid.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "pentatron/base/error.h"
#include "pentatron/tensor/blas.h"
#include "pentatron/tensor/ops.h"
#include "pentatron/tensor/sgemm.h"

extern "C" {
// The Fortran BLAS interface of the library that libtorch_cpu carries.
void sgemm_(const char* transa, const char* transb, const int* m, const int* n, const int* k,
            const float* alpha, const float* a, const int* lda, const float* b, const int* ldb,
            const float* beta, float* c, const int* ldc);
void dgemm_(const char* transa, const char* transb, const int* m, const int* n, const int* k,
            const double* alpha, const double* a, const int* lda, const double* b, const int* ldb,
            const double* beta, double* c, const int* ldc);
}

namespace pentatron::tensor {
namespace {

int to_int(std::int64_t value) {
  PENTATRON_CHECK(value >= 0 && value <= std::numeric_limits<int>::max(), kInternal,
                  "gemm: size {} does not fit the BLAS interface", value);
  return static_cast<int>(value);
}

// Row-major c = a b is column-major c^T = b^T a^T: the operands change places and nothing is
// copied.
template <typename T, typename F>
void row_major_gemm(F function, Transpose trans_a, Transpose trans_b, std::int64_t m,
                    std::int64_t n, std::int64_t k, T alpha, const T* a, std::int64_t lda,
                    const T* b, std::int64_t ldb, T beta, T* c, std::int64_t ldc) {
  if (m == 0 || n == 0) return;
  const char ta = trans_a == Transpose::kYes ? 'T' : 'N';
  const char tb = trans_b == Transpose::kYes ? 'T' : 'N';
  const int mi = to_int(m), ni = to_int(n), ki = to_int(k);
  const int la = to_int(lda), lb = to_int(ldb), lc = to_int(ldc);
  function(&tb, &ta, &ni, &mi, &ki, &alpha, b, &lb, a, &la, &beta, c, &lc);
}

// AVX512-BF16 (leaf 7.1 eax bit 5) or AMX-BF16 (leaf 7.0 edx bit 22): where the library's bf16
// product is fast.
bool cpu_has_bf16_products() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && ((eax >> 5) & 1) != 0) return true;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && ((edx >> 22) & 1) != 0;
}

bool is_low_precision(DType dtype) { return dtype == DType::BFloat16 || dtype == DType::Half; }

// Columns of b that are widened at a time: the copy stays within 8 MiB however large the weight is.
std::int64_t column_chunk(std::int64_t k, std::int64_t n) {
  constexpr std::int64_t kWidenElements = std::int64_t{1} << 21;
  return std::clamp<std::int64_t>(kWidenElements / std::max<std::int64_t>(k, 1), 64,
                                  std::max<std::int64_t>(n, 64));
}

// Products in `wide`, rounded once into out; b is widened a strip of columns at a time.
void widened_product(const Tensor& out_mn, const Tensor& a_mk, const Tensor& b_kn, DType wide,
                     bool accumulate) {
  const Tensor a_wide = a_mk.to(wide);
  const std::int64_t n = b_kn.size(1);
  const std::int64_t chunk = column_chunk(b_kn.size(0), n);
  for (std::int64_t begin = 0; begin < n; begin += chunk) {
    const std::int64_t width = std::min(chunk, n - begin);
    const Tensor b_wide = b_kn.narrow(1, begin, width).to(wide);
    Tensor out = out_mn.narrow(1, begin, width);
    if (out.scalar_type() == wide) {
      if (accumulate) {
        at::addmm_out(out, out, a_wide, b_wide);
      } else {
        at::mm_out(out, a_wide, b_wide);
      }
      continue;
    }
    const Tensor product = at::mm(a_wide, b_wide);
    if (accumulate) {
      out.add_(product);
    } else {
      out.copy_(product);
    }
  }
}

// A matrix as BLAS reads it: rows or columns side by side.
struct BlasOperand {
  Transpose transpose;
  std::int64_t stride;
};
std::optional<BlasOperand> blas_operand(const Tensor& x_mk) {
  const std::int64_t rows = x_mk.size(0), columns = x_mk.size(1);
  if (rows == 0 || columns == 0) return std::nullopt;
  const bool row_major = columns == 1 || x_mk.stride(1) == 1;
  if (row_major && (rows == 1 || x_mk.stride(0) >= columns)) {
    return BlasOperand{Transpose::kNo, rows == 1 ? columns : x_mk.stride(0)};
  }
  if ((rows == 1 || x_mk.stride(0) == 1) && (columns == 1 || x_mk.stride(1) >= rows)) {
    return BlasOperand{Transpose::kYes, columns == 1 ? rows : x_mk.stride(1)};
  }
  return std::nullopt;
}

// out = a b + beta out on a CPU, in fp32 or fp64, without the dispatcher in between; false where
// BLAS cannot read a matrix as it stands.
bool direct_product(const Tensor& out_mn, const Tensor& a_mk, const Tensor& b_kn, double beta) {
  const DType dtype = out_mn.scalar_type();
  if (!out_mn.is_cpu() || a_mk.scalar_type() != dtype || b_kn.scalar_type() != dtype) return false;
  if (dtype != DType::Float && dtype != DType::Double) return false;
  const std::optional<BlasOperand> a = blas_operand(a_mk), b = blas_operand(b_kn);
  const std::optional<BlasOperand> out = blas_operand(out_mn);
  if (!a || !b || !out || out->transpose == Transpose::kYes) return false;
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    gemm(a->transpose, b->transpose, a_mk.size(0), b_kn.size(1), a_mk.size(1), T(1),
         a_mk.const_data_ptr<T>(), a->stride, b_kn.const_data_ptr<T>(), b->stride,
         static_cast<T>(beta), out_mn.data_ptr<T>(), out->stride);
  };
  dtype == DType::Double ? run(double{}) : run(float{});
  return true;
}

// out = a b + bias where that is one product of our own.
bool own_sgemm_bias(const Tensor& out_mn, const Tensor& a_mk, const Tensor& b_kn,
                    const Tensor& bias_n) {
  const std::int64_t m = a_mk.size(0), n = b_kn.size(1), k = a_mk.size(1);
  if (a_mk.scalar_type() != DType::Float || b_kn.scalar_type() != DType::Float ||
      !bias_n.is_contiguous() || !prefers_own_sgemm(m, n, k)) {
    return false;
  }
  const std::optional<BlasOperand> a = blas_operand(a_mk), b = blas_operand(b_kn);
  if (!a || !b) return false;
  own_sgemm({a->transpose, b->transpose, m, n, k, 1.0f, a_mk.const_data_ptr<float>(), a->stride,
             b_kn.const_data_ptr<float>(), b->stride, 0.0f, out_mn.data_ptr<float>(), n,
             bias_n.const_data_ptr<float>()});
  return true;
}

// On GPUs. Low-precision operands add into fp32 in one product.
void device_product(const Tensor& out_mn, const Tensor& a_mk, const Tensor& b_kn, bool accumulate) {
  const DType in = a_mk.scalar_type(), to = out_mn.scalar_type();
  Tensor out = out_mn;
  if (in == b_kn.scalar_type() && in == to) {
    if (accumulate) {
      at::addmm_out(out, out, a_mk, b_kn);
    } else {
      at::mm_out(out, a_mk, b_kn);
    }
  } else if (in == b_kn.scalar_type() && is_low_precision(in) && to == DType::Float) {
    if (accumulate) {
      at::addmm_out(out, out, a_mk, b_kn, to, 1, 1);
    } else {
      at::mm_out(out, a_mk, b_kn, to);
    }
  } else {
    const bool any_fp64 = in == DType::Double || b_kn.scalar_type() == DType::Double;
    const DType wide = any_fp64 ? DType::Double : DType::Float;
    const Tensor product = at::mm(a_mk.to(wide), b_kn.to(wide));
    if (accumulate) {
      out.add_(product);
    } else {
      out.copy_(product);
    }
  }
}

}  // namespace

void gemm(Transpose trans_a, Transpose trans_b, std::int64_t m, std::int64_t n, std::int64_t k,
          float alpha, const float* a, std::int64_t lda, const float* b, std::int64_t ldb,
          float beta, float* c, std::int64_t ldc) {
  if (prefers_own_sgemm(m, n, k)) {
    own_sgemm({trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, nullptr});
    return;
  }
  row_major_gemm(sgemm_, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

void gemm(Transpose trans_a, Transpose trans_b, std::int64_t m, std::int64_t n, std::int64_t k,
          double alpha, const double* a, std::int64_t lda, const double* b, std::int64_t ldb,
          double beta, double* c, std::int64_t ldc) {
  row_major_gemm(dgemm_, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

bool widens_products(const Tensor& x) {
  static const bool kFastBf16 = cpu_has_bf16_products();
  const DType dtype = x.scalar_type();
  return x.is_cpu() && is_low_precision(dtype) && !(kFastBf16 && dtype == DType::BFloat16);
}

Tensor matmul(const Tensor& a_mk, const Tensor& b_kn) {
  PENTATRON_CHECK(a_mk.dim() == 2 && b_kn.dim() == 2 && a_mk.size(1) == b_kn.size(0), kInternal,
                  "matmul: {} @ {} do not fit", describe(a_mk), describe(b_kn));
  if ((a_mk.is_cuda() || !is_low_precision(a_mk.scalar_type())) &&
      a_mk.scalar_type() == b_kn.scalar_type()) {
    if (a_mk.is_cpu()) {
      Tensor out = empty({a_mk.size(0), b_kn.size(1)}, a_mk.scalar_type());
      if (direct_product(out, a_mk, b_kn, 0.0)) return out;
    }
    return at::mm(a_mk, b_kn);
  }
  Tensor out = empty({a_mk.size(0), b_kn.size(1)}, a_mk.scalar_type(), a_mk.device());
  matmul_into(out, a_mk, b_kn, false);
  return out;
}

Tensor matmul_bias(const Tensor& a_mk, const Tensor& b_kn, const Tensor& bias_n) {
  if (a_mk.is_cuda() && a_mk.scalar_type() == b_kn.scalar_type() &&
      a_mk.scalar_type() == bias_n.scalar_type()) {
    return at::addmm(bias_n, a_mk, b_kn);
  }
  if (a_mk.is_cpu() && bias_n.scalar_type() == a_mk.scalar_type() && a_mk.size(1) > 0) {
    Tensor out = empty({a_mk.size(0), b_kn.size(1)}, a_mk.scalar_type());
    if (own_sgemm_bias(out, a_mk, b_kn, bias_n)) return out;
    out.copy_(bias_n);
    if (direct_product(out, a_mk, b_kn, 1.0)) return out;
  }
  Tensor out_mn = matmul(a_mk, b_kn);
  out_mn.add_(bias_n);
  return out_mn;
}

void matmul_into(Tensor out_mn, const Tensor& a_mk, const Tensor& b_kn, bool accumulate) {
  PENTATRON_CHECK(a_mk.dim() == 2 && b_kn.dim() == 2 && out_mn.dim() == 2 &&
                      a_mk.size(1) == b_kn.size(0) && out_mn.size(0) == a_mk.size(0) &&
                      out_mn.size(1) == b_kn.size(1),
                  kInternal, "matmul_into: {} @ {} does not fit into {}", describe(a_mk),
                  describe(b_kn), describe(out_mn));
  if (a_mk.size(1) == 0) {
    if (!accumulate) out_mn.zero_();
    return;
  }
  if (out_mn.is_cuda()) {
    device_product(out_mn, a_mk, b_kn, accumulate);
    return;
  }
  if (direct_product(out_mn, a_mk, b_kn, accumulate ? 1.0 : 0.0)) return;
  const DType in = a_mk.scalar_type();
  const bool same = in == b_kn.scalar_type() && in == out_mn.scalar_type();
  if (!same || widens_products(a_mk)) {
    const bool any_fp64 = in == DType::Double || b_kn.scalar_type() == DType::Double;
    widened_product(out_mn, a_mk, b_kn, any_fp64 ? DType::Double : DType::Float, accumulate);
  } else if (accumulate) {
    at::addmm_out(out_mn, out_mn, a_mk, b_kn);
  } else {
    at::mm_out(out_mn, a_mk, b_kn);
  }
}

}  // namespace pentatron::tensor
